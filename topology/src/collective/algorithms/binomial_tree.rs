//! Runs a binomial tree: member v's parent is v without its lowest one bit.
//!
//! ⌊log2 p⌋ dependent messages each way and the whole buffer on each edge. The root serves ⌈log2 p⌉ children one after
//! the other, so in time it is Iandola 2016 §6.2, Eq. 4 (their "reduction tree"); Thakur 2005 §3.

use super::prelude::*;
use super::trees::{Numbered, TreePosition, Trees, Ways, rooted};

pub(super) static ENTRY: Entry = Entry {
    name: "binomial-tree",
    help: "up and down a binomial tree",
    serves: rooted,
    lanes: |call| {
        let (members, root) = (call.members(), call.root()?);
        Ok(Box::new(Trees {
            members,
            trees: 1,
            // no position below `members` has more one bits
            depth: members.ilog2(),
            is_pipelined: false,
            in_turn: 0,
            ways: Ways::of(call.collective),
            per_flow: u32::MAX,
            place: move |member, _| Some(Binomial(Numbered::new(member, members, root))),
        }))
    },
    ..Entry::PLAIN
};

impl Algorithm {
    /// `binomial-tree`: among two members one message.
    pub fn binomial_tree() -> Algorithm {
        Algorithm::new(&ENTRY, [])
    }
}

/// A member's position in a binomial tree.
#[derive(Debug)]
struct Binomial(Numbered);

impl TreePosition for Binomial {
    fn parent(&self) -> Option<u32> {
        let position = self.0.position;
        (position != 0).then(|| self.0.member(u64::from(position & (position - 1))))
    }

    /// Children are at position + 2^t for every t below the lowest one bit, as far as there are members.
    fn children(&self) -> u32 {
        let after = self.0.members - self.0.position;
        self.0.position.trailing_zeros().min(after.next_power_of_two().trailing_zeros())
    }

    fn child(&self, index: u32) -> u32 {
        self.0.member(u64::from(self.0.position) + (1 << index))
    }
}
