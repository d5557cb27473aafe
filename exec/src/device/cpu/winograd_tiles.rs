//! Applies F(2 × 2, 3 × 3) to one tile of N images, in registers: both transforms, and the products over
//! channels.
//!
//! Bᵀ, for inputs: rows 1 0 −1 0, 0 1 1 0, 0 −1 1 0, 0 1 0 −1; Aᵀ, for outputs: 1 1 1 0, 0 1 −1 −1. Each is applied to
//! columns, then to rows (Lavin and Gray 2016, §4.1). The tests have the obvious loops that these must equal to the
//! bit.

use std::ops::Range;

use super::register_tiles::{CHANNELS, PLACES, add_products, load, parts, store, tiles, with_channels};
use crate::simd::{Register, in_registers};

/// Places of a transformed tile.
pub(crate) const POSITIONS: usize = 16;

/// The 4 × 4 inputs under a tile of 2 × 2 outputs: one more on each side, zero outside of the plane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile {
    /// Start of each row, and of each column in its row; outside of the plane, those of a neighbour inside.
    rows: [usize; 4],
    columns: [usize; 4],
    /// Whether the first and the last row and column are inside.
    rows_inside: [bool; 2],
    columns_inside: [bool; 2],
    /// Elements of a plane.
    plane: usize,
}

impl Tile {
    /// The tile whose first output is at `(y, x)` in planes of `(height, width)`, all four even.
    pub(crate) fn at((y, x): (usize, usize), (height, width): (usize, usize)) -> Tile {
        assert!(y + 2 <= height && x + 2 <= width, "the outputs of a tile are inside");
        Tile {
            rows: [y.saturating_sub(1), y, y + 1, (y + 2).min(height - 1)].map(|row| row * width),
            columns: [x.saturating_sub(1), x, x + 1, (x + 2).min(width - 1)],
            rows_inside: [y > 0, y + 2 < height],
            columns_inside: [x > 0, x + 2 < width],
            plane: height * width,
        }
    }

    /// Elements of a plane of its size.
    pub(crate) fn plane(&self) -> usize {
        self.plane
    }

    /// Starts of the two rows of its outputs.
    pub(crate) fn outputs(&self) -> [usize; 2] {
        [self.rows[1] + self.columns[1], self.rows[2] + self.columns[1]]
    }

    /// The place of input (y, x), and whether it is inside.
    #[inline(always)]
    pub(crate) fn place(&self, y: usize, x: usize) -> (usize, bool) {
        let inside = |at: usize, ends: [bool; 2]| (at != 0 || ends[0]) && (at != 3 || ends[1]);
        (self.rows[y] + self.columns[x], inside(y, self.rows_inside) && inside(x, self.columns_inside))
    }
}

/// Prefetches the inputs of `tile` that no tile beside or above it has.
pub(crate) fn prefetch_inputs<const N: usize>(plane: &[[f32; N]], tile: &Tile) {
    [(2, 1), (2, 2), (3, 1), (3, 2)].iter().for_each(|(y, x)| prefetch(&plane[tile.place(*y, *x).0]));
}

/// Prefetches a line into the cache.
#[inline(always)]
pub(crate) fn prefetch<const N: usize>(line: &[f32; N]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and the line exists.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// `target[p · step]` = (Bᵀ d B)ₚ of the inputs d under `tile`.
pub(crate) fn transform_input<const N: usize>(plane: &[[f32; N]], tile: &Tile, target: &mut [[f32; N]], step: usize) {
    assert!(plane.len() == tile.plane && (POSITIONS - 1) * step < target.len(), "a tile of this plane");
    in_registers!(transform_input_in(plane, tile, target, step));
}

/// The two rows of the 2 × 2 outputs Aᵀ m A from m, whose elements are `step` apart.
#[inline]
pub(crate) fn transform_output<const N: usize>(products: &[[f32; N]], step: usize, rows: [&mut [[f32; N]]; 2]) {
    assert!((POSITIONS - 1) * step < products.len());
    assert!(rows.iter().all(|row| row.len() == 2), "a tile and its outputs");
    in_registers!(transform_output_in(products, step, rows));
}

/// `products[o][t] = Σ_c filters[o][c] · inputs[c][t]` for [`CHANNELS`] output channels, [`PLACES`] tiles and a range of
/// channels; sums of a range that does not start at 0 are added to those present.
pub(crate) fn multiply<const N: usize>(
    inputs: &[[f32; N]],
    filters: &[f32],
    channels: Range<usize>,
    products: &mut [[f32; N]],
) {
    let all = filters.len() / CHANNELS;
    assert!(inputs.len() == all * PLACES && products.len() == CHANNELS * PLACES, "lengths that fit");
    assert!(channels.start <= channels.end && channels.end <= all, "a range of channels");
    with_channels!(multiply_in(inputs, filters, channels, products));
}

/// Input (y, x) of a tile, zero outside of the plane.
///
/// # Safety
/// `plane` is one of the tile's size, `part` as in [`load`].
#[inline(always)]
pub(super) unsafe fn input<R: Register, const N: usize>(
    plane: *const [f32; N],
    tile: &Tile,
    y: usize,
    x: usize,
    part: usize,
) -> R {
    let (place, inside) = tile.place(y, x);
    // SAFETY: places are inside the plane; inputs outside read their neighbours' places and are masked.
    unsafe { R::load_if(plane.add(place).cast::<f32>().add(part), inside) }
}

#[inline(always)]
fn four<R: Register>([a, b, c, d]: [R; 4]) -> [R; 4] {
    [a.sub(c), b.add(c), c.sub(b), b.sub(d)]
}

#[inline(always)]
fn two<R: Register>([a, b, c, d]: [R; 4]) -> [R; 2] {
    [a.add(b).add(c), b.sub(c).sub(d)]
}

/// # Safety
/// The lengths that [`transform_input`] asserts.
#[inline(always)]
unsafe fn transform_input_in<R: Register, const N: usize>(
    plane: &[[f32; N]],
    tile: &Tile,
    target: &mut [[f32; N]],
    step: usize,
) {
    let (plane, target) = (plane.as_ptr(), target.as_mut_ptr());
    for part in parts::<R, N>() {
        // Loops instead of closures, which the compiler may leave as calls.
        let mut columns = [[R::splat(0.0); 4]; 4];
        for (x, column) in columns.iter_mut().enumerate() {
            let mut d = [R::splat(0.0); 4];
            for (y, d) in d.iter_mut().enumerate() {
                // SAFETY: the plane is of the tile's size.
                *d = unsafe { input(plane, tile, y, x, part) };
            }
            *column = four(d);
        }
        let [a, b, c, d] = columns;
        for y in 0..4 {
            for (x, value) in four([a[y], b[y], c[y], d[y]]).into_iter().enumerate() {
                // SAFETY: 15 · step < target.len().
                unsafe { store(value, target, (4 * y + x) * step, part) };
            }
        }
    }
}

/// # Safety
/// The lengths that [`transform_output`] asserts.
#[inline(always)]
unsafe fn transform_output_in<R: Register, const N: usize>(
    products: &[[f32; N]],
    step: usize,
    rows: [&mut [[f32; N]]; 2],
) {
    let products = products.as_ptr();
    let rows = rows.map(<[[f32; N]]>::as_mut_ptr);
    for part in parts::<R, N>() {
        let mut columns = [[R::splat(0.0); 2]; 4];
        for (x, column) in columns.iter_mut().enumerate() {
            let mut m = [R::splat(0.0); 4];
            for (y, m) in m.iter_mut().enumerate() {
                // SAFETY: 15 · step < products.len().
                *m = unsafe { load(products, (4 * y + x) * step, part) };
            }
            *column = two(m);
        }
        let [a, b, c, d] = columns;
        for (y, row) in rows.into_iter().enumerate() {
            for (x, value) in two([a[y], b[y], c[y], d[y]]).into_iter().enumerate() {
                // SAFETY: a row has two elements.
                unsafe { store(value, row, x, part) };
            }
        }
    }
}

/// `C` output channels at a time.
///
/// # Safety
/// The lengths that [`multiply`] asserts.
#[inline(always)]
unsafe fn multiply_in<R: Register, const N: usize, const C: usize>(
    inputs: &[[f32; N]],
    filters: &[f32],
    channels: Range<usize>,
    products: &mut [[f32; N]],
) {
    let all = filters.len() / CHANNELS;
    let (inputs, products) = (inputs.as_ptr(), products.as_mut_ptr());
    for (out, part) in tiles::<R, N, C>() {
        let mut sums = [[R::splat(0.0); PLACES]; C];
        // SAFETY: c < all, and inputs, filters and products have the lengths asserted.
        unsafe {
            if channels.start > 0 {
                for (o, sums) in sums.iter_mut().enumerate() {
                    for (t, sum) in sums.iter_mut().enumerate() {
                        *sum = load(products, (out + o) * PLACES + t, part);
                    }
                }
            }
            let filters = filters.as_ptr().add(out * all);
            for c in channels.clone() {
                let mut factors = [R::splat(0.0); C];
                for (o, factor) in factors.iter_mut().enumerate() {
                    *factor = R::splat(*filters.add(o * all + c));
                }
                for t in 0..PLACES {
                    add_products(&mut sums, t, &factors, load(inputs, c * PLACES + t, part));
                }
            }
            for (o, sums) in sums.iter().enumerate() {
                for (t, sum) in sums.iter().enumerate() {
                    store(*sum, products, (out + o) * PLACES + t, part);
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::array::from_fn;

    use super::super::layout::for_each_group;
    use super::super::register_tiles::tests::{bits, numbers};
    use super::*;
    use crate::simd::mul_add;

    impl Tile {
        /// Input (y, x) of a plane.
        pub(crate) fn value<const N: usize>(&self, plane: &[[f32; N]], y: usize, x: usize) -> [f32; N] {
            let (place, inside) = self.place(y, x);
            if inside { plane[place] } else { [0.0; N] }
        }
    }

    fn transform_input_slowly<const N: usize>(plane: &[[f32; N]], tile: &Tile, target: &mut [[f32; N]], step: usize) {
        let column = |d: [[f32; N]; 4]| [minus(d[0], d[2]), plus(d[1], d[2]), minus(d[2], d[1]), minus(d[1], d[3])];
        let columns: [[[f32; N]; 4]; 4] = from_fn(|x| column(from_fn(|y| tile.value(plane, y, x))));
        for y in 0..4 {
            let tile = column(from_fn(|x| columns[x][y]));
            (0..4).for_each(|x| target[(4 * y + x) * step] = tile[x]);
        }
    }

    fn transform_output_slowly<const N: usize>(products: &[[f32; N]], step: usize, rows: [&mut [[f32; N]]; 2]) {
        let column = |m: [[f32; N]; 4]| [plus(plus(m[0], m[1]), m[2]), minus(minus(m[1], m[2]), m[3])];
        let columns: [[[f32; N]; 2]; 4] = from_fn(|x| column(from_fn(|y| products[(4 * y + x) * step])));
        for (y, row) in rows.into_iter().enumerate() {
            row.copy_from_slice(&column(from_fn(|x| columns[x][y])));
        }
    }

    fn multiply_slowly<const N: usize>(inputs: &[[f32; N]], filters: &[f32], products: &mut [[f32; N]]) {
        for (o, filter) in filters.chunks_exact(filters.len() / CHANNELS).enumerate() {
            for t in 0..PLACES {
                let terms = filter.iter().zip(inputs.iter().skip(t).step_by(PLACES));
                let sum = |image: usize| terms.clone().fold(0.0, |sum: f32, (f, x)| mul_add(*f, x[image], sum));
                products[o * PLACES + t] = from_fn(sum);
            }
        }
    }

    pub(crate) fn plus<const N: usize>(a: [f32; N], b: [f32; N]) -> [f32; N] {
        from_fn(|image| a[image] + b[image])
    }

    pub(crate) fn minus<const N: usize>(a: [f32; N], b: [f32; N]) -> [f32; N] {
        from_fn(|image| a[image] - b[image])
    }

    fn agree<const N: usize>() {
        let (size, step) = ((6, 8), 3);
        let [mut fast, mut slow] = [numbers::<N>(16 * step, 1), numbers::<N>(16 * step, 1)];
        // Every corner, every edge and the middle.
        for (y, x) in (0..12).map(|tile| (tile / 4 * 2, tile % 4 * 2)) {
            let tile = Tile::at((y, x), size);
            transform_input(&numbers::<N>(48, 2), &tile, &mut fast, step);
            transform_input_slowly(&numbers::<N>(48, 2), &tile, &mut slow, step);
            assert_eq!(bits(&fast), bits(&slow), "tile at {y}, {x}");
        }
        let [mut outputs, mut slow_outputs] = [numbers::<N>(4, 3), numbers::<N>(4, 4)];
        let (top, bottom) = outputs.split_at_mut(2);
        transform_output(&fast, step, [top, bottom]);
        let (top, bottom) = slow_outputs.split_at_mut(2);
        transform_output_slowly(&fast, step, [top, bottom]);
        assert_eq!(bits(&outputs), bits(&slow_outputs));
        let (inputs, filters) = (numbers::<N>(8 * PLACES, 5), numbers::<16>(2, 6).into_flattened());
        let [mut products, mut slow_products] =
            [numbers::<N>(CHANNELS * PLACES, 7), numbers::<N>(CHANNELS * PLACES, 8)];
        multiply(&inputs, &filters, 0..3, &mut products);
        multiply(&inputs, &filters, 3..8, &mut products);
        multiply_slowly(&inputs, &filters, &mut slow_products);
        assert_eq!(bits(&products), bits(&slow_products));
    }

    #[test]
    fn fast_and_slow_loops_agree() {
        for_each_group!(agree::<N>());
    }
}
