//! Runs the three inner loops of a convolution over N images side by side, each with a tile of sums kept in registers.
//!
//! A line holds one place of N images, so every filter tap is a plain load at another offset: nothing is unfolded or
//! packed (direct convolution; Georganas et al. 2018, §II, with images instead of channels as the vector). Registers
//! narrower than a line take its parts in turn; where there are only sixteen, a tile has half the channels. The tests
//! compare each loop with an obvious one, to the bit except for the order inside a horizontal sum.

mod columns;

use std::ops::Range;

use crate::simd::{Register, sum_in_halves};

/// Output channels summed at once.
pub(crate) const CHANNELS: usize = 4;
/// Output places of a block.
pub(crate) const PLACES: usize = 6;
/// Weights of a channel whose gradients are summed at once.
pub(crate) const TAPS: usize = 5;

/// Calls a kernel with the number of channels whose sums registers hold beside [`PLACES`]: all four in 32 registers, two
/// in 16.
macro_rules! with_channels {
    ($kernel:ident($($argument:expr),* $(,)?)) => {
        $crate::simd::in_registers!($kernel[CHANNELS, CHANNELS / 2, CHANNELS / 2]($($argument),*))
    };
}
pub(super) use with_channels;

/// The offsets of the filter's elements in the padded, interleaved images: element `places[p] + taps[k]` is under
/// weight k of the filter at output place p.
pub(crate) struct Offsets {
    /// One for each output place, padded to a multiple of [`PLACES`] with copies of the last.
    places: Vec<u32>,
    taps: Vec<u32>,
    /// The least number of elements of the images.
    reach: usize,
    /// Output places without the padding.
    count: usize,
}

impl Offsets {
    pub(crate) fn new(mut places: Vec<u32>, taps: Vec<u32>) -> Offsets {
        let largest = |values: &[u32]| values.iter().copied().max().unwrap_or(0) as usize;
        let (reach, count) = (largest(&places) + largest(&taps) + 1, places.len());
        places.resize(count.next_multiple_of(PLACES), places[count - 1]);
        Offsets { places, taps, reach, count }
    }

    /// Output places, padded.
    pub(crate) fn padded(&self) -> usize {
        self.places.len()
    }

    /// Weights of one output channel.
    pub(crate) fn depth(&self) -> usize {
        self.taps.len()
    }

    /// `products[o][p] = Σ_k weights[o][k] · images[places[p] + taps[k]]` for [`CHANNELS`] output channels.
    pub(crate) fn products<const N: usize>(
        &self,
        images: &[[f32; N]],
        weights: [&[f32]; CHANNELS],
        products: &mut [[f32; N]],
    ) {
        assert!(images.len() >= self.reach && products.len() >= CHANNELS * self.padded(), "too few elements");
        assert!(weights.iter().all(|weights| weights.len() == self.depth()), "a weight for each tap");
        with_channels!(products_in(self, images, weights, products));
    }

    /// The gradient of weights `first..` of four output channels, at most [`TAPS`] of each:
    /// `Σ_p,image d_products[o][p] · images[places[p] + taps[k]]`.
    pub(crate) fn weights<const N: usize>(
        &self,
        images: &[[f32; N]],
        d_products: &[[f32; N]],
        first: usize,
    ) -> [[f32; TAPS]; CHANNELS] {
        assert!(images.len() >= self.reach && d_products.len() >= CHANNELS * self.padded(), "too few elements");
        let taps = std::array::from_fn(|k| self.taps[(first + k).min(self.depth() - 1)]);
        with_channels!(weights_in(self, images, d_products, taps))
    }

    /// Adds the gradient of the images through weights `taps` of all output channels (`d_products` holds
    /// `weights.len() / depth` of them): `d_images[places[p] + taps[k]] += Σ_o weights[o][k] · d_products[o][p]`.
    /// `d_images` starts at element `start` of the images.
    pub(crate) fn images<const N: usize>(
        &self,
        d_products: &[[f32; N]],
        weights: &[f32],
        taps: Range<usize>,
        d_images: &mut [[f32; N]],
        start: usize,
    ) {
        let channels = weights.len() / self.depth();
        let least = self.taps[taps.clone()].iter().min().map_or(0, |tap| *tap as usize);
        let most = self.taps[taps.clone()].iter().max().map_or(0, |tap| *tap as usize);
        let last = self.places.iter().max().map_or(0, |place| *place as usize);
        assert!(start <= least && most + last - start < d_images.len(), "the taps stay inside the images");
        assert!(d_products.len() >= channels * self.padded() && weights.len() == channels * self.depth(), "lengths");
        with_channels!(images_in(self, d_products, weights, taps, d_images, start));
    }
}

/// The elements of line `place` from `part` on.
///
/// # Safety
/// `place` is inside the slice that `start` points to, and `part` is one of [`parts`].
#[inline(always)]
pub(super) unsafe fn load<R: Register, const N: usize>(start: *const [f32; N], place: usize, part: usize) -> R {
    // SAFETY: as the caller promises.
    unsafe { R::load(start.add(place).cast::<f32>().add(part)) }
}

/// Stores to the elements of line `place` from `part` on.
///
/// # Safety
/// As [`load`], and nothing else accesses them.
#[inline(always)]
pub(super) unsafe fn store<R: Register, const N: usize>(value: R, start: *mut [f32; N], place: usize, part: usize) {
    // SAFETY: as the caller promises.
    unsafe { value.store(start.add(place).cast::<f32>().add(part)) }
}

/// Adds `factors[i] · x` to `sums[i][at]` for each i: with few registers, one x at a time.
#[inline(always)]
pub(super) fn add_products<R: Register, const C: usize, const P: usize>(
    sums: &mut [[R; P]; C],
    at: usize,
    factors: &[R; C],
    x: R,
) {
    for (sums, factor) in sums.iter_mut().zip(factors) {
        sums[at] = factor.mul_add(x, sums[at]);
    }
}

/// `C` output channels at a time.
///
/// # Safety
/// The lengths that [`Offsets::products`] asserts.
#[inline(always)]
unsafe fn products_in<R: Register, const N: usize, const C: usize>(
    offsets: &Offsets,
    images: &[[f32; N]],
    weights: [&[f32]; CHANNELS],
    products: &mut [[f32; N]],
) {
    let (images, products) = (images.as_ptr(), products.as_mut_ptr());
    for first in (0..offsets.padded()).step_by(PLACES) {
        for (channel, part) in tiles::<R, N, C>() {
            // SAFETY: place + tap < reach ≤ images.len(), k < depth, first + PLACES ≤ padded.
            unsafe {
                let mut bases = [images; PLACES];
                for (p, base) in bases.iter_mut().enumerate() {
                    *base = images.add(*offsets.places.get_unchecked(first + p) as usize);
                }
                let mut sums = [[R::splat(0.0); PLACES]; C];
                for (k, tap) in offsets.taps.iter().enumerate() {
                    let mut factors = [R::splat(0.0); C];
                    for (o, factor) in factors.iter_mut().enumerate() {
                        *factor = R::splat(*weights[channel + o].get_unchecked(k));
                    }
                    for (p, base) in bases.iter().enumerate() {
                        add_products(&mut sums, p, &factors, load(*base, *tap as usize, part));
                    }
                }
                for (o, sums) in sums.iter().enumerate() {
                    for (p, sum) in sums.iter().enumerate() {
                        store(*sum, products, (channel + o) * offsets.padded() + first + p, part);
                    }
                }
            }
        }
    }
}

/// The first element of each part of a line that a register holds.
///
/// # Panics
/// Unless registers divide a line.
#[inline(always)]
pub(super) fn parts<R: Register, const N: usize>() -> impl Iterator<Item = usize> {
    assert!(N.is_multiple_of(R::WIDTH), "registers of {} elements in lines of {N}", R::WIDTH);
    (0..N).step_by(R::WIDTH)
}

/// The first of each `C` channels with each part of a line.
#[inline(always)]
pub(super) fn tiles<R: Register, const N: usize, const C: usize>() -> impl Iterator<Item = (usize, usize)> {
    (0..CHANNELS).step_by(C).flat_map(|channel| parts::<R, N>().map(move |part| (channel, part)))
}

/// `C` output channels at a time.
///
/// # Safety
/// The lengths that [`Offsets::weights`] asserts.
#[inline(always)]
unsafe fn weights_in<R: Register, const N: usize, const C: usize>(
    offsets: &Offsets,
    images: &[[f32; N]],
    d_products: &[[f32; N]],
    taps: [u32; TAPS],
) -> [[f32; TAPS]; CHANNELS] {
    let mut lines = [[[0.0; N]; TAPS]; CHANNELS];
    for (channel, part) in tiles::<R, N, C>() {
        // SAFETY: place + tap < reach ≤ images.len(), p < padded.
        unsafe {
            let mut bases = [images.as_ptr(); TAPS];
            for (base, tap) in bases.iter_mut().zip(taps) {
                *base = base.add(tap as usize);
            }
            let d_products = d_products.as_ptr().add(channel * offsets.padded());
            let mut sums = [[R::splat(0.0); TAPS]; C];
            for (p, place) in offsets.places.iter().enumerate().take(offsets.count) {
                let mut factors = [R::splat(0.0); C];
                for (o, factor) in factors.iter_mut().enumerate() {
                    *factor = load(d_products, o * offsets.padded() + p, part);
                }
                for (k, base) in bases.iter().enumerate() {
                    add_products(&mut sums, k, &factors, load(*base, *place as usize, part));
                }
            }
            for (o, sums) in sums.iter().enumerate() {
                for (k, sum) in sums.iter().enumerate() {
                    store(*sum, &raw mut lines[channel + o][k], 0, part);
                }
            }
        }
    }
    // Loops, since a closure of `map` is not compiled for these registers.
    let mut gradients = [[0.0; TAPS]; CHANNELS];
    for (gradients, lines) in gradients.iter_mut().zip(lines) {
        for (gradient, line) in gradients.iter_mut().zip(lines) {
            *gradient = sum_in_halves(line);
        }
    }
    gradients
}

/// `C` taps at a time.
///
/// # Safety
/// The lengths that [`Offsets::images`] asserts.
#[inline(always)]
unsafe fn images_in<R: Register, const N: usize, const C: usize>(
    offsets: &Offsets,
    d_products: &[[f32; N]],
    weights: &[f32],
    taps: Range<usize>,
    d_images: &mut [[f32; N]],
    start: usize,
) {
    let (depth, padded) = (offsets.depth(), offsets.padded());
    for place in (0..padded).step_by(PLACES) {
        for first in taps.clone().step_by(CHANNELS) {
            for (tap, part) in tiles::<R, N, C>().map(|(tap, part)| (first + tap, part)) {
                if tap >= taps.end {
                    break;
                }
                let live = C.min(taps.end - tap);
                // SAFETY: place + tap − start < d_images.len(), tap + live ≤ depth, place + PLACES ≤ padded.
                unsafe {
                    let mut columns = [0; C];
                    for (k, column) in columns.iter_mut().enumerate() {
                        *column = tap + k.min(live - 1);
                    }
                    let mut sums = [[R::splat(0.0); PLACES]; C];
                    let (mut row, mut d_row) = (weights.as_ptr(), d_products.as_ptr().add(place));
                    for _ in 0..weights.len() / depth {
                        let mut factors = [R::splat(0.0); C];
                        for (factor, column) in factors.iter_mut().zip(columns) {
                            *factor = R::splat(*row.add(column));
                        }
                        for p in 0..PLACES {
                            add_products(&mut sums, p, &factors, load(d_row, p, part));
                        }
                        (row, d_row) = (row.wrapping_add(depth), d_row.wrapping_add(padded));
                    }
                    for (k, sums) in sums.iter().enumerate().take(live) {
                        let shift = *offsets.taps.get_unchecked(tap + k) as usize - start;
                        for (p, sum) in sums.iter().enumerate() {
                            let target = *offsets.places.get_unchecked(place + p) as usize + shift;
                            let old: R = load(d_images.as_ptr(), target, part);
                            store(old.add(*sum), d_images.as_mut_ptr(), target, part);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::layout::for_each_group;
    use super::*;
    use crate::simd::mul_add;

    /// Test values that depend on `seed`.
    pub(crate) fn numbers<const N: usize>(len: usize, seed: usize) -> Vec<[f32; N]> {
        let value = |at: usize| ((at * 37 + seed * 11) % 23) as f32 / 7.0 - 1.5;
        (0..len).map(|at| std::array::from_fn(|image| value(at * N + image))).collect()
    }

    pub(crate) fn bits<const N: usize>(values: &[[f32; N]]) -> Vec<u32> {
        values.iter().flat_map(|value| value.map(f32::to_bits)).collect()
    }

    impl Offsets {
        fn products_slowly<const N: usize>(
            &self,
            images: &[[f32; N]],
            weights: [&[f32]; CHANNELS],
            products: &mut [[f32; N]],
        ) {
            for (o, weights) in weights.iter().enumerate() {
                for (p, place) in self.places.iter().enumerate() {
                    products[o * self.padded() + p] = std::array::from_fn(|image| {
                        let value = |tap: u32| images[(place + tap) as usize][image];
                        weights
                            .iter()
                            .zip(&self.taps)
                            .fold(0.0, |sum, (weight, tap)| mul_add(*weight, value(*tap), sum))
                    });
                }
            }
        }

        fn weights_slowly<const N: usize>(
            &self,
            images: &[[f32; N]],
            d_products: &[[f32; N]],
            taps: [u32; TAPS],
        ) -> [[f32; TAPS]; CHANNELS] {
            std::array::from_fn(|o| {
                taps.map(|tap| {
                    let mut sums = [0.0f32; N];
                    for (p, place) in self.places.iter().enumerate().take(self.count) {
                        let d = d_products[o * self.padded() + p];
                        let x = images[(place + tap) as usize];
                        (0..N).for_each(|image| sums[image] = mul_add(d[image], x[image], sums[image]));
                    }
                    sums.iter().sum()
                })
            })
        }

        fn images_slowly<const N: usize>(
            &self,
            d_products: &[[f32; N]],
            weights: &[f32],
            taps: Range<usize>,
            d_images: &mut [[f32; N]],
            start: usize,
        ) {
            // Blocks in the order of the fast loop, so that sums into one element have one order.
            for places in (0..self.padded()).step_by(PLACES).map(|first| first..first + PLACES) {
                for k in taps.clone() {
                    for p in places.clone() {
                        let target = &mut d_images[(self.places[p] + self.taps[k]) as usize - start];
                        for (image, target) in target.iter_mut().enumerate() {
                            let terms = weights.chunks_exact(self.depth()).zip(d_products.chunks_exact(self.padded()));
                            *target += terms.fold(0.0, |sum, (w, d)| mul_add(w[k], d[p][image], sum));
                        }
                    }
                }
            }
        }
    }

    /// Two channels of 6 × 7 under a 3 × 2 filter: 4 × 6 places, 12 weights.
    fn agree<const N: usize>() {
        let places = (0..4).flat_map(|y| (0..6).map(move |x| y * 7 + x)).collect();
        let taps = (0..12).map(|k| k / 6 * 42 + k % 6 / 2 * 7 + k % 2).collect();
        let offsets = Offsets::new(places, taps);
        let (images, d_products) = (numbers::<N>(84, 1), numbers::<N>(CHANNELS * offsets.padded(), 2));
        let weights: Vec<f32> = numbers::<16>(3, 3).into_flattened();
        let rows = || std::array::from_fn(|o| &weights[o * 12..][..12]);
        let mut products = [numbers::<N>(CHANNELS * offsets.padded(), 4), numbers(CHANNELS * offsets.padded(), 5)];
        offsets.products(&images, rows(), &mut products[0]);
        offsets.products_slowly(&images, rows(), &mut products[1]);
        assert_eq!(bits(&products[0]), bits(&products[1]));
        let mut d_images = [numbers::<N>(42, 6), numbers::<N>(42, 6)];
        offsets.images(&d_products, &weights, 6..12, &mut d_images[0], 42);
        offsets.images_slowly(&d_products, &weights, 6..12, &mut d_images[1], 42);
        assert_eq!(bits(&d_images[0]), bits(&d_images[1]));
        let gradients = offsets.weights(&images, &d_products, 5);
        let slow = offsets.weights_slowly(&images, &d_products, std::array::from_fn(|k| offsets.taps[5 + k]));
        for (fast, slow) in gradients.as_flattened().iter().zip(slow.as_flattened()) {
            assert!((fast - slow).abs() <= 1e-4 * slow.abs().max(1.0), "{fast} is not {slow}");
        }
    }

    #[test]
    fn fast_and_slow_loops_agree() {
        for_each_group!(agree::<N>());
    }
}
