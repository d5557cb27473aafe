//! `Draft`: holds fields of a class that progressive filling reads and writes, separate so that many of them fit in the
//! cache.

/// Tight resources of a class that are stored in the draft.
const AT_HAND: usize = 4;

/// An attached class while its component is solved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Draft {
    /// The speed that the solver has found for the present instant.
    pub(super) speed: f64,
    /// Its use of each of its resources per unit of speed, if it is even.
    pub(super) per_speed: f64,
    /// As in the group.
    pub(super) attached: u32,
    pub(super) even: bool,
    /// Whether a repair reaches it.
    pub(super) reached: bool,
    /// Whether it is about to join what is kept.
    pub(super) joins: bool,
    /// The resource whose level it has, or none: its bound.
    pub(super) bottleneck: u32,
    /// The filling that has last given it a speed.
    pub(super) turn: u32,
    /// How many of its resources are tight, and the first of them.
    pub(super) tight: u8,
    pub(super) first: [u32; AT_HAND],
}

impl Draft {
    /// Its tight resources, unless there are too many for the draft.
    pub(super) fn tight(&self) -> Option<&[u32]> {
        self.first.get(..usize::from(self.tight))
    }
}
