//! Lets runs of a task use parts of a buffer in turn, so that one can begin before another's part is free.

/// Consecutive parts of a buffer that the runs of a task take in turn, counted over iterations and micro-batches.
///
/// ```
/// # use lockstep_models::Turns;
/// let turns = Turns { count: 3, elements: 10 };
/// assert_eq!([0, 1, 2, 3, 4].map(|run| turns.first(run)), [0, 10, 20, 0, 10]);
/// assert_eq!((Turns::ONE.first(7), turns.end()), (0, 20));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Turns {
    /// How many.
    pub count: u32,
    /// Elements from the beginning of each to that of the next.
    pub elements: u64,
}

impl Turns {
    /// The same elements in each run.
    pub const ONE: Turns = Turns { count: 1, elements: 0 };

    /// The distance of a run's part from the first part.
    pub fn first(self, run: u64) -> u64 {
        run % u64::from(self.count.max(1)) * self.elements
    }

    /// The distance of the last part from the first.
    pub fn end(self) -> u64 {
        u64::from(self.count.saturating_sub(1)) * self.elements
    }
}
