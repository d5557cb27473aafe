//! Computes batch normalisation's sums over interleaved planes in registers; each plane's terms are added in
//! the order of [`crate::simd::sum_pairs`]. Each fast loop has an obvious equivalent beside it.

use super::super::register_tiles::{load, parts, store};
use crate::simd::{LANES, Register, in_registers};

/// Σ x of each plane, or, given a mean, Σ (x − mean)².
pub(super) fn sums<const N: usize>(xs: &[[f32; N]], mean: Option<f32>) -> [f32; N] {
    in_registers!(sums_in[8, 4, 4](xs, mean))
}

/// Σ d · (x − mean) and Σ d of each plane; with a scale and a shift d is 0 where (x − mean) · scale + shift was rectified.
pub(super) fn gradients<const N: usize>(
    ds: &[[f32; N]],
    xs: &[[f32; N]],
    mean: f32,
    rectified: Option<(f32, f32)>,
) -> [[f32; N]; 2] {
    assert!(ds.len() == xs.len(), "planes of one size");
    in_registers!(gradients_in[8, 4, 4](ds, xs, mean, rectified))
}

#[inline(always)]
fn add<R: Register, const M: usize>(sums: &mut [R; M], terms: [R; M]) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum = sum.add(term);
    }
}

/// The M sums over `places` of `term(place, part)`: place p goes to partial sum p mod [`LANES`], and these are added in
/// pairs. `HELD` of them at a time are kept in registers.
#[inline(always)]
fn in_lanes<R: Register, const N: usize, const HELD: usize, const M: usize>(
    places: usize,
    term: impl Fn(usize, usize) -> [R; M],
) -> [[f32; N]; M] {
    let mut found = [[0.0; N]; M];
    for part in parts::<R, N>() {
        let mut lanes = [[R::splat(0.0); M]; LANES];
        for (group, lanes) in lanes.chunks_exact_mut(HELD).enumerate() {
            let mut sums = [[R::splat(0.0); M]; HELD];
            let mut place = group * HELD;
            while place + HELD <= places {
                for (at, sums) in sums.iter_mut().enumerate() {
                    add(sums, term(place + at, part));
                }
                place += LANES;
            }
            for (at, sums) in sums.iter_mut().enumerate().take(places.saturating_sub(place)) {
                add(sums, term(place + at, part));
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
        for (found, sum) in found.iter_mut().zip(lanes[0]) {
            // SAFETY: one line, of which this is a part.
            unsafe { store(sum, found, 0, part) };
        }
    }
    found
}

/// # Safety
/// The processor has the registers' instructions.
#[inline(always)]
unsafe fn sums_in<R: Register, const N: usize, const HELD: usize>(xs: &[[f32; N]], mean: Option<f32>) -> [f32; N] {
    let (len, xs) = (xs.len(), xs.as_ptr());
    let [sums] = match mean {
        None => in_lanes::<R, N, HELD, 1>(
            len,
            #[inline(always)]
            // SAFETY: `in_lanes` asks for places below the length.
            |place, part| unsafe { [load(xs, place, part)] },
        ),
        Some(mean) => in_lanes::<R, N, HELD, 1>(
            len,
            #[inline(always)]
            |place, part| {
                // SAFETY: as above.
                let distance = unsafe { load::<R, N>(xs, place, part) }.sub(R::splat(mean));
                [distance.mul(distance)]
            },
        ),
    };
    sums
}

/// # Safety
/// The lengths that [`gradients`] asserts.
#[inline(always)]
unsafe fn gradients_in<R: Register, const N: usize, const HELD: usize>(
    ds: &[[f32; N]],
    xs: &[[f32; N]],
    mean: f32,
    rectified: Option<(f32, f32)>,
) -> [[f32; N]; 2] {
    let (len, ds, xs) = (ds.len(), ds.as_ptr(), xs.as_ptr());
    match rectified {
        None => in_lanes::<R, N, HELD, 2>(
            len,
            #[inline(always)]
            |place, part| {
                // SAFETY: `in_lanes` asks for places below both lengths.
                let (d, x) = unsafe { (load::<R, N>(ds, place, part), load::<R, N>(xs, place, part)) };
                [d.mul(x.sub(R::splat(mean))), d]
            },
        ),
        Some((scale, shift)) => in_lanes::<R, N, HELD, 2>(
            len,
            #[inline(always)]
            |place, part| {
                // SAFETY: as above.
                let (d, x) = unsafe { (load::<R, N>(ds, place, part), load::<R, N>(xs, place, part)) };
                let distance = x.sub(R::splat(mean));
                let d = d.where_passes(distance.mul(R::splat(scale)).add(R::splat(shift)));
                [d.mul(distance), d]
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::layout::for_each_group;
    use super::*;
    use crate::simd::sums_side_by_side;

    fn sums_slowly<const N: usize>(xs: &[[f32; N]], mean: Option<f32>) -> [f32; N] {
        let term = |x: f32| mean.map_or(x, |mean| (x - mean) * (x - mean));
        let [sums] = sums_side_by_side(xs.len(), |place, image| [term(xs[place][image])]);
        sums
    }

    fn gradients_slowly<const N: usize>(
        ds: &[[f32; N]],
        xs: &[[f32; N]],
        mean: f32,
        rectified: Option<(f32, f32)>,
    ) -> [[f32; N]; 2] {
        sums_side_by_side(ds.len(), |place, image| {
            let distance = xs[place][image] - mean;
            let falls = rectified.is_some_and(|(scale, shift)| distance * scale + shift <= 0.0);
            let d = if falls { 0.0 } else { ds[place][image] };
            [d * distance, d]
        })
    }

    fn bits<const N: usize, const M: usize>(values: [[f32; N]; M]) -> Vec<u32> {
        values.as_flattened().iter().map(|value| value.to_bits()).collect()
    }

    /// Planes shorter and longer than the number of partial sums, with a remainder that ends in every group of them.
    fn agree<const N: usize>() {
        for places in [0, 1, 5, 8, 13, 31, 32, 33, 70, 100] {
            let numbers = |seed: usize| -> Vec<[f32; N]> {
                let value = |at: usize| ((at * 37 + seed * 11) % 23) as f32 / 7.0 - 1.5;
                (0..places).map(|at| std::array::from_fn(|image| value(at * N + image))).collect()
            };
            let (xs, ds) = (numbers(1), numbers(2));
            for mean in [None, Some(0.3)] {
                assert_eq!(bits([sums(&xs, mean)]), bits([sums_slowly(&xs, mean)]), "{places} places");
            }
            for rectified in [None, Some((-0.7, 0.2))] {
                let slow = gradients_slowly(&ds, &xs, 0.3, rectified);
                assert_eq!(bits(gradients(&ds, &xs, 0.3, rectified)), bits(slow), "{places} places");
            }
        }
    }

    #[test]
    fn fast_and_slow_loops_agree() {
        for_each_group!(agree::<N>());
    }
}
