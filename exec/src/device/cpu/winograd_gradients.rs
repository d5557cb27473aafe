//! Transforms one tile of N images for the gradient of 3 × 3 filters, in registers, a row of both transforms at a
//! time, and sums the products over tiles and images.
//!
//! From Y = Aᵀ (U ⊙ V) A follows dU = A dY Aᵀ ⊙ V, where V = Bᵀ d B as in [`super::winograd_tiles`] and the rows of A
//! are 1 0, 1 1, 1 −1, 0 −1; then dg = Gᵀ dU G. Row y of V needs two rows of inputs and row y of A dY Aᵀ two rows of
//! gradients, so four passes, one for each y, transform nothing twice and need a quarter of the memory. The tests have
//! the obvious loops.

use super::register_tiles::{CHANNELS, load, parts, store};
use super::winograd_tiles::{Tile, input};
use crate::simd::{Register, in_registers};

/// Rows of positions in a transformed tile, and positions in a row.
pub(crate) const ROWS: usize = 4;

/// Calls a kernel with the row as a constant.
macro_rules! with_row {
    ($row:expr, $kernel:ident($($argument:expr),*)) => {
        match $row {
            0 => in_registers!($kernel[0, 0, 0]($($argument),*)),
            1 => in_registers!($kernel[1, 1, 1]($($argument),*)),
            2 => in_registers!($kernel[2, 2, 2]($($argument),*)),
            _ => in_registers!($kernel[3, 3, 3]($($argument),*)),
        }
    };
}

fn check<const N: usize>(plane: &[[f32; N]], tile: &Tile, row: usize, target: &[[f32; N]], step: usize) {
    let fits = plane.len() == tile.plane() && (ROWS - 1) * step < target.len();
    assert!(fits && row < ROWS, "a tile of this plane");
}

/// `target[x · step]` = (Bᵀ d B)[row][x] of the inputs d under `tile`.
pub(crate) fn input_row<const N: usize>(
    plane: &[[f32; N]],
    tile: &Tile,
    row: usize,
    target: &mut [[f32; N]],
    step: usize,
) {
    check(plane, tile, row, target, step);
    with_row!(row, input_row_in(plane, tile, target, step));
}

/// `target[x · step]` = (A d Aᵀ)[row][x] of the gradients d of the outputs of `tile`.
pub(crate) fn gradient_row<const N: usize>(
    plane: &[[f32; N]],
    tile: &Tile,
    row: usize,
    target: &mut [[f32; N]],
    step: usize,
) {
    check(plane, tile, row, target, step);
    with_row!(row, gradient_row_in(plane, tile, target, step));
}

/// `sums[o · 4 + c] += Σ_t,image gradients[t][o] · inputs[t][c]` for four output and four input channels.
pub(crate) fn add_products<const N: usize>(inputs: &[[f32; N]], gradients: &[[f32; N]], sums: &mut [f32]) {
    let fit = inputs.len() == gradients.len() && inputs.len().is_multiple_of(CHANNELS);
    assert!(fit && sums.len() == CHANNELS * CHANNELS, "four channels of equally many tiles");
    in_registers!(add_products_in[16, 8, 4](inputs, gradients, sums));
}

/// Row `ROW` of Bᵀ times d.
#[inline(always)]
fn of_four<R: Register, const ROW: usize>([a, b, c, d]: [R; 4]) -> R {
    match ROW {
        0 => a.sub(c),
        1 => b.add(c),
        2 => c.sub(b),
        _ => b.sub(d),
    }
}

/// Row `ROW` of A times d.
#[inline(always)]
fn of_two<R: Register, const ROW: usize>([a, b]: [R; 2]) -> R {
    match ROW {
        0 => a,
        1 => a.add(b),
        2 => a.sub(b),
        _ => R::splat(-0.0).sub(b),
    }
}

/// # Safety
/// 3 · step is inside `target`, and `part` as in [`store`].
#[inline(always)]
unsafe fn store_row<R: Register, const N: usize>(values: [R; ROWS], target: &mut [[f32; N]], step: usize, part: usize) {
    for (x, value) in values.into_iter().enumerate() {
        // SAFETY: as the caller promises.
        unsafe { store(value, target.as_mut_ptr(), x * step, part) };
    }
}

/// # Safety
/// The lengths that [`input_row`] asserts.
#[inline(always)]
unsafe fn input_row_in<R: Register, const N: usize, const ROW: usize>(
    plane: &[[f32; N]],
    tile: &Tile,
    target: &mut [[f32; N]],
    step: usize,
) {
    for part in parts::<R, N>() {
        // Loops instead of closures, which the compiler may leave as calls.
        let mut columns = [R::splat(0.0); 4];
        for (x, column) in columns.iter_mut().enumerate() {
            let mut d = [R::splat(0.0); 4];
            for (y, d) in d.iter_mut().enumerate() {
                // SAFETY: the plane is the tile's; inputs that a row does not need are not loaded.
                *d = unsafe { input(plane.as_ptr(), tile, y, x, part) };
            }
            *column = of_four::<R, ROW>(d);
        }
        let row =
            [of_four::<R, 0>(columns), of_four::<R, 1>(columns), of_four::<R, 2>(columns), of_four::<R, 3>(columns)];
        // SAFETY: 3 · step < target.len().
        unsafe { store_row(row, target, step, part) };
    }
}

/// # Safety
/// The lengths that [`gradient_row`] asserts.
#[inline(always)]
unsafe fn gradient_row_in<R: Register, const N: usize, const ROW: usize>(
    plane: &[[f32; N]],
    tile: &Tile,
    target: &mut [[f32; N]],
    step: usize,
) {
    let starts = tile.outputs();
    for part in parts::<R, N>() {
        let mut columns = [R::splat(0.0); 2];
        for (x, column) in columns.iter_mut().enumerate() {
            // SAFETY: the outputs of a tile are inside its plane.
            let d = unsafe { [load(plane.as_ptr(), starts[0] + x, part), load(plane.as_ptr(), starts[1] + x, part)] };
            *column = of_two::<R, ROW>(d);
        }
        let row = [of_two::<R, 0>(columns), of_two::<R, 1>(columns), of_two::<R, 2>(columns), of_two::<R, 3>(columns)];
        // SAFETY: 3 · step < target.len().
        unsafe { store_row(row, target, step, part) };
    }
}

/// `B`, the registers' width, products at a time.
///
/// # Safety
/// The lengths that [`add_products`] asserts.
#[inline(always)]
unsafe fn add_products_in<R: Register, const N: usize, const B: usize>(
    inputs: &[[f32; N]],
    gradients: &[[f32; N]],
    sums: &mut [f32],
) {
    for (first, sums) in (0..CHANNELS).step_by(B / CHANNELS).zip(sums.chunks_exact_mut(B)) {
        let mut total = R::splat(0.0);
        for part in parts::<R, N>() {
            let mut products = [R::splat(0.0); B];
            // SAFETY: both have four lines for each tile.
            unsafe {
                for tile in (0..inputs.len()).step_by(CHANNELS) {
                    let mut x = [R::splat(0.0); CHANNELS];
                    for (c, x) in x.iter_mut().enumerate() {
                        *x = load(inputs.as_ptr(), tile + c, part);
                    }
                    for o in 0..B / CHANNELS {
                        let d: R = load(gradients.as_ptr(), tile + first + o, part);
                        for c in 0..CHANNELS {
                            products[o * CHANNELS + c] = d.mul_add(x[c], products[o * CHANNELS + c]);
                        }
                    }
                }
            }
            // Sums over a register each are one sum of the columns.
            R::transpose(&mut products);
            for image in products {
                total = total.add(image);
            }
        }
        // SAFETY: a chunk has as many elements as a register.
        unsafe { R::load_first(sums.as_ptr(), B).add(total).store_first(sums.as_mut_ptr(), B) };
    }
}

#[cfg(test)]
mod tests {
    use std::array::from_fn;

    use super::super::layout::for_each_group;
    use super::super::register_tiles::tests::{bits, numbers};
    use super::super::winograd_tiles::tests::{minus, plus};
    use super::*;
    use crate::simd::mul_add;

    fn input_row_slowly<const N: usize>(
        plane: &[[f32; N]],
        tile: &Tile,
        row: usize,
        target: &mut [[f32; N]],
        step: usize,
    ) {
        let four = |d: [[f32; N]; 4]| [minus(d[0], d[2]), plus(d[1], d[2]), minus(d[2], d[1]), minus(d[1], d[3])];
        let found = four(from_fn(|x| four(from_fn(|y| tile.value(plane, y, x)))[row]));
        (0..ROWS).for_each(|x| target[x * step] = found[x]);
    }

    fn gradient_row_slowly<const N: usize>(
        plane: &[[f32; N]],
        tile: &Tile,
        row: usize,
        target: &mut [[f32; N]],
        step: usize,
    ) {
        let four = |d: [[f32; N]; 2]| [d[0], plus(d[0], d[1]), minus(d[0], d[1]), minus([-0.0; N], d[1])];
        let starts = tile.outputs();
        let found = four(from_fn(|x| four(starts.map(|start| plane[start + x]))[row]));
        (0..ROWS).for_each(|x| target[x * step] = found[x]);
    }

    fn add_products_slowly<const N: usize>(inputs: &[[f32; N]], gradients: &[[f32; N]], sums: &mut [f32]) {
        for (pair, sum) in sums.iter_mut().enumerate() {
            let (o, c) = (pair / CHANNELS, pair % CHANNELS);
            let tiles = gradients.chunks_exact(CHANNELS).zip(inputs.chunks_exact(CHANNELS));
            let image = |image: usize| tiles.clone().fold(0.0f32, |sum, (d, x)| mul_add(d[o][image], x[c][image], sum));
            *sum += (0..N).map(image).sum::<f32>();
        }
    }

    /// Every row of every tile of a plane, to the bit; sums of N images too, since both add them from the first
    /// to the last.
    fn agree<const N: usize>() {
        let (size, step) = ((6, 8), 3);
        let [mut fast, mut slow] = [numbers::<N>(4 * step, 1), numbers::<N>(4 * step, 1)];
        for (row, tile) in (0..ROWS * 12).map(|at| (at / 12, at % 12)) {
            let tile = Tile::at((tile / 4 * 2, tile % 4 * 2), size);
            input_row(&numbers::<N>(48, 2), &tile, row, &mut fast, step);
            input_row_slowly(&numbers::<N>(48, 2), &tile, row, &mut slow, step);
            assert_eq!(bits(&fast), bits(&slow), "inputs, row {row} of {tile:?}");
            gradient_row(&numbers::<N>(48, 3), &tile, row, &mut fast, step);
            gradient_row_slowly(&numbers::<N>(48, 3), &tile, row, &mut slow, step);
            assert_eq!(bits(&fast), bits(&slow), "gradients, row {row} of {tile:?}");
        }
        for tiles in [0, 1, 5] {
            let (inputs, gradients) = (numbers::<N>(4 * tiles, 4), numbers::<N>(4 * tiles, 5));
            let [mut fast, mut slow] = [[0.25; 16]; 2];
            add_products(&inputs, &gradients, &mut fast);
            add_products_slowly(&inputs, &gradients, &mut slow);
            assert_eq!(fast.map(f32::to_bits), slow.map(f32::to_bits), "{tiles} tiles");
        }
    }

    #[test]
    fn fast_and_slow_loops_agree() {
        for_each_group!(agree::<N>());
    }
}
