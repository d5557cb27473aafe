//! Runs the three inner loops of a convolution over sixteen images at once, each with a tile of sums kept in registers.
//!
//! An AVX-512 register holds one place of sixteen images, so every filter tap is a plain load at another offset:
//! nothing is unfolded or packed (direct convolution; Georganas et al. 2018, §II, with images instead of channels as
//! the vector). The tests compare each with an obvious loop, to the bit except for the order inside a horizontal sum.

use crate::simd::has_sixteens;
use crate::workspace::Sixteen;

/// Output channels summed at once.
pub(crate) const CHANNELS: usize = 4;
/// Output places summed at once.
pub(crate) const PLACES: usize = 6;
/// Weights of a channel whose gradients are summed at once.
pub(crate) const TAPS: usize = 5;

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
        assert!(has_sixteens(), "registers of sixteen elements");
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
    pub(crate) fn products(&self, images: &[Sixteen], weights: [&[f32]; CHANNELS], products: &mut [Sixteen]) {
        assert!(images.len() >= self.reach && products.len() >= CHANNELS * self.padded(), "too few elements");
        assert!(weights.iter().all(|weights| weights.len() == self.depth()), "a weight for each tap");
        for first in (0..self.padded()).step_by(PLACES) {
            // SAFETY: the processor has AVX-512, as `new` has checked, and the lengths were asserted.
            unsafe { avx512::products(self, images, weights, products, first) };
        }
    }

    /// The gradient of weights `first..` of four output channels, at most [`TAPS`] of each:
    /// `Σ_p,image d_products[o][p] · images[places[p] + taps[k]]`.
    pub(crate) fn weights(&self, images: &[Sixteen], d_products: &[Sixteen], first: usize) -> [[f32; TAPS]; CHANNELS] {
        assert!(images.len() >= self.reach && d_products.len() >= CHANNELS * self.padded(), "too few elements");
        let taps = std::array::from_fn(|k| self.taps[(first + k).min(self.depth() - 1)]);
        // SAFETY: as above.
        unsafe { avx512::weights(self, images, d_products, taps) }
    }

    /// Adds the gradient of the images through weights `taps` of all output channels (`d_products` holds
    /// `weights.len() / depth` of them): `d_images[places[p] + taps[k]] += Σ_o weights[o][k] · d_products[o][p]`.
    /// `d_images` starts at element `start` of the images.
    pub(crate) fn images(
        &self,
        d_products: &[Sixteen],
        weights: &[f32],
        taps: std::ops::Range<usize>,
        d_images: &mut [Sixteen],
        start: usize,
    ) {
        let channels = weights.len() / self.depth();
        let least = self.taps[taps.clone()].iter().min().map_or(0, |tap| *tap as usize);
        let most = self.taps[taps.clone()].iter().max().map_or(0, |tap| *tap as usize);
        let last = self.places.iter().max().map_or(0, |place| *place as usize);
        assert!(start <= least && most + last - start < d_images.len(), "the taps stay inside the images");
        assert!(d_products.len() >= channels * self.padded() && weights.len() == channels * self.depth(), "lengths");
        for place in (0..self.padded()).step_by(PLACES) {
            for tap in taps.clone().step_by(CHANNELS) {
                let live = CHANNELS.min(taps.end - tap);
                // SAFETY: as above.
                unsafe { avx512::images(self, d_products, weights, (tap, live), place, d_images, start) };
            }
        }
    }
}

pub(crate) mod avx512 {
    //! The loops in registers; their callers have asserted all lengths.

    use std::arch::x86_64::{
        __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_load_ps, _mm512_reduce_add_ps, _mm512_set1_ps,
        _mm512_setzero_ps, _mm512_store_ps,
    };
    use std::array::from_fn;

    use super::{CHANNELS, Offsets, PLACES, Sixteen, TAPS};

    /// # Safety
    /// `place` is inside the slice that `start` points to.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(crate) unsafe fn load(start: *const Sixteen, place: usize) -> __m512 {
        // SAFETY: as the caller promises; `Sixteen` is aligned to 64 bytes.
        unsafe { _mm512_load_ps(start.add(place).cast()) }
    }

    /// # Safety
    /// The lengths that [`Offsets::products`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn products(
        offsets: &Offsets,
        images: &[Sixteen],
        weights: [&[f32]; CHANNELS],
        products: &mut [Sixteen],
        first: usize,
    ) {
        // SAFETY: place + tap < reach ≤ images.len(), k < depth, first + PLACES ≤ padded.
        unsafe {
            let bases: [*const Sixteen; PLACES] =
                from_fn(|p| images.as_ptr().add(*offsets.places.get_unchecked(first + p) as usize));
            let weights = weights.map(<[f32]>::as_ptr);
            let mut sums = [[_mm512_setzero_ps(); PLACES]; CHANNELS];
            for (k, tap) in offsets.taps.iter().enumerate() {
                let x: [__m512; PLACES] = from_fn(|p| load(bases[p], *tap as usize));
                for o in 0..CHANNELS {
                    let weight = _mm512_set1_ps(*weights[o].add(k));
                    for p in 0..PLACES {
                        sums[o][p] = _mm512_fmadd_ps(weight, x[p], sums[o][p]);
                    }
                }
            }
            for (o, sums) in sums.iter().enumerate() {
                for (p, sum) in sums.iter().enumerate() {
                    _mm512_store_ps(products.as_mut_ptr().add(o * offsets.padded() + first + p).cast(), *sum);
                }
            }
        }
    }

    /// # Safety
    /// The lengths that [`Offsets::weights`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn weights(
        offsets: &Offsets,
        images: &[Sixteen],
        d_products: &[Sixteen],
        taps: [u32; TAPS],
    ) -> [[f32; TAPS]; CHANNELS] {
        // SAFETY: place + tap < reach ≤ images.len(), p < padded.
        unsafe {
            let bases: [*const Sixteen; TAPS] = from_fn(|k| images.as_ptr().add(taps[k] as usize));
            let d_bases: [*const Sixteen; CHANNELS] = from_fn(|o| d_products.as_ptr().add(o * offsets.padded()));
            let mut sums = [[_mm512_setzero_ps(); TAPS]; CHANNELS];
            for (p, place) in offsets.places.iter().enumerate().take(offsets.count) {
                let x: [__m512; TAPS] = from_fn(|k| load(bases[k], *place as usize));
                for o in 0..CHANNELS {
                    let d = load(d_bases[o], p);
                    for k in 0..TAPS {
                        sums[o][k] = _mm512_fmadd_ps(d, x[k], sums[o][k]);
                    }
                }
            }
            // A closure over `sums` would keep them in memory.
            let mut gradients = [[0.0; TAPS]; CHANNELS];
            for o in 0..CHANNELS {
                for k in 0..TAPS {
                    gradients[o][k] = _mm512_reduce_add_ps(sums[o][k]);
                }
            }
            gradients
        }
    }

    /// # Safety
    /// The lengths that [`Offsets::images`] asserts; `live` taps from `tap` on are in its range.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn images(
        offsets: &Offsets,
        d_products: &[Sixteen],
        weights: &[f32],
        (tap, live): (usize, usize),
        place: usize,
        d_images: &mut [Sixteen],
        start: usize,
    ) {
        let depth = offsets.depth();
        // SAFETY: place + tap − start < d_images.len(), tap + live ≤ depth, place + PLACES ≤ padded.
        unsafe {
            let columns: [usize; CHANNELS] = from_fn(|k| tap + k.min(live - 1));
            let mut sums = [[_mm512_setzero_ps(); PLACES]; CHANNELS];
            let (mut row, mut d_row) = (weights.as_ptr(), d_products.as_ptr().add(place));
            for _ in 0..weights.len() / depth {
                let d: [__m512; PLACES] = from_fn(|p| load(d_row, p));
                for k in 0..CHANNELS {
                    let weight = _mm512_set1_ps(*row.add(columns[k]));
                    for p in 0..PLACES {
                        sums[k][p] = _mm512_fmadd_ps(weight, d[p], sums[k][p]);
                    }
                }
                (row, d_row) = (row.wrapping_add(depth), d_row.wrapping_add(offsets.padded()));
            }
            for (k, sums) in sums.iter().enumerate().take(live) {
                let shift = *offsets.taps.get_unchecked(tap + k) as usize - start;
                for (p, sum) in sums.iter().enumerate() {
                    let target = d_images.as_mut_ptr().add(*offsets.places.get_unchecked(place + p) as usize + shift);
                    _mm512_store_ps(target.cast(), _mm512_add_ps(load(target, 0), *sum));
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Test values that depend on `seed`.
    pub(crate) fn numbers(len: usize, seed: usize) -> Vec<Sixteen> {
        let value = |at: usize| ((at * 37 + seed * 11) % 23) as f32 / 7.0 - 1.5;
        (0..len).map(|at| Sixteen(std::array::from_fn(|image| value(at * 16 + image)))).collect()
    }

    pub(crate) fn bits(values: &[Sixteen]) -> Vec<u32> {
        values.iter().flat_map(|value| value.0.map(f32::to_bits)).collect()
    }

    impl Offsets {
        fn products_slowly(&self, images: &[Sixteen], weights: [&[f32]; CHANNELS], products: &mut [Sixteen]) {
            for (o, weights) in weights.iter().enumerate() {
                for (p, place) in self.places.iter().enumerate() {
                    products[o * self.padded() + p] = Sixteen(std::array::from_fn(|image| {
                        let value = |tap: u32| images[(place + tap) as usize].0[image];
                        weights.iter().zip(&self.taps).fold(0.0, |sum, (weight, tap)| weight.mul_add(value(*tap), sum))
                    }));
                }
            }
        }

        fn weights_slowly(
            &self,
            images: &[Sixteen],
            d_products: &[Sixteen],
            taps: [u32; TAPS],
        ) -> [[f32; TAPS]; CHANNELS] {
            std::array::from_fn(|o| {
                taps.map(|tap| {
                    let mut sums = [0.0f32; 16];
                    for (p, place) in self.places.iter().enumerate().take(self.count) {
                        let d = d_products[o * self.padded() + p].0;
                        let x = images[(place + tap) as usize].0;
                        (0..16).for_each(|image| sums[image] = d[image].mul_add(x[image], sums[image]));
                    }
                    sums.iter().sum()
                })
            })
        }

        fn images_slowly(
            &self,
            d_products: &[Sixteen],
            weights: &[f32],
            taps: std::ops::Range<usize>,
            d_images: &mut [Sixteen],
            start: usize,
        ) {
            // Blocks in the order of the fast loop, so that sums into one element have one order.
            for places in (0..self.padded()).step_by(PLACES).map(|first| first..first + PLACES) {
                for k in taps.clone() {
                    for p in places.clone() {
                        let target = &mut d_images[(self.places[p] + self.taps[k]) as usize - start].0;
                        for (image, target) in target.iter_mut().enumerate() {
                            let terms = weights.chunks_exact(self.depth()).zip(d_products.chunks_exact(self.padded()));
                            *target += terms.fold(0.0, |sum, (w, d)| w[k].mul_add(d[p].0[image], sum));
                        }
                    }
                }
            }
        }
    }

    /// Two channels of 6 × 7 under a 3 × 2 filter: 4 × 6 places, 12 weights.
    #[test]
    fn fast_and_slow_loops_agree() {
        if !has_sixteens() {
            eprintln!("left out: this processor has no AVX-512");
            return;
        }
        let places = (0..4).flat_map(|y| (0..6).map(move |x| y * 7 + x)).collect();
        let taps = (0..12).map(|k| k / 6 * 42 + k % 6 / 2 * 7 + k % 2).collect();
        let offsets = Offsets::new(places, taps);
        let (images, d_products) = (numbers(84, 1), numbers(CHANNELS * offsets.padded(), 2));
        let weights: Vec<f32> = numbers(3, 3).iter().flat_map(|value| value.0).collect();
        let rows = || std::array::from_fn(|o| &weights[o * 12..][..12]);
        let mut products = [numbers(CHANNELS * offsets.padded(), 4), numbers(CHANNELS * offsets.padded(), 5)];
        offsets.products(&images, rows(), &mut products[0]);
        offsets.products_slowly(&images, rows(), &mut products[1]);
        assert_eq!(bits(&products[0]), bits(&products[1]));
        let mut d_images = [numbers(42, 6), numbers(42, 6)];
        offsets.images(&d_products, &weights, 6..12, &mut d_images[0], 42);
        offsets.images_slowly(&d_products, &weights, 6..12, &mut d_images[1], 42);
        assert_eq!(bits(&d_images[0]), bits(&d_images[1]));
        let gradients = offsets.weights(&images, &d_products, 5);
        let slow = offsets.weights_slowly(&images, &d_products, std::array::from_fn(|k| offsets.taps[5 + k]));
        for (fast, slow) in gradients.as_flattened().iter().zip(slow.as_flattened()) {
            assert!((fast - slow).abs() <= 1e-4 * slow.abs().max(1.0), "{fast} is not {slow}");
        }
    }
}
