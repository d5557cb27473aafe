//! The families of trees: where a member is in the tree of its group.

use super::binomial_tree::Binomial;
use super::multi_color::Kary;
use super::parameter_server::Star;
use super::tree::Shape;

/// The trees, and how lanes are shared out among their roots.
#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    Binomial { root: u32 },
    Kary { root: u32, arity: u32 },
    MultiColor { colors: u32 },
    Server { servers: u32, dedicated: bool },
}

impl Family {
    /// Where `member` stands in the tree of `group`; `None` if it takes no part in it.
    pub(super) fn shape(self, member: u32, members: u32, group: u32) -> Option<Shape> {
        Some(match self {
            Family::Binomial { root } => Shape::Binomial(Binomial::new(member, members, root)),
            Family::Kary { root, arity } => Shape::Kary(Kary::new(member, members, arity, root)),
            Family::MultiColor { colors } => {
                Shape::Kary(Kary::new(member, members, colors, Kary::root_of(group, colors, members)))
            }
            Family::Server { servers, dedicated } => {
                let contributors = if dedicated { members - servers } else { members };
                let server = if dedicated { contributors + group } else { group };
                if member != server && member >= contributors {
                    return None;
                }
                Shape::Star(Star { centre: member == server, server, contributors, dedicated })
            }
        })
    }

    /// Rounds of one way.
    pub(super) fn depth(self, members: u32) -> u32 {
        match self {
            Family::Binomial { .. } => Binomial::depth(members),
            Family::Kary { arity, .. } => Kary::depth(members, arity),
            Family::MultiColor { colors } => Kary::depth(members, colors),
            Family::Server { .. } => 1,
        }
    }
}
