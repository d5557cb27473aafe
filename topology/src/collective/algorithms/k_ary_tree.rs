//! Sums up and broadcasts down a k-ary tree: inner members have k children, numbered breadth first.
//!
//! Iandola 2016 §6.2: the branching factor is the base of the logarithm in a tree's time. With all members below the
//! root it is a server. [`Kary`] places members for chains and colours, too.

use super::prelude::*;
use super::trees::{Numbered, TreePosition, Trees, Ways, rooted};

pub(super) static ENTRY: Entry = Entry {
    name: "tree",
    parameters: &[Parameter::Count {
        what: "the children of an inner member",
        example: 4,
        most: u32::MAX,
        because: "",
    }],
    help: "up and down a tree in which each inner member has that many children",
    serves: rooted,
    lanes: |call| {
        let (members, arity) = (call.members(), call.algorithm.count(0));
        Ok(Box::new(Kary { members, arity, trees: 1, root: call.root()? }.lanes(Ways::of(call.collective))))
    },
    ..Entry::PLAIN
};

impl Algorithm {
    /// `tree:` and the children of an inner member; with as many as there are other members, each is a child of the root.
    pub fn tree(children: u32) -> Algorithm {
        Algorithm::new(&ENTRY, [Value::Count(children)])
    }
}

/// Trees of `arity` children a member, whose roots are spread evenly from `root` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kary {
    pub(super) members: u32,
    pub(super) arity: u32,
    pub(super) trees: u32,
    pub(super) root: u32,
}

impl Kary {
    /// The lanes over these trees. A chain and colours are pipelined.
    pub(super) fn lanes(self, ways: Ways) -> Trees<impl Fn(u32, u32) -> Option<KaryPosition>> {
        let place = move |member, tree| Some(KaryPosition::new(member, self, tree));
        Trees {
            members: self.members,
            trees: self.trees,
            depth: self.depth(),
            is_pipelined: self.arity == 1 || self.trees > 1,
            in_turn: 0,
            ways,
            per_flow: u32::MAX,
            place,
        }
    }

    /// Rounds of one way: the depth of the last position.
    fn depth(&self) -> u32 {
        if self.arity == 1 {
            return self.members - 1;
        }
        let (mut last, mut depth) = (self.members - 1, 0);
        while last > 0 {
            (last, depth) = ((last - 1) / self.arity, depth + 1);
        }
        depth
    }
}

/// A member's position in a k-ary tree numbered breadth first.
#[derive(Debug)]
pub(super) struct KaryPosition {
    at: Numbered,
    arity: u32,
}

impl KaryPosition {
    /// The position of `member` in tree `tree`, whose root is ⌊tree·members/trees⌋ members after the first root.
    fn new(member: u32, of: Kary, tree: u32) -> KaryPosition {
        let first = of.root + (u64::from(tree) * u64::from(of.members) / u64::from(of.trees)) as u32;
        KaryPosition { at: Numbered::new(member, of.members, first), arity: of.arity }
    }

    /// Position of the first child, whether or not there is one.
    fn below(&self) -> u64 {
        u64::from(self.at.position) * u64::from(self.arity) + 1
    }
}

impl TreePosition for KaryPosition {
    fn parent(&self) -> Option<u32> {
        (self.at.position != 0).then(|| self.at.member(u64::from((self.at.position - 1) / self.arity)))
    }

    fn children(&self) -> u32 {
        u64::from(self.at.members).saturating_sub(self.below()).min(u64::from(self.arity)) as u32
    }

    /// The last position first, whose subtree is the shallowest.
    fn child(&self, index: u32) -> u32 {
        self.at.member(self.below() + u64::from(self.children() - 1 - index))
    }
}
