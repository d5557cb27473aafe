//! Cuts ranges out of the memory of an exchange: one region, or several concatenated.

use std::ops::Range;
use std::sync::Arc;

use crate::region::{Region, RegionMut};

/// A region to read, or to write.
pub(crate) trait Cut: Copy {
    /// Number of elements.
    fn elements(self) -> usize;

    /// The elements in `range`.
    fn range(self, range: Range<usize>) -> Self;
}

impl Cut for Region {
    fn elements(self) -> usize {
        self.len()
    }

    fn range(self, range: Range<usize>) -> Region {
        self.part(range)
    }
}

impl Cut for RegionMut {
    fn elements(self) -> usize {
        self.len()
    }

    fn range(self, range: Range<usize>) -> RegionMut {
        self.part(range)
    }
}

/// Memory of consecutively numbered elements.
#[derive(Debug, Clone)]
pub(crate) enum Regions<R> {
    /// One region.
    One(R),
    /// Regions at arbitrary addresses, each with the number of elements before it.
    Several(Arc<[(usize, R)]>),
}

impl<R: Cut> Regions<R> {
    /// A single region.
    pub(crate) fn one(region: R) -> Regions<R> {
        Regions::One(region)
    }

    /// These regions, concatenated.
    pub(crate) fn of(regions: Vec<R>) -> Regions<R> {
        let mut before = 0;
        let counted = regions.into_iter().map(|region| {
            before += region.elements();
            (before - region.elements(), region)
        });
        Regions::Several(counted.collect())
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            Regions::One(region) => region.elements(),
            Regions::Several(parts) => parts.last().map_or(0, |(before, region)| before + region.elements()),
        }
    }

    /// The parts in `range`: exactly one of a single region, otherwise one for each region that the range overlaps.
    pub(crate) fn cut(&self, range: &Range<usize>) -> impl Iterator<Item = R> {
        let (parts, whole): (&[(usize, R)], Option<R>) = match self {
            Regions::One(region) => (&[], Some(region.range(range.clone()))),
            Regions::Several(parts) => (parts, None),
        };
        let first = parts.partition_point(|(before, region)| before + region.elements() <= range.start);
        let met = parts[first..].iter().take_while(|(before, _)| *before < range.end);
        let met = met.filter_map(|(before, region)| {
            let (start, end) = (range.start.max(*before), range.end.min(before + region.elements()));
            (start < end).then(|| region.range(start - before..end - before))
        });
        whole.into_iter().chain(met)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arena::Arena;

    proptest! {
        /// Concatenated regions are equivalent to one region: any range gives the same elements, with no empty or
        /// repeated part.
        #[test]
        fn concatenated_regions_equal_one_region(
            lengths in prop::collection::vec(0usize..5, 0..8), start in 0usize..20, length in 0usize..20,
        ) {
            let all: usize = lengths.iter().sum();
            let range = start.min(all)..(start + length).min(all);
            let arena = Arena::new((0..all).map(|number| number as f32).collect());
            let mut end = 0;
            let regions = lengths.iter().map(|length| {
                end += length;
                arena.region_to_read(end - length..end)
            });
            let parts = Regions::of(regions.collect());
            prop_assert_eq!(parts.len(), all);
            let values = |region: Region| {
                let copy = Arena::new(vec![0.0f32; region.len()]);
                copy.region(0..region.len()).combine(region, crate::region::Combine::Copy);
                // SAFETY: nothing writes meanwhile.
                unsafe { copy.to_vec() }
            };
            let cut: Vec<Vec<f32>> = parts.cut(&range).map(values).collect();
            prop_assert!(cut.iter().all(|part| !part.is_empty()));
            prop_assert_eq!(cut.concat(), range.clone().map(|number| number as f32).collect::<Vec<_>>());
            let whole: Vec<Vec<f32>> = Regions::one(arena.region_to_read(0..all)).cut(&range).map(values).collect();
            prop_assert_eq!(whole, vec![cut.concat()]);
        }
    }
}
