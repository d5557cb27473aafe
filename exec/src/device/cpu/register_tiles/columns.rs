//! Copies the elements under a filter to columns of a matrix, and adds columns to the elements that they came from.

use std::ops::Range;

use super::Offsets;
use crate::simd::wide;

impl Offsets {
    /// `columns[k][p] = images[places[p] + taps[k]]` for ranges of weights and output places.
    pub(crate) fn unfold<const N: usize>(
        &self,
        images: &[[f32; N]],
        taps: Range<usize>,
        places: Range<usize>,
        columns: &mut [[f32; N]],
    ) {
        let places = &self.places[places];
        wide!({
            for (tap, column) in self.taps[taps].iter().zip(columns.chunks_exact_mut(places.len())) {
                let images = &images[*tap as usize..];
                for (target, place) in column.iter_mut().zip(places) {
                    *target = images[*place as usize];
                }
            }
        });
    }

    /// `d_images[places[p] + taps[k] − start] += columns[k][p]` for ranges of output places and weights.
    pub(crate) fn fold<const N: usize>(
        &self,
        columns: &[[f32; N]],
        places: Range<usize>,
        taps: Range<usize>,
        d_images: &mut [[f32; N]],
        start: usize,
    ) {
        let places = &self.places[places];
        wide!({
            for (tap, column) in self.taps[taps].iter().zip(columns.chunks_exact(places.len())) {
                let d_images = &mut d_images[*tap as usize - start..];
                for (column, place) in column.iter().zip(places) {
                    let target = &mut d_images[*place as usize];
                    target.iter_mut().zip(column).for_each(|(d, value)| *d += *value);
                }
            }
        });
    }
}
