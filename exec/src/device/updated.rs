//! The parameters that a rank updates, and where the optimizer's state of each lies.

use std::ops::Range;

/// Ranges of the parameters whose optimizer state a rank keeps, one behind the other without gaps.
///
/// ```
/// # use lockstep_exec::device::Updated;
/// let updated = Updated::new(vec![10..20, 30..35]);
/// assert_eq!((updated.elements(), updated.place(&(12..15)), updated.place(&(30..35))), (15, 2..5, 10..15));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Updated {
    /// In ascending order, with where the state of each begins.
    ranges: Vec<(Range<usize>, usize)>,
}

impl Updated {
    /// Those ranges, in ascending order.
    pub fn new(ranges: Vec<Range<usize>>) -> Updated {
        let mut at = 0;
        let place = |range: Range<usize>| {
            let start = at;
            at += range.len();
            (range, start)
        };
        Updated { ranges: ranges.into_iter().map(place).collect() }
    }

    /// How many elements they have.
    pub fn elements(&self) -> usize {
        self.ranges.last().map_or(0, |(range, start)| start + range.len())
    }

    /// Where the state of parameters `range` lies, which belong to one of the ranges.
    pub fn place(&self, range: &Range<usize>) -> Range<usize> {
        let at = self.ranges.partition_point(|(own, _)| own.end < range.end);
        let (own, start) = &self.ranges[at];
        debug_assert!(own.start <= range.start && range.end <= own.end);
        range.start - own.start + start..range.end - own.start + start
    }

    /// The first parameters of `range` that are among them.
    pub fn within(&self, range: Range<usize>) -> Range<usize> {
        let overlap = |own: &Range<usize>| own.start.max(range.start)..own.end.min(range.end);
        let parts = self.ranges.iter().map(|(own, _)| overlap(own));
        parts.into_iter().find(|part| part.start < part.end).unwrap_or(range.start..range.start)
    }

    /// The state of all parameters, zero where it is another rank's.
    pub fn spread(&self, state: &[f32], parameters: usize) -> Vec<f32> {
        let mut all = vec![0.0; parameters];
        self.ranges.iter().for_each(|(own, start)| all[own.clone()].copy_from_slice(&state[*start..start + own.len()]));
        all
    }

    /// The rank's own part of the state of all parameters.
    pub fn own(&self, all: &[f32]) -> Vec<f32> {
        self.ranges.iter().flat_map(|(own, _)| all[own.clone()].iter().copied()).collect()
    }
}
