//! Converts planes of images to interleaved form and back, by transposing square blocks in registers.
//!
//! The fast loops have obvious equivalents beside them, which they must equal to the bit.

use super::register_tiles::{load, parts, store};
use crate::simd::{Register, in_registers};

/// A plane of each image present.
type Rows<'a, const N: usize> = [Option<&'a [f32]>; N];

/// `target[places[p]][image] = input[image · size + start + p]`, 0 for images that `input` lacks.
pub(crate) fn side_by_side<const N: usize>(
    input: &[f32],
    size: usize,
    start: usize,
    places: &[u32],
    target: &mut [[f32; N]],
) {
    gather(rows(input, size, start, places.len()), None, places, target);
}

/// The same of `d_output`, with 0 where the rectified `output` is not positive.
pub(crate) fn rectified_side_by_side<const N: usize>(
    d_output: &[f32],
    output: &[f32],
    size: usize,
    start: usize,
    places: &[u32],
    target: &mut [[f32; N]],
) {
    let rows = |of| rows(of, size, start, places.len());
    gather(rows(d_output), Some(rows(output)), places, target);
}

/// Writes (or adds, when `accumulate`) `plane[places[p]][image]` to element p of the slice that `part` returns for each
/// image.
pub(crate) fn apart<'a, const N: usize>(
    plane: &[[f32; N]],
    places: &[u32],
    accumulate: bool,
    part: impl Fn(usize) -> Option<&'a mut [f32]>,
) {
    assert!(places.iter().all(|place| (*place as usize) < plane.len()), "a place outside the plane");
    let parts: [Option<&mut [f32]>; N] = std::array::from_fn(part);
    assert!(parts.iter().flatten().all(|part| part.len() == places.len()), "an element for each place");
    let parts = parts.map(|part| part.map_or(std::ptr::null_mut(), <[f32]>::as_mut_ptr));
    in_registers!(apart_in[16, 8, 4](plane, places, accumulate, parts));
}

/// The plane of each image present.
fn rows<const N: usize>(input: &[f32], size: usize, start: usize, len: usize) -> Rows<'_, N> {
    let images = input.len() / size;
    std::array::from_fn(|image| (image < images).then(|| &input[image * size + start..][..len]))
}

fn gather<const N: usize>(rows: Rows<'_, N>, rectified: Option<Rows<'_, N>>, places: &[u32], target: &mut [[f32; N]]) {
    assert!(places.iter().all(|place| (*place as usize) < target.len()), "a place outside the plane");
    let starts = |rows: Rows<'_, N>| rows.map(|row| row.map_or(std::ptr::null(), <[f32]>::as_ptr));
    // Rows have an element for each place: see `rows`.
    in_registers!(gather_in[16, 8, 4](starts(rows), rectified.map(starts), places, target));
}

/// `B` is the registers' width: blocks have that many images and places.
///
/// # Safety
/// Rows that are not null have an element for each place, and places are inside `target`.
#[inline(always)]
unsafe fn gather_in<R: Register, const N: usize, const B: usize>(
    rows: [*const f32; N],
    rectified: Option<[*const f32; N]>,
    places: &[u32],
    target: &mut [[f32; N]],
) {
    for (block, places) in places.chunks(B).enumerate() {
        let start = block * B;
        for part in parts::<R, N>() {
            let mut values = [R::splat(0.0); B];
            for (at, value) in values.iter_mut().enumerate() {
                let row = rows[part + at];
                if row.is_null() {
                    continue;
                }
                // SAFETY: the elements are inside the row, as the caller promises.
                unsafe {
                    *value = R::load_first(row.add(start), places.len());
                    if let Some(rectified) = &rectified {
                        let y = R::load_first(rectified[part + at].add(start), places.len());
                        *value = value.where_passes(y);
                    }
                }
            }
            R::transpose(&mut values);
            for (place, column) in places.iter().zip(values) {
                // SAFETY: places are inside, as the caller promises.
                unsafe { store(column, target.as_mut_ptr(), *place as usize, part) };
            }
        }
    }
}

/// As [`gather_in`].
///
/// # Safety
/// Parts that are not null have an element for each place, and places are inside `plane`.
#[inline(always)]
unsafe fn apart_in<R: Register, const N: usize, const B: usize>(
    plane: &[[f32; N]],
    places: &[u32],
    accumulate: bool,
    images: [*mut f32; N],
) {
    for (block, places) in places.chunks(B).enumerate() {
        let start = block * B;
        for part in parts::<R, N>() {
            let mut values = [R::splat(0.0); B];
            for (value, place) in values.iter_mut().zip(places) {
                // SAFETY: as the caller promises.
                *value = unsafe { load(plane.as_ptr(), *place as usize, part) };
            }
            R::transpose(&mut values);
            for (at, column) in values.into_iter().enumerate() {
                let image = images[part + at];
                if image.is_null() {
                    continue;
                }
                // SAFETY: the elements are inside the image's part, as the caller promises.
                unsafe {
                    let target = image.add(start);
                    let value = if accumulate { R::load_first(target, places.len()).add(column) } else { column };
                    value.store_first(target, places.len());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::layout::for_each_group;
    use super::*;

    fn gather_slowly<const N: usize>(
        rows: Rows<'_, N>,
        rectified: Option<Rows<'_, N>>,
        places: &[u32],
        target: &mut [[f32; N]],
    ) {
        for (p, place) in places.iter().enumerate() {
            target[*place as usize] = std::array::from_fn(|image| {
                let falls = rectified.and_then(|of| of[image]).is_some_and(|y| y[p] <= 0.0);
                rows[image].filter(|_| !falls).map_or(0.0, |row| row[p])
            });
        }
    }

    fn apart_slowly<const N: usize>(
        plane: &[[f32; N]],
        places: &[u32],
        accumulate: bool,
        parts: &mut [Option<&mut [f32]>; N],
    ) {
        for (image, part) in parts.iter_mut().enumerate() {
            for (value, place) in part.iter_mut().flat_map(|part| part.iter_mut()).zip(places) {
                let found = plane[*place as usize][image];
                *value = if accumulate { *value + found } else { found };
            }
        }
    }

    proptest! {
        /// Any number of images and places, padded by a step between places; a NaN after the ReLU passes the gradient.
        #[test]
        fn fast_and_slow_loops_agree(images in 1..=16usize, len in 1..40usize, step in 1..3usize, accumulate: bool) {
            for_each_group!({
                let (images, size, start) = (images.min(N), len + 3, 2);
                let number = |at: usize| ((at * 37) % 23) as f32 - 11.0;
                let input: Vec<f32> = (0..images * size).map(number).collect();
                let output: Vec<f32> = (0..images * size).map(|at| if at % 7 == 0 { f32::NAN } else { number(at + 5) }).collect();
                let places: Vec<u32> = (0..len).map(|p| (p * step + 1) as u32).collect();
                let blank = vec![[5.0; N]; len * step + 1];
                let bits = |plane: &[[f32; N]]| plane.iter().flat_map(|one| one.map(f32::to_bits)).collect::<Vec<_>>();
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
                    parts.resize_with(N, || None);
                    let mut parts: [Option<&mut [f32]>; N] = parts.try_into().expect("N parts");
                    apart_slowly(&slow, &places, accumulate, &mut parts);
                    let shared = super::super::threads::Disjoint::new(&mut back);
                    // SAFETY: images are disjoint.
                    let part = |image: usize| (image < images).then(|| unsafe { shared.part(image * len..(image + 1) * len) });
                    apart(&fast, &places, accumulate, part);
                }
                prop_assert_eq!(back, slow_back);
            });
        }
    }
}
