//! Multiplies matrices in slices, on the caller's thread alone.
//!
//! `gemm-f32` chooses its blocks from the sizes and the processor's caches, so equal sizes give equal bits; for several
//! threads, callers cut the product into fixed tiles.

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

/// A matrix inside a slice: its first element's place and the distances between rows and between columns.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `stride` elements, one after the other.
    pub(crate) fn rows(data: &'a [f32], stride: usize) -> Matrix<'a> {
        Matrix { data, row: stride, column: 1 }
    }

    /// The transpose of [`Matrix::rows`].
    pub(crate) fn transposed(data: &'a [f32], stride: usize) -> Matrix<'a> {
        Matrix::rows(data, stride).transpose()
    }

    pub(crate) fn transpose(self) -> Matrix<'a> {
        Matrix { data: self.data, row: self.column, column: self.row }
    }

    fn check(&self, rows: usize, columns: usize) {
        assert!(rows > 0 && columns > 0, "an empty factor");
        let last = (rows - 1) * self.row + (columns - 1) * self.column;
        assert!(
            last < self.data.len(),
            "a {rows} × {columns} factor needs {} of {} elements",
            last + 1,
            self.data.len()
        );
    }
}

/// `product = a · b` (or `product += a · b` when `add`), with `product` of `m` rows `stride` apart, `a` of m × k and `b` of
/// k × n.
pub(crate) fn multiply(
    (m, n, k): (usize, usize, usize),
    product: &mut [f32],
    stride: usize,
    add: bool,
    a: Matrix<'_>,
    b: Matrix<'_>,
) {
    a.check(m, k);
    b.check(k, n);
    assert!(n <= stride && (m - 1) * stride + n <= product.len(), "the product does not fit");
    // The library requires contiguous columns of the product, so it computes productᵀ = bᵀ · aᵀ.
    let transposed = stride > 1;
    let ((m, n), (first, second)) =
        if transposed { ((n, m), (b.transpose(), a.transpose())) } else { ((m, n), (a, b)) };
    let (column, row) = if transposed { (stride, 1) } else { (1, stride) };
    // SAFETY: the three matrices lie inside their slices as just asserted, and `product` is borrowed exclusively.
    unsafe {
        get_gemm_fn()(
            m,
            n,
            k,
            product.as_mut_ptr(),
            column as isize,
            row as isize,
            add,
            first.data.as_ptr(),
            first.column as isize,
            first.row as isize,
            second.data.as_ptr(),
            second.column as isize,
            second.row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
