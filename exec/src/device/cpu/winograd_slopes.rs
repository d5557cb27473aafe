//! Transforms one tile of sixteen images for the gradient of 3 × 3 filters, in registers, a row of both transforms at a
//! time, and sums the products over tiles and images.
//!
//! From Y = Aᵀ (U ⊙ V) A follows dU = A dY Aᵀ ⊙ V, where V = Bᵀ d B as in [`super::winograd_tiles`] and the rows of A
//! are 1 0, 1 1, 1 −1, 0 −1; then dg = Gᵀ dU G. Row y of V needs two rows of inputs and row y of A dY Aᵀ two rows of
//! gradients, so four passes, one for each y, transform nothing twice and need a quarter of the memory. The tests have
//! the obvious loops.

use super::register_tiles::CHANNELS;
use super::winograd_tiles::Tile;
use crate::simd::has_sixteens;
use crate::workspace::Sixteen;

/// Rows of positions in a transformed tile, and positions in a row.
pub(crate) const ROWS: usize = 4;

/// `target[x · step]` = (Bᵀ d B)[row][x] of the inputs d under `tile`.
pub(crate) fn input_row(plane: &[Sixteen], tile: &Tile, row: usize, target: &mut [Sixteen], step: usize) {
    assert!(
        has_sixteens() && plane.len() == tile.plane() && row < ROWS && (ROWS - 1) * step < target.len(),
        "a tile of this plane"
    );
    let rows = [avx512::input_row::<0>, avx512::input_row::<1>, avx512::input_row::<2>, avx512::input_row::<3>];
    // SAFETY: the processor has AVX-512, and the lengths were asserted.
    unsafe { rows[row](plane, tile, target, step) };
}

/// `target[x · step]` = (A d Aᵀ)[row][x] of the gradients d of the outputs of `tile`.
pub(crate) fn gradient_row(plane: &[Sixteen], tile: &Tile, row: usize, target: &mut [Sixteen], step: usize) {
    assert!(
        has_sixteens() && plane.len() == tile.plane() && row < ROWS && (ROWS - 1) * step < target.len(),
        "a tile of this plane"
    );
    let rows =
        [avx512::gradient_row::<0>, avx512::gradient_row::<1>, avx512::gradient_row::<2>, avx512::gradient_row::<3>];
    // SAFETY: the processor has AVX-512, and the lengths were asserted.
    unsafe { rows[row](plane, tile, target, step) };
}

/// `sums[o · 4 + c] += Σ_t,image gradients[t][o] · inputs[t][c]` for four output and four input channels.
pub(crate) fn add_products(inputs: &[Sixteen], gradients: &[Sixteen], sums: &mut [f32]) {
    let fit = has_sixteens() && inputs.len() == gradients.len() && inputs.len().is_multiple_of(CHANNELS);
    assert!(fit && sums.len() == CHANNELS * CHANNELS, "four channels of equally many tiles");
    // SAFETY: the processor has AVX-512, and the lengths were asserted.
    unsafe { avx512::add_products(inputs, gradients, sums) };
}

mod avx512 {
    //! The same in registers; the callers have asserted all lengths.

    use std::arch::x86_64::{
        __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_store_ps,
        _mm512_storeu_ps, _mm512_sub_ps,
    };
    use std::array::from_fn;

    use super::super::register_tiles::avx512::load;
    use super::super::transpose::avx512::transposed;
    use super::super::winograd_tiles::avx512::input;
    use super::{CHANNELS, ROWS, Sixteen, Tile};

    /// Row `ROW` of Bᵀ times d.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn of_four<const ROW: usize>([a, b, c, d]: [__m512; 4]) -> __m512 {
        match ROW {
            0 => _mm512_sub_ps(a, c),
            1 => _mm512_add_ps(b, c),
            2 => _mm512_sub_ps(c, b),
            _ => _mm512_sub_ps(b, d),
        }
    }

    /// Row `ROW` of A times d.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn of_two<const ROW: usize>([a, b]: [__m512; 2]) -> __m512 {
        match ROW {
            0 => a,
            1 => _mm512_add_ps(a, b),
            2 => _mm512_sub_ps(a, b),
            _ => _mm512_sub_ps(_mm512_set1_ps(-0.0), b),
        }
    }

    /// # Safety
    /// 3 · step is inside `target`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    unsafe fn store(values: [__m512; ROWS], target: &mut [Sixteen], step: usize) {
        for (x, value) in values.into_iter().enumerate() {
            // SAFETY: as the caller promises; `Sixteen` is aligned to 64 bytes.
            unsafe { _mm512_store_ps(target.as_mut_ptr().add(x * step).cast(), value) };
        }
    }

    /// # Safety
    /// The lengths that [`super::input_row`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn input_row<const ROW: usize>(
        plane: &[Sixteen],
        tile: &Tile,
        target: &mut [Sixteen],
        step: usize,
    ) {
        // Loops in place of closures, which the compiler leaves as calls here.
        let mut columns = [_mm512_setzero_ps(); 4];
        for (x, column) in columns.iter_mut().enumerate() {
            let mut d = [_mm512_setzero_ps(); 4];
            for (y, d) in d.iter_mut().enumerate() {
                // SAFETY: the plane is the tile's; inputs that a row does not need are not loaded.
                *d = unsafe { input(plane.as_ptr(), tile, y, x) };
            }
            *column = of_four::<ROW>(d);
        }
        let row = [of_four::<0>(columns), of_four::<1>(columns), of_four::<2>(columns), of_four::<3>(columns)];
        // SAFETY: 3 · step < target.len().
        unsafe { store(row, target, step) };
    }

    /// # Safety
    /// The lengths that [`super::gradient_row`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn gradient_row<const ROW: usize>(
        plane: &[Sixteen],
        tile: &Tile,
        target: &mut [Sixteen],
        step: usize,
    ) {
        let starts = tile.outputs();
        // SAFETY: the outputs of a tile are inside its plane.
        let at = |start: usize, x: usize| unsafe { load(plane.as_ptr(), start + x) };
        let columns: [__m512; 2] = from_fn(|x| of_two::<ROW>([at(starts[0], x), at(starts[1], x)]));
        let row = [of_two::<0>(columns), of_two::<1>(columns), of_two::<2>(columns), of_two::<3>(columns)];
        // SAFETY: 3 · step < target.len().
        unsafe { store(row, target, step) };
    }

    /// # Safety
    /// The lengths that [`super::add_products`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn add_products(inputs: &[Sixteen], gradients: &[Sixteen], sums: &mut [f32]) {
        let mut products = [_mm512_setzero_ps(); CHANNELS * CHANNELS];
        // SAFETY: both have four lines for each tile, sums sixteen elements; `Sixteen` is aligned to 64 bytes.
        unsafe {
            for tile in (0..inputs.len()).step_by(CHANNELS) {
                let x: [__m512; CHANNELS] = from_fn(|c| load(inputs.as_ptr(), tile + c));
                for o in 0..CHANNELS {
                    let d = load(gradients.as_ptr(), tile + o);
                    for c in 0..CHANNELS {
                        products[o * CHANNELS + c] = _mm512_fmadd_ps(d, x[c], products[o * CHANNELS + c]);
                    }
                }
            }
            // Sixteen sums over a register each are one sum of the sixteen columns.
            let images = transposed(products);
            let mut sum = _mm512_loadu_ps(sums.as_ptr());
            let mut total = _mm512_setzero_ps();
            for image in images {
                total = _mm512_add_ps(total, image);
            }
            sum = _mm512_add_ps(sum, total);
            _mm512_storeu_ps(sums.as_mut_ptr(), sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::array::from_fn;

    use super::super::register_tiles::tests::{bits, numbers};
    use super::super::winograd_tiles::tests::{minus, plus};
    use super::*;

    fn input_row_slowly(plane: &[Sixteen], tile: &Tile, row: usize, target: &mut [Sixteen], step: usize) {
        let four = |d: [Sixteen; 4]| [minus(d[0], d[2]), plus(d[1], d[2]), minus(d[2], d[1]), minus(d[1], d[3])];
        let found = four(from_fn(|x| four(from_fn(|y| tile.value(plane, y, x)))[row]));
        (0..ROWS).for_each(|x| target[x * step] = found[x]);
    }

    fn gradient_row_slowly(plane: &[Sixteen], tile: &Tile, row: usize, target: &mut [Sixteen], step: usize) {
        let four = |d: [Sixteen; 2]| [d[0], plus(d[0], d[1]), minus(d[0], d[1]), minus(Sixteen([-0.0; 16]), d[1])];
        let starts = tile.outputs();
        let found = four(from_fn(|x| four(starts.map(|start| plane[start + x]))[row]));
        (0..ROWS).for_each(|x| target[x * step] = found[x]);
    }

    fn add_products_slowly(inputs: &[Sixteen], gradients: &[Sixteen], sums: &mut [f32]) {
        for (pair, sum) in sums.iter_mut().enumerate() {
            let (o, c) = (pair / CHANNELS, pair % CHANNELS);
            let tiles = gradients.chunks_exact(CHANNELS).zip(inputs.chunks_exact(CHANNELS));
            let image =
                |image: usize| tiles.clone().fold(0.0f32, |sum, (d, x)| d[o].0[image].mul_add(x[c].0[image], sum));
            *sum += (0..16).map(image).sum::<f32>();
        }
    }

    /// Every row of every tile of a plane, to the bit; sums of sixteen images too, since both add them from the first
    /// to the last.
    #[test]
    fn fast_and_slow_loops_agree() {
        if !has_sixteens() {
            eprintln!("left out: this processor has no AVX-512");
            return;
        }
        let (size, step) = ((6, 8), 3);
        let [mut fast, mut slow] = [numbers(4 * step, 1), numbers(4 * step, 1)];
        for (row, tile) in (0..ROWS * 12).map(|at| (at / 12, at % 12)) {
            let tile = Tile::at((tile / 4 * 2, tile % 4 * 2), size);
            input_row(&numbers(48, 2), &tile, row, &mut fast, step);
            input_row_slowly(&numbers(48, 2), &tile, row, &mut slow, step);
            assert_eq!(bits(&fast), bits(&slow), "inputs, row {row} of {tile:?}");
            gradient_row(&numbers(48, 3), &tile, row, &mut fast, step);
            gradient_row_slowly(&numbers(48, 3), &tile, row, &mut slow, step);
            assert_eq!(bits(&fast), bits(&slow), "gradients, row {row} of {tile:?}");
        }
        for tiles in [0, 1, 5] {
            let (inputs, gradients) = (numbers(4 * tiles, 4), numbers(4 * tiles, 5));
            let [mut fast, mut slow] = [[0.25; 16]; 2];
            add_products(&inputs, &gradients, &mut fast);
            add_products_slowly(&inputs, &gradients, &mut slow);
            assert_eq!(fast.map(f32::to_bits), slow.map(f32::to_bits), "{tiles} tiles");
        }
    }
}
