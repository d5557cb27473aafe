//! Multiplies matrices in slices, on the caller's thread alone.
//!
//! `gemm-f32` chooses its blocks from the sizes and the processor's caches, so equal sizes give equal bits; for several
//! threads, callers cut the product into fixed tiles.

use std::sync::OnceLock;

use gemm_common::Parallelism;
use gemm_common::gemm::gemm_basic_generic;
use gemm_common::simd::MixedSimd;
use gemm_f32::gemm::f32::get_gemm_fn;

use super::threads::Disjoint;
use crate::simd::Instructions;

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
    let product = Disjoint::new(product);
    // SAFETY: `product` is borrowed exclusively.
    unsafe { multiply_part((m, n, k), (&product, 0), stride, add, a, b) }
}

/// [`multiply`] to a part of a slice: from `start` on, `m` rows of `n` elements.
///
/// # Safety
/// Nothing else accesses these elements.
pub(crate) unsafe fn multiply_part(
    (m, n, k): (usize, usize, usize),
    (product, start): (&Disjoint<'_, f32>, usize),
    stride: usize,
    add: bool,
    a: Matrix<'_>,
    b: Matrix<'_>,
) {
    a.check(m, k);
    b.check(k, n);
    assert!(n <= stride, "rows of a product overlap");
    let product = product.pointer(start..start + (m - 1) * stride + n);
    // The library requires contiguous columns of the product, so it computes productᵀ = bᵀ · aᵀ.
    let transposed = stride > 1;
    let ((m, n), (first, second)) =
        if transposed { ((n, m), (b.transpose(), a.transpose())) } else { ((m, n), (a, b)) };
    let (column, row) = if transposed { (stride, 1) } else { (1, stride) };
    // SAFETY: the three matrices lie inside their slices as just asserted, and the product is this caller's.
    unsafe {
        product_function()(
            m,
            n,
            k,
            product,
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

/// Writes columns of `from`, whose rows are `stride` apart, as rows of `size` elements: as many as `to` has place for.
pub(super) fn transpose(from: &[f32], stride: usize, to: &mut [f32], size: usize) {
    for (column, to) in to.chunks_exact_mut(size).enumerate() {
        to.iter_mut().zip(from[column..].iter().step_by(stride)).for_each(|(to, from)| *to = *from);
    }
}

/// The library's product of `(m, n, k)`, `dst` with its strides, whether it is read, two factors with their strides,
/// two factors of scale, three conjugations and the threads.
type Product = unsafe fn(
    usize,
    usize,
    usize,
    *mut f32,
    isize,
    isize,
    bool,
    *const f32,
    isize,
    isize,
    *const f32,
    isize,
    isize,
    f32,
    f32,
    bool,
    bool,
    bool,
    Parallelism,
);

/// Defines a [`Product`] with the microkernels of one set of instructions, of `$width` elements.
macro_rules! product_with {
    ($name:ident, $kernels:ident, $simd:ident, $width:literal) => {
        #[allow(clippy::too_many_arguments)] // as in the library
        unsafe fn $name(
            m: usize,
            n: usize,
            k: usize,
            dst: *mut f32,
            dst_cs: isize,
            dst_rs: isize,
            read_dst: bool,
            lhs: *const f32,
            lhs_cs: isize,
            lhs_rs: isize,
            rhs: *const f32,
            rhs_cs: isize,
            rhs_rs: isize,
            alpha: f32,
            beta: f32,
            conj_dst: bool,
            conj_lhs: bool,
            conj_rhs: bool,
            parallelism: Parallelism,
        ) {
            use gemm_f32::microkernel::$kernels::f32::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};
            let simd = <gemm_common::simd::$simd as MixedSimd<f32, f32, f32, f32>>::try_new();
            let simd = simd.expect("instructions are chosen among those of the processor");
            // SAFETY: as the caller promises.
            unsafe {
                gemm_basic_generic::<_, f32, $width, { MR_DIV_N * $width }, NR, MR_DIV_N, H_M, H_N>(
                    simd,
                    m,
                    n,
                    k,
                    dst,
                    dst_cs,
                    dst_rs,
                    read_dst,
                    lhs,
                    lhs_cs,
                    lhs_rs,
                    rhs,
                    rhs_cs,
                    rhs_rs,
                    alpha,
                    beta,
                    conj_dst,
                    conj_lhs,
                    conj_rhs,
                    |a, b, c| a * b + c,
                    &UKR,
                    &H_UKR,
                    false,
                    parallelism,
                );
            }
        }
    };
}

product_with!(portable, scalar, Scalar, 1);
#[cfg(target_arch = "x86_64")]
product_with!(avx2, fma, V3, 8);

/// The library's choice, or narrower instructions where [`Instructions::current`] is.
fn product_function() -> Product {
    static CHOSEN: OnceLock<Product> = OnceLock::new();
    *CHOSEN.get_or_init(|| match Instructions::current() {
        current if current == Instructions::widest() => get_gemm_fn(),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => avx2,
        _ => portable,
    })
}
