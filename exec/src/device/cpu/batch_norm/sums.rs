//! Computes batch normalisation's sums over sixteen interleaved planes in registers; each plane's terms are added in
//! the order of [`crate::simd::sum_pairs`]. Each fast loop has an obvious equivalent beside it.

use crate::simd::{has_sixteens, sums_of_sixteen};
use crate::workspace::Sixteen;

/// Σ x of each plane, or, given a mean, Σ (x − mean)².
pub(super) fn sums(xs: &[Sixteen], mean: Option<f32>) -> [f32; 16] {
    #[cfg(target_arch = "x86_64")]
    if has_sixteens() {
        // SAFETY: the processor has AVX-512.
        return unsafe { avx512::sums(xs, mean) };
    }
    sums_slowly(xs, mean)
}

fn sums_slowly(xs: &[Sixteen], mean: Option<f32>) -> [f32; 16] {
    let term = |x: f32| mean.map_or(x, |mean| (x - mean) * (x - mean));
    let [sums] = sums_of_sixteen(xs.len(), |place, image| [term(xs[place].0[image])]);
    sums
}

/// Σ d · (x − mean) and Σ d of each plane; with a scale and a shift d is 0 where (x − mean) · scale + shift was rectified.
pub(super) fn slopes(ds: &[Sixteen], xs: &[Sixteen], mean: f32, rectified: Option<(f32, f32)>) -> [[f32; 16]; 2] {
    assert!(ds.len() == xs.len(), "planes of one size");
    #[cfg(target_arch = "x86_64")]
    if has_sixteens() {
        // SAFETY: the processor has AVX-512, and the lengths were asserted.
        return unsafe { avx512::slopes(ds, xs, mean, rectified) };
    }
    slopes_slowly(ds, xs, mean, rectified)
}

fn slopes_slowly(ds: &[Sixteen], xs: &[Sixteen], mean: f32, rectified: Option<(f32, f32)>) -> [[f32; 16]; 2] {
    sums_of_sixteen(ds.len(), |place, image| {
        let distance = xs[place].0[image] - mean;
        let falls = rectified.is_some_and(|(scale, shift)| distance * scale + shift <= 0.0);
        let d = if falls { 0.0 } else { ds[place].0[image] };
        [d * distance, d]
    })
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    //! The loops in registers; their callers have asserted all lengths.

    use std::arch::x86_64::{
        __m512, _CMP_NLE_UQ, _mm512_add_ps, _mm512_cmp_ps_mask, _mm512_maskz_mov_ps, _mm512_mul_ps, _mm512_set1_ps,
        _mm512_setzero_ps, _mm512_store_ps, _mm512_sub_ps,
    };

    use super::super::super::register_tiles::avx512::load;
    use super::Sixteen;
    use crate::simd::LANES;

    /// Partial sums kept in registers at once.
    const HELD: usize = 8;

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn add<const N: usize>(sums: &mut [__m512; N], terms: [__m512; N]) {
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum = _mm512_add_ps(*sum, term);
        }
    }

    /// The N sums over `places` of `term`: place p goes to partial sum p mod [`LANES`], and these are added in pairs.
    /// Eight of them at a time are kept in registers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn in_lanes<const N: usize>(places: usize, term: impl Fn(usize) -> [__m512; N]) -> [[f32; 16]; N] {
        let mut lanes = [[_mm512_setzero_ps(); N]; LANES];
        for (group, lanes) in lanes.chunks_exact_mut(HELD).enumerate() {
            let mut sums = [[_mm512_setzero_ps(); N]; HELD];
            let mut place = group * HELD;
            while place + HELD <= places {
                for (at, sums) in sums.iter_mut().enumerate() {
                    add(sums, term(place + at));
                }
                place += LANES;
            }
            for (at, sums) in sums.iter_mut().enumerate().take(places.saturating_sub(place)) {
                add(sums, term(place + at));
            }
            lanes.copy_from_slice(&sums);
        }
        let mut width = LANES / 2;
        while width > 0 {
            let (first, second) = lanes.split_at_mut(width);
            for (first, second) in first.iter_mut().zip(second) {
                add(first, *second);
            }
            width /= 2;
        }
        let mut found = [Sixteen::default(); N];
        for (found, sum) in found.iter_mut().zip(lanes[0]) {
            // SAFETY: `Sixteen` has sixteen elements and is aligned to 64 bytes.
            unsafe { _mm512_store_ps(found.0.as_mut_ptr(), sum) };
        }
        found.map(|sums| sums.0)
    }

    /// # Safety
    /// The processor has AVX-512.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn sums(xs: &[Sixteen], mean: Option<f32>) -> [f32; 16] {
        // SAFETY: places are below the length.
        let of = |place| unsafe { load(xs.as_ptr(), place) };
        let [sums] = match mean {
            None => in_lanes(xs.len(), |place| [of(place)]),
            Some(mean) => {
                let mean = _mm512_set1_ps(mean);
                in_lanes(xs.len(), |place| {
                    let distance = _mm512_sub_ps(of(place), mean);
                    [_mm512_mul_ps(distance, distance)]
                })
            }
        };
        sums
    }

    /// # Safety
    /// The lengths that [`super::slopes`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn slopes(
        ds: &[Sixteen],
        xs: &[Sixteen],
        mean: f32,
        rectified: Option<(f32, f32)>,
    ) -> [[f32; 16]; 2] {
        let mean = _mm512_set1_ps(mean);
        // SAFETY: places are below both lengths.
        let both = |place: usize| unsafe { (load(ds.as_ptr(), place), _mm512_sub_ps(load(xs.as_ptr(), place), mean)) };
        match rectified {
            None => in_lanes(xs.len(), |place| {
                let (d, distance) = both(place);
                [_mm512_mul_ps(d, distance), d]
            }),
            Some((scale, shift)) => {
                let (scale, shift) = (_mm512_set1_ps(scale), _mm512_set1_ps(shift));
                in_lanes(xs.len(), |place| {
                    let (d, distance) = both(place);
                    let y = _mm512_add_ps(_mm512_mul_ps(distance, scale), shift);
                    let passes = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(y, _mm512_setzero_ps());
                    let d = _mm512_maskz_mov_ps(passes, d);
                    [_mm512_mul_ps(d, distance), d]
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits<const N: usize>(values: [[f32; 16]; N]) -> Vec<u32> {
        values.as_flattened().iter().map(|value| value.to_bits()).collect()
    }

    /// Planes shorter and longer than the number of partial sums, with a remainder that ends in every group of them.
    #[test]
    fn fast_and_slow_loops_agree() {
        for places in [0, 1, 5, 8, 13, 31, 32, 33, 70, 100] {
            let numbers = |seed: usize| -> Vec<Sixteen> {
                let value = |at: usize| ((at * 37 + seed * 11) % 23) as f32 / 7.0 - 1.5;
                (0..places).map(|at| Sixteen(std::array::from_fn(|image| value(at * 16 + image)))).collect()
            };
            let (xs, ds) = (numbers(1), numbers(2));
            for mean in [None, Some(0.3)] {
                assert_eq!(bits([sums(&xs, mean)]), bits([sums_slowly(&xs, mean)]), "{places} places");
            }
            for rectified in [None, Some((-0.7, 0.2))] {
                let slow = slopes_slowly(&ds, &xs, 0.3, rectified);
                assert_eq!(bits(slopes(&ds, &xs, 0.3, rectified)), bits(slow), "{places} places");
            }
        }
    }
}
