//! Implements [`Register`] with AVX2 and FMA.

use std::arch::x86_64::{
    __m256, __m256i, _CMP_NLE_UQ, _mm256_add_ps, _mm256_and_ps, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_mul_ps,
    _mm256_permute2f128_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
    _mm256_sub_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

use super::register::Register;

/// Eight elements.
#[derive(Clone, Copy)]
pub(crate) struct Eights(__m256);

/// Eight set masks before eight clear ones.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The mask of the elements below `count`.
#[inline(always)]
fn first(count: usize) -> __m256i {
    let start = 8 - count.min(8);
    // SAFETY: eight masks from one of the first nine places; `Register` requires AVX2.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(start).cast()) }
}

// SAFETY: the trait requires AVX2 and FMA wherever a method runs.
unsafe impl Register for Eights {
    const WIDTH: usize = 8;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: as above, as in all methods.
        Eights(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as the caller promises, as in the methods below.
        Eights(unsafe { _mm256_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn load_if(from: *const f32, condition: bool) -> Self {
        // SAFETY: as above.
        Eights(unsafe {
            let mask = _mm256_castsi256_ps(_mm256_set1_epi32(-i32::from(condition)));
            _mm256_and_ps(_mm256_loadu_ps(from), mask)
        })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        // SAFETY: as above.
        Eights(unsafe { _mm256_maskload_ps(from, first(count)) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: as above.
        unsafe { _mm256_maskstore_ps(to, first(count), self.0) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: as above.
        Eights(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        // SAFETY: as above.
        Eights(unsafe { _mm256_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: as above.
        Eights(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: as above.
        Eights(unsafe { _mm256_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    fn where_passes(self, y: Self) -> Self {
        // SAFETY: as above.
        Eights(unsafe { _mm256_and_ps(self.0, _mm256_cmp_ps::<_CMP_NLE_UQ>(y.0, _mm256_setzero_ps())) })
    }

    #[inline(always)]
    fn transpose(rows: &mut [Self]) {
        let rows: &mut [Self; 8] = rows.try_into().expect("eight rows");
        // SAFETY: as above.
        unsafe {
            let mut quads = *rows;
            for four in 0..2 {
                let [a, b, c, d] = [4 * four, 4 * four + 1, 4 * four + 2, 4 * four + 3].map(|row| rows[row].0);
                let low = [_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d)];
                let high = [_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d)];
                // Half h of quads[4 · four + j] holds column 4 · h + j of the four rows.
                quads[4 * four] = Eights(_mm256_shuffle_ps::<0x44>(low[0], low[1]));
                quads[4 * four + 1] = Eights(_mm256_shuffle_ps::<0xee>(low[0], low[1]));
                quads[4 * four + 2] = Eights(_mm256_shuffle_ps::<0x44>(high[0], high[1]));
                quads[4 * four + 3] = Eights(_mm256_shuffle_ps::<0xee>(high[0], high[1]));
            }
            for j in 0..4 {
                rows[j] = Eights(_mm256_permute2f128_ps::<0x20>(quads[j].0, quads[4 + j].0));
                rows[4 + j] = Eights(_mm256_permute2f128_ps::<0x31>(quads[j].0, quads[4 + j].0));
            }
        }
    }
}
