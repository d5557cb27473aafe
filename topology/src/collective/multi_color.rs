//! Multi-colour k-ary trees: the buffer in k shards, each summed up and spread down a tree of its own.
//!
//! Kumar 2018 §4.2 and Fig. 2. Each tree is a k-ary tree numbered breadth first with I = ⌈(N − 1)/k⌉ inner members, and
//! colour c's begins at member ⌊c·N/k⌋. Wherever k·I ≤ N the inner members of the colours are disjoint: 4 colours on 8
//! members have (0,1), (2,3), (4,5), (6,7). Elsewhere the trees are the same, rotated the same way, and neighbouring
//! colours share one inner member at most (as long as there are no more colours than members). Where they are disjoint, a
//! member sends 2n elements at most: a share up each tree, and k shares down the one tree in which it is an inner member.
//! A chunk takes 2·(⌈log_k((k − 1)·N + 1)⌉ − 1) rounds, hidden by the chunks that follow; colours do not wait for each
//! other.

/// A member's place in a k-ary tree numbered breadth first from `first` on.
#[derive(Debug, Clone)]
pub(super) struct Kary {
    position: u32,
    members: u32,
    arity: u32,
    first: u32,
}

impl Kary {
    /// The place of `member` in a tree with `arity` children a member, rooted at `first`.
    pub(super) fn new(member: u32, members: u32, arity: u32, first: u32) -> Kary {
        let position = if member >= first { member - first } else { member + (members - first) };
        Kary { position, members, arity, first }
    }

    /// The root of a colour: ⌊colour·members/colors⌋.
    pub(super) fn root_of(color: u32, colors: u32, members: u32) -> u32 {
        (u64::from(color) * u64::from(members) / u64::from(colors)) as u32
    }

    /// Rounds of one way: the depth of the last position.
    pub(super) fn depth(members: u32, arity: u32) -> u32 {
        if arity == 1 {
            return members - 1;
        }
        let (mut last, mut depth) = (members - 1, 0);
        while last > 0 {
            (last, depth) = ((last - 1) / arity, depth + 1);
        }
        depth
    }

    /// The member at a position.
    fn member(&self, position: u64) -> u32 {
        ((position + u64::from(self.first)) % u64::from(self.members)) as u32
    }

    /// Position of the first child, whether or not there is one.
    fn below(&self) -> u64 {
        u64::from(self.position) * u64::from(self.arity) + 1
    }

    pub(super) fn parent(&self) -> Option<u32> {
        (self.position != 0).then(|| self.member(u64::from((self.position - 1) / self.arity)))
    }

    pub(super) fn children(&self) -> u32 {
        u64::from(self.members).saturating_sub(self.below()).min(u64::from(self.arity)) as u32
    }

    /// The last position first, whose subtree is the shallowest.
    pub(super) fn child(&self, index: u32) -> u32 {
        self.member(self.below() + u64::from(self.children() - 1 - index))
    }
}
