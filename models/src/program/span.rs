//! Defines `Span`: one run of one task.

use lockstep_topology::Time;

/// One run of one task on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The rank.
    pub rank: u32,
    /// Which task of the rank's role.
    pub task: u32,
    /// In which iteration.
    pub iteration: u32,
    /// In which repetition, for a task in a `Repeat`.
    pub repetition: u32,
    /// When all that it waited for was done.
    pub ready: Time,
    /// When it began.
    pub start: Time,
    /// When it was done.
    pub end: Time,
}
