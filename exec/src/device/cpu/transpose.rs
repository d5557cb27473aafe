//! Converts planes of sixteen images to interleaved form and back, by transposing 16 × 16 blocks in registers.
//!
//! The fast loops have obvious equivalents beside them, which they must equal to the bit.

use crate::simd::has_sixteens;
use crate::workspace::Sixteen;

/// Images and places of a block.
const BLOCK: usize = 16;

/// A plane of each image present.
type Rows<'a> = [Option<&'a [f32]>; BLOCK];

/// `target[places[p]][image] = input[image · size + start + p]`, 0 for images that `input` lacks.
pub(crate) fn side_by_side(input: &[f32], size: usize, start: usize, places: &[u32], target: &mut [Sixteen]) {
    gather(rows(input, size, start, places.len()), None, places, target);
}

/// The same of `d_output`, with 0 where the rectified `output` is not positive.
pub(crate) fn rectified_side_by_side(
    d_output: &[f32],
    output: &[f32],
    size: usize,
    start: usize,
    places: &[u32],
    target: &mut [Sixteen],
) {
    let rows = |of| rows(of, size, start, places.len());
    gather(rows(d_output), Some(rows(output)), places, target);
}

/// Writes (or adds, when `accumulate`) `plane[places[p]][image]` to element p of the slice that `part` returns for each
/// image.
pub(crate) fn apart<'a>(
    plane: &[Sixteen],
    places: &[u32],
    accumulate: bool,
    part: impl Fn(usize) -> Option<&'a mut [f32]>,
) {
    assert!(places.iter().all(|place| (*place as usize) < plane.len()), "a place outside the plane");
    let mut parts: [Option<&mut [f32]>; BLOCK] = std::array::from_fn(part);
    assert!(parts.iter().flatten().all(|part| part.len() == places.len()), "an element for each place");
    #[cfg(target_arch = "x86_64")]
    if has_sixteens() {
        let parts = parts.map(|part| part.map_or(std::ptr::null_mut(), <[f32]>::as_mut_ptr));
        // SAFETY: the processor has AVX-512, and the lengths were asserted.
        unsafe { avx512::apart(plane, places, accumulate, parts) };
        return;
    }
    apart_slowly(plane, places, accumulate, &mut parts);
}

/// The plane of each image present.
fn rows(input: &[f32], size: usize, start: usize, len: usize) -> Rows<'_> {
    let images = input.len() / size;
    std::array::from_fn(|image| (image < images).then(|| &input[image * size + start..][..len]))
}

fn gather(rows: Rows<'_>, rectified: Option<Rows<'_>>, places: &[u32], target: &mut [Sixteen]) {
    assert!(places.iter().all(|place| (*place as usize) < target.len()), "a place outside the plane");
    #[cfg(target_arch = "x86_64")]
    if has_sixteens() {
        let starts = |rows: Rows<'_>| rows.map(|row| row.map_or(std::ptr::null(), <[f32]>::as_ptr));
        // SAFETY: the processor has AVX-512; rows have an element for each place, and places were asserted.
        unsafe { avx512::gather(starts(rows), rectified.map(starts), places, target) };
        return;
    }
    gather_slowly(rows, rectified, places, target);
}

fn gather_slowly(rows: Rows<'_>, rectified: Option<Rows<'_>>, places: &[u32], target: &mut [Sixteen]) {
    for (p, place) in places.iter().enumerate() {
        target[*place as usize] = Sixteen(std::array::from_fn(|image| {
            let falls = rectified.and_then(|of| of[image]).is_some_and(|y| y[p] <= 0.0);
            rows[image].filter(|_| !falls).map_or(0.0, |row| row[p])
        }));
    }
}

fn apart_slowly(plane: &[Sixteen], places: &[u32], accumulate: bool, parts: &mut [Option<&mut [f32]>; BLOCK]) {
    for (image, part) in parts.iter_mut().enumerate() {
        for (value, place) in part.iter_mut().flat_map(|part| part.iter_mut()).zip(places) {
            let found = plane[*place as usize].0[image];
            *value = if accumulate { *value + found } else { found };
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    //! The loops in registers; their callers have asserted all lengths.

    use std::arch::x86_64::{
        __m512, __mmask16, _CMP_NLE_UQ, _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd, _mm512_cmp_ps_mask,
        _mm512_load_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_maskz_mov_ps, _mm512_setzero_ps,
        _mm512_shuffle_f32x4, _mm512_store_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd,
        _mm512_unpacklo_ps,
    };

    use super::{BLOCK, Sixteen};

    /// The mask of the vector elements below `count`.
    fn first(count: usize) -> __mmask16 {
        if count >= BLOCK { !0 } else { (1 << count) - 1 }
    }

    /// Row i of the result is column i of `rows`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(crate) fn transposed(rows: [__m512; BLOCK]) -> [__m512; BLOCK] {
        let mut quads = rows;
        for four in 0..4 {
            let [a, b, c, d] = [rows[4 * four], rows[4 * four + 1], rows[4 * four + 2], rows[4 * four + 3]];
            let low = [_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpacklo_ps(c, d))];
            let high = [_mm512_castps_pd(_mm512_unpackhi_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(c, d))];
            // Quarter q of quads[4 · four + j] holds column 4 · q + j of the four rows.
            quads[4 * four] = _mm512_castpd_ps(_mm512_unpacklo_pd(low[0], low[1]));
            quads[4 * four + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low[0], low[1]));
            quads[4 * four + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high[0], high[1]));
            quads[4 * four + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high[0], high[1]));
        }
        let mut columns = rows;
        for j in 0..4 {
            // Even quarters of two, then of all four; odd ones likewise.
            let even = _mm512_shuffle_f32x4::<0x88>(quads[j], quads[4 + j]);
            let odd = _mm512_shuffle_f32x4::<0xdd>(quads[j], quads[4 + j]);
            let even_below = _mm512_shuffle_f32x4::<0x88>(quads[8 + j], quads[12 + j]);
            let odd_below = _mm512_shuffle_f32x4::<0xdd>(quads[8 + j], quads[12 + j]);
            columns[j] = _mm512_shuffle_f32x4::<0x88>(even, even_below);
            columns[4 + j] = _mm512_shuffle_f32x4::<0x88>(odd, odd_below);
            columns[8 + j] = _mm512_shuffle_f32x4::<0xdd>(even, even_below);
            columns[12 + j] = _mm512_shuffle_f32x4::<0xdd>(odd, odd_below);
        }
        columns
    }

    /// # Safety
    /// Rows that are not null have an element for each place, and places are inside `target`.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn gather(
        rows: [*const f32; BLOCK],
        rectified: Option<[*const f32; BLOCK]>,
        places: &[u32],
        target: &mut [Sixteen],
    ) {
        for (block, places) in places.chunks(BLOCK).enumerate() {
            let (start, live) = (block * BLOCK, first(places.len()));
            let mut values = [_mm512_setzero_ps(); BLOCK];
            for (image, (value, row)) in values.iter_mut().zip(rows).enumerate().filter(|(_, (_, row))| !row.is_null())
            {
                // SAFETY: the masked elements are inside the row, as the caller promises.
                unsafe {
                    *value = _mm512_maskz_loadu_ps(live, row.add(start));
                    if let Some(rectified) = &rectified {
                        let y = _mm512_maskz_loadu_ps(live, rectified[image].add(start));
                        let passes = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(y, _mm512_setzero_ps());
                        *value = _mm512_maskz_mov_ps(passes, *value);
                    }
                }
            }
            let columns = transposed(values);
            for (place, column) in places.iter().zip(columns) {
                // SAFETY: places are inside, as the caller promises; `Sixteen` is aligned to 64 bytes.
                unsafe { _mm512_store_ps(target.as_mut_ptr().add(*place as usize).cast(), column) };
            }
        }
    }

    /// # Safety
    /// Parts that are not null have an element for each place, and places are inside `plane`.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn apart(plane: &[Sixteen], places: &[u32], accumulate: bool, parts: [*mut f32; BLOCK]) {
        for (block, places) in places.chunks(BLOCK).enumerate() {
            let (start, live) = (block * BLOCK, first(places.len()));
            let mut values = [_mm512_setzero_ps(); BLOCK];
            for (value, place) in values.iter_mut().zip(places) {
                // SAFETY: as the caller promises; `Sixteen` is aligned to 64 bytes.
                *value = unsafe { _mm512_load_ps(plane.as_ptr().add(*place as usize).cast()) };
            }
            let columns = transposed(values);
            for (part, column) in parts.iter().zip(columns) {
                if part.is_null() {
                    continue;
                }
                // SAFETY: the masked elements are inside the part, as the caller promises.
                unsafe {
                    let target = part.add(start);
                    let old = if accumulate { Some(_mm512_maskz_loadu_ps(live, target)) } else { None };
                    _mm512_mask_storeu_ps(target, live, old.map_or(column, |old| _mm512_add_ps(old, column)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any number of images and places, padded by a step between places; a NaN after the ReLU passes the gradient.
        #[test]
        fn fast_and_slow_loops_agree(images in 1..=16usize, len in 1..40usize, step in 1..3usize, accumulate: bool) {
            let (size, start) = (len + 3, 2);
            let number = |at: usize| ((at * 37) % 23) as f32 - 11.0;
            let input: Vec<f32> = (0..images * size).map(number).collect();
            let output: Vec<f32> = (0..images * size).map(|at| if at % 7 == 0 { f32::NAN } else { number(at + 5) }).collect();
            let places: Vec<u32> = (0..len).map(|p| (p * step + 1) as u32).collect();
            let blank = vec![Sixteen([5.0; BLOCK]); len * step + 1];
            let bits = |plane: &[Sixteen]| plane.iter().flat_map(|one| one.0.map(f32::to_bits)).collect::<Vec<_>>();
            let of = |input| rows(input, size, start, len);

            let (mut fast, mut slow) = (blank.clone(), blank);
            side_by_side(&input, size, start, &places, &mut fast);
            gather_slowly(of(&input), None, &places, &mut slow);
            prop_assert_eq!(bits(&fast), bits(&slow));
            rectified_side_by_side(&input, &output, size, start, &places, &mut fast);
            gather_slowly(of(&input), Some(of(&output)), &places, &mut slow);
            prop_assert_eq!(bits(&fast), bits(&slow));

            let [mut back, mut slow_back] = [vec![1.5f32; images * len], vec![1.5f32; images * len]];
            {
                let mut parts: Vec<Option<&mut [f32]>> = slow_back.chunks_mut(len).map(Some).collect();
                parts.resize_with(BLOCK, || None);
                let mut parts: [Option<&mut [f32]>; BLOCK] = parts.try_into().expect("sixteen");
                apart_slowly(&slow, &places, accumulate, &mut parts);
                let shared = super::super::threads::Disjoint::new(&mut back);
                // SAFETY: images are disjoint.
                let part = |image: usize| (image < images).then(|| unsafe { shared.part(image * len..(image + 1) * len) });
                apart(&fast, &places, accumulate, part);
            }
            prop_assert_eq!(back, slow_back);
        }
    }
}
