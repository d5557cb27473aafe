//! Implements [`Register`] with AVX-512.

use std::arch::x86_64::{
    __m512, __mmask16, _CMP_NLE_UQ, _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd, _mm512_cmp_ps_mask,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_maskz_mov_ps, _mm512_mul_ps,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_sub_ps, _mm512_unpackhi_pd,
    _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

use super::register::Register;

/// Sixteen elements.
#[derive(Clone, Copy)]
pub(crate) struct Sixteens(__m512);

/// The mask of the elements below `count`.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    if count >= 16 { !0 } else { (1 << count) - 1 }
}

// SAFETY: the trait requires AVX-512 wherever a method runs.
unsafe impl Register for Sixteens {
    const WIDTH: usize = 16;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: as above, as in all methods.
        Sixteens(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as the caller promises, as in the methods below.
        Sixteens(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn load_if(from: *const f32, condition: bool) -> Self {
        // SAFETY: as above.
        Sixteens(unsafe { _mm512_maskz_loadu_ps(if condition { !0 } else { 0 }, from) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        // SAFETY: as above.
        Sixteens(unsafe { _mm512_maskz_loadu_ps(first(count), from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(to, first(count), self.0) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteens(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteens(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        Sixteens(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: as above.
        Sixteens(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    fn where_passes(self, y: Self) -> Self {
        // SAFETY: as above.
        Sixteens(unsafe {
            let passes = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(y.0, _mm512_setzero_ps());
            _mm512_maskz_mov_ps(passes, self.0)
        })
    }

    #[inline(always)]
    fn transpose(rows: &mut [Self]) {
        let rows: &mut [Self; 16] = rows.try_into().expect("sixteen rows");
        // SAFETY: as above.
        unsafe {
            let mut quads = *rows;
            for four in 0..4 {
                let [a, b, c, d] = [4 * four, 4 * four + 1, 4 * four + 2, 4 * four + 3].map(|row| rows[row].0);
                let low = [_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpacklo_ps(c, d))];
                let high = [_mm512_castps_pd(_mm512_unpackhi_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(c, d))];
                // Quarter q of quads[4 · four + j] holds column 4 · q + j of the four rows.
                quads[4 * four] = Sixteens(_mm512_castpd_ps(_mm512_unpacklo_pd(low[0], low[1])));
                quads[4 * four + 1] = Sixteens(_mm512_castpd_ps(_mm512_unpackhi_pd(low[0], low[1])));
                quads[4 * four + 2] = Sixteens(_mm512_castpd_ps(_mm512_unpacklo_pd(high[0], high[1])));
                quads[4 * four + 3] = Sixteens(_mm512_castpd_ps(_mm512_unpackhi_pd(high[0], high[1])));
            }
            for j in 0..4 {
                // Even quarters of two, then of all four; odd ones likewise.
                let even = _mm512_shuffle_f32x4::<0x88>(quads[j].0, quads[4 + j].0);
                let odd = _mm512_shuffle_f32x4::<0xdd>(quads[j].0, quads[4 + j].0);
                let even_below = _mm512_shuffle_f32x4::<0x88>(quads[8 + j].0, quads[12 + j].0);
                let odd_below = _mm512_shuffle_f32x4::<0xdd>(quads[8 + j].0, quads[12 + j].0);
                rows[j] = Sixteens(_mm512_shuffle_f32x4::<0x88>(even, even_below));
                rows[4 + j] = Sixteens(_mm512_shuffle_f32x4::<0x88>(odd, odd_below));
                rows[8 + j] = Sixteens(_mm512_shuffle_f32x4::<0xdd>(even, even_below));
                rows[12 + j] = Sixteens(_mm512_shuffle_f32x4::<0xdd>(odd, odd_below));
            }
        }
    }
}
