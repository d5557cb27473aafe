//! One lane of one algorithm on one member, as a sequence that can be asked for any of its steps.
//!
//! A new algorithm is a file with a `Steps` and a variant here and in `method.rs`. Random access instead of a state
//! machine each: a lane is then a counter over pure arithmetic, cheap to clone and without allocation.

use super::direct::Direct;
use super::halving_doubling::HalvingDoubling;
use super::pairwise::Pairwise;
use super::recursive_doubling::RecursiveDoubling;
use super::ring::Ring;
use super::rooted::Rooted;
use super::step::Step;
use super::tree::Tree;

/// The steps of one lane on one member. Steps may be empty (`start == end`); the lane leaves those out on both sides.
pub(super) trait Steps {
    /// Number of steps, empty ones included.
    fn len(&self) -> u32;
    /// Step `k < len()`.
    fn step(&self, k: u32) -> Step;
    /// Closed form: messages sent, empty ones not counted.
    fn messages(&self) -> u64;
    /// Closed form: elements sent.
    fn elements_sent(&self) -> u64;
}

/// The algorithms.
#[derive(Debug, Clone)]
pub(super) enum Kernel {
    /// Nothing to do on this member.
    Idle,
    Ring(Ring),
    HalvingDoubling(HalvingDoubling),
    Tree(Tree),
    RecursiveDoubling(RecursiveDoubling),
    Pairwise(Pairwise),
    Direct(Direct),
    Rooted(Rooted),
}

impl Kernel {
    /// Step `k`, matched rather than called through `steps`, so that the ring's is inlined.
    pub(super) fn step(&self, k: u32) -> Step {
        match self {
            Kernel::Idle => Idle.step(k),
            Kernel::Ring(ring) => ring.step(k),
            Kernel::HalvingDoubling(halving) => halving.step(k),
            Kernel::Tree(tree) => tree.step(k),
            Kernel::RecursiveDoubling(doubling) => doubling.step(k),
            Kernel::Pairwise(pairwise) => pairwise.step(k),
            Kernel::Direct(direct) => direct.step(k),
            Kernel::Rooted(rooted) => rooted.step(k),
        }
    }

    /// Its steps, by any algorithm.
    pub(super) fn steps(&self) -> &dyn Steps {
        match self {
            Kernel::Idle => &Idle,
            Kernel::Ring(ring) => ring,
            Kernel::HalvingDoubling(halving) => halving,
            Kernel::Tree(tree) => tree,
            Kernel::RecursiveDoubling(doubling) => doubling,
            Kernel::Pairwise(pairwise) => pairwise,
            Kernel::Direct(direct) => direct,
            Kernel::Rooted(rooted) => rooted,
        }
    }
}

/// No steps.
struct Idle;

impl Steps for Idle {
    fn len(&self) -> u32 {
        0
    }

    fn step(&self, _: u32) -> Step {
        Step::new(super::Action::Send, 0, 0..0)
    }

    fn messages(&self) -> u64 {
        0
    }

    fn elements_sent(&self) -> u64 {
        0
    }
}
