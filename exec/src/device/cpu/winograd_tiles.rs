//! Applies F(2 × 2, 3 × 3) to one tile of sixteen images, in registers: both transforms, and the products over
//! channels.
//!
//! Bᵀ, for inputs: rows 1 0 −1 0, 0 1 1 0, 0 −1 1 0, 0 1 0 −1; Aᵀ, for outputs: 1 1 1 0, 0 1 −1 −1. Each is applied to
//! columns, then to rows (Lavin and Gray 2016, §4.1). The tests have the obvious loops that these must equal to the
//! bit.

use super::register_tiles::{CHANNELS, PLACES};
use crate::simd::has_sixteens;
use crate::workspace::Sixteen;

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
pub(crate) fn prefetch_inputs(plane: &[Sixteen], tile: &Tile) {
    [(2, 1), (2, 2), (3, 1), (3, 2)].iter().for_each(|(y, x)| prefetch(&plane[tile.place(*y, *x).0]));
}

/// Prefetches a line into the cache.
#[inline(always)]
pub(crate) fn prefetch(line: &Sixteen) {
    // SAFETY: every x86-64 has the instruction, and the line exists.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
    }
}

/// `target[p · step]` = (Bᵀ d B)ₚ of the inputs d under `tile`.
pub(crate) fn transform_input(plane: &[Sixteen], tile: &Tile, target: &mut [Sixteen], step: usize) {
    assert!(
        has_sixteens() && plane.len() == tile.plane && (POSITIONS - 1) * step < target.len(),
        "a tile of this plane"
    );
    // SAFETY: the processor has AVX-512, and the lengths were asserted.
    unsafe { avx512::transform_input(plane, tile, target, step) };
}

/// The two rows of the 2 × 2 outputs Aᵀ m A from m, whose elements are `step` apart.
#[inline]
pub(crate) fn transform_output(products: &[Sixteen], step: usize, rows: [&mut [Sixteen]; 2]) {
    assert!(has_sixteens() && (POSITIONS - 1) * step < products.len());
    assert!(rows.iter().all(|row| row.len() == 2), "a tile and its outputs");
    // SAFETY: the processor has AVX-512, and the lengths were asserted.
    unsafe { avx512::transform_output(products, step, rows) };
}

/// `products[o][t] = Σ_c filters[o][c] · inputs[c][t]` for [`CHANNELS`] output channels and [`PLACES`] tiles.
pub(crate) fn multiply(inputs: &[Sixteen], filters: &[f32], products: &mut [Sixteen]) {
    let channels = filters.len() / CHANNELS;
    assert!(
        has_sixteens() && inputs.len() == channels * PLACES && products.len() == CHANNELS * PLACES,
        "lengths that fit"
    );
    // SAFETY: the processor has AVX-512, and the lengths were asserted.
    unsafe { avx512::multiply(inputs, filters, products) };
}

pub(crate) mod avx512 {
    //! The same in registers; the callers have asserted all lengths.

    use std::arch::x86_64::{
        __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_maskz_load_ps, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_store_ps, _mm512_sub_ps,
    };
    use std::array::from_fn;

    use super::super::register_tiles::avx512::load;
    use super::{CHANNELS, PLACES, Sixteen, Tile};

    /// Input (y, x) of a tile, zero outside of the plane.
    ///
    /// # Safety
    /// `plane` is one of the tile's size.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(crate) unsafe fn input(plane: *const Sixteen, tile: &Tile, y: usize, x: usize) -> __m512 {
        let (place, inside) = tile.place(y, x);
        // SAFETY: places are inside the plane; inputs outside read their neighbours' places and are masked.
        unsafe { _mm512_maskz_load_ps(if inside { !0 } else { 0 }, plane.add(place).cast()) }
    }

    /// # Safety
    /// As [`load`], and the place is not otherwise accessed.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    unsafe fn store(start: *mut Sixteen, place: usize, value: __m512) {
        // SAFETY: as the caller promises.
        unsafe { _mm512_store_ps(start.add(place).cast(), value) };
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn four([a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
        [_mm512_sub_ps(a, c), _mm512_add_ps(b, c), _mm512_sub_ps(c, b), _mm512_sub_ps(b, d)]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn two([a, b, c, d]: [__m512; 4]) -> [__m512; 2] {
        [_mm512_add_ps(_mm512_add_ps(a, b), c), _mm512_sub_ps(_mm512_sub_ps(b, c), d)]
    }

    /// # Safety
    /// The lengths that [`super::transform_input`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn transform_input(plane: &[Sixteen], tile: &Tile, target: &mut [Sixteen], step: usize) {
        let (plane, target) = (plane.as_ptr(), target.as_mut_ptr());
        // Loops in place of closures, which the compiler leaves as calls here.
        let mut columns = [[_mm512_setzero_ps(); 4]; 4];
        for (x, column) in columns.iter_mut().enumerate() {
            let mut d = [_mm512_setzero_ps(); 4];
            for (y, d) in d.iter_mut().enumerate() {
                // SAFETY: the plane is of the tile's size.
                *d = unsafe { input(plane, tile, y, x) };
            }
            *column = four(d);
        }
        let [a, b, c, d] = columns;
        for (y, row) in [0, 1, 2, 3].map(|y| [a[y], b[y], c[y], d[y]]).into_iter().enumerate() {
            for (x, value) in four(row).into_iter().enumerate() {
                // SAFETY: 15 · step < target.len().
                unsafe { store(target, (4 * y + x) * step, value) };
            }
        }
    }

    /// # Safety
    /// The lengths that [`super::transform_output`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn transform_output(products: &[Sixteen], step: usize, rows: [&mut [Sixteen]; 2]) {
        let products = products.as_ptr();
        // SAFETY: 15 · step < products.len().
        let columns: [[__m512; 2]; 4] = from_fn(|x| two(from_fn(|y| unsafe { load(products, (4 * y + x) * step) })));
        for (y, row) in rows.into_iter().enumerate() {
            for (x, value) in two(from_fn(|x| columns[x][y])).into_iter().enumerate() {
                // SAFETY: a row has two elements.
                unsafe { store(row.as_mut_ptr(), x, value) };
            }
        }
    }

    /// # Safety
    /// The lengths that [`super::multiply`] asserts.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn multiply(inputs: &[Sixteen], filters: &[f32], products: &mut [Sixteen]) {
        let channels = filters.len() / CHANNELS;
        let mut sums = [[_mm512_setzero_ps(); PLACES]; CHANNELS];
        // SAFETY: c < channels, and inputs, filters and products have the lengths asserted.
        unsafe {
            for c in 0..channels {
                let x: [__m512; PLACES] = from_fn(|t| load(inputs.as_ptr(), c * PLACES + t));
                for (o, sums) in sums.iter_mut().enumerate() {
                    let filter = _mm512_set1_ps(*filters.as_ptr().add(o * channels + c));
                    for (sum, x) in sums.iter_mut().zip(x) {
                        *sum = _mm512_fmadd_ps(filter, x, *sum);
                    }
                }
            }
            for (place, sum) in sums.as_flattened().iter().enumerate() {
                store(products.as_mut_ptr(), place, *sum);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::array::from_fn;

    use super::super::register_tiles::tests::{bits, numbers};
    use super::*;

    impl Tile {
        /// Input (y, x) of a plane.
        pub(crate) fn value(&self, plane: &[Sixteen], y: usize, x: usize) -> Sixteen {
            let (place, inside) = self.place(y, x);
            if inside { plane[place] } else { Sixteen::default() }
        }
    }

    fn transform_input_slowly(plane: &[Sixteen], tile: &Tile, target: &mut [Sixteen], step: usize) {
        let column = |d: [Sixteen; 4]| [minus(d[0], d[2]), plus(d[1], d[2]), minus(d[2], d[1]), minus(d[1], d[3])];
        let columns: [[Sixteen; 4]; 4] = from_fn(|x| column(from_fn(|y| tile.value(plane, y, x))));
        for y in 0..4 {
            let tile = column(from_fn(|x| columns[x][y]));
            (0..4).for_each(|x| target[(4 * y + x) * step] = tile[x]);
        }
    }

    fn transform_output_slowly(products: &[Sixteen], step: usize, rows: [&mut [Sixteen]; 2]) {
        let column = |m: [Sixteen; 4]| [plus(plus(m[0], m[1]), m[2]), minus(minus(m[1], m[2]), m[3])];
        let columns: [[Sixteen; 2]; 4] = from_fn(|x| column(from_fn(|y| products[(4 * y + x) * step])));
        for (y, row) in rows.into_iter().enumerate() {
            row.copy_from_slice(&column(from_fn(|x| columns[x][y])));
        }
    }

    fn multiply_slowly(inputs: &[Sixteen], filters: &[f32], products: &mut [Sixteen]) {
        for (o, filter) in filters.chunks_exact(filters.len() / CHANNELS).enumerate() {
            for t in 0..PLACES {
                let terms = filter.iter().zip(inputs.iter().skip(t).step_by(PLACES));
                let sum = |image: usize| terms.clone().fold(0.0, |sum: f32, (f, x)| f.mul_add(x.0[image], sum));
                products[o * PLACES + t] = Sixteen(from_fn(sum));
            }
        }
    }

    pub(crate) fn plus(a: Sixteen, b: Sixteen) -> Sixteen {
        Sixteen(from_fn(|image| a.0[image] + b.0[image]))
    }

    pub(crate) fn minus(a: Sixteen, b: Sixteen) -> Sixteen {
        Sixteen(from_fn(|image| a.0[image] - b.0[image]))
    }

    #[test]
    fn fast_and_slow_loops_agree() {
        if !has_sixteens() {
            eprintln!("left out: this processor has no AVX-512");
            return;
        }
        let (size, step) = ((6, 8), 3);
        let [mut fast, mut slow] = [numbers(16 * step, 1), numbers(16 * step, 1)];
        // Every corner, every edge and the middle.
        for (y, x) in (0..12).map(|tile| (tile / 4 * 2, tile % 4 * 2)) {
            let tile = Tile::at((y, x), size);
            transform_input(&numbers(48, 2), &tile, &mut fast, step);
            transform_input_slowly(&numbers(48, 2), &tile, &mut slow, step);
            assert_eq!(bits(&fast), bits(&slow), "tile at {y}, {x}");
        }
        let [mut outputs, mut slow_outputs] = [numbers(4, 3), numbers(4, 4)];
        let (top, bottom) = outputs.split_at_mut(2);
        transform_output(&fast, step, [top, bottom]);
        let (top, bottom) = slow_outputs.split_at_mut(2);
        transform_output_slowly(&fast, step, [top, bottom]);
        assert_eq!(bits(&outputs), bits(&slow_outputs));
        let (inputs, filters) =
            (numbers(8 * PLACES, 5), numbers(2, 6).iter().flat_map(|one| one.0).collect::<Vec<f32>>());
        let [mut products, mut slow_products] = [numbers(CHANNELS * PLACES, 7), numbers(CHANNELS * PLACES, 8)];
        multiply(&inputs, &filters, &mut products);
        multiply_slowly(&inputs, &filters, &mut slow_products);
        assert_eq!(bits(&products), bits(&slow_products));
    }
}
