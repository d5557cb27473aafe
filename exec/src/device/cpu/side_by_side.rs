//! Sixteen images side by side: putting them there and taking them apart, and the chain's tail on them.
//!
//! A pooling window's elements are whole registers here, so a maximum of sixteen images costs what one costs plane by plane.

use super::register_tiles::Sixteen;
use super::simd::sum;
use super::tail::{Tail, relu};
use super::window::Window;

/// `target[x][image] = input[image · size + start + x]`, 0 for images that `input` lacks.
#[inline(always)]
pub(crate) fn side_by_side(input: &[f32], size: usize, start: usize, target: &mut [Sixteen]) {
    let images = input.len() / size;
    for image in 0..16 {
        if image < images {
            let row = &input[image * size + start..][..target.len()];
            target.iter_mut().zip(row).for_each(|(target, x)| target.0[image] = *x);
        } else {
            target.iter_mut().for_each(|target| target.0[image] = 0.0);
        }
    }
}

/// The same of `d_output`, with 0 where the rectified `output` is not positive.
#[inline(always)]
pub(crate) fn rectified_side_by_side(
    d_output: &[f32],
    output: &[f32],
    size: usize,
    start: usize,
    target: &mut [Sixteen],
) {
    let images = output.len() / size;
    for image in 0..16 {
        if image < images {
            let part = image * size + start..image * size + start + target.len();
            let row = d_output[part.clone()].iter().zip(&output[part]);
            target.iter_mut().zip(row).for_each(|(t, (d, y))| t.0[image] = if *y <= 0.0 { 0.0 } else { *d });
        } else {
            target.iter_mut().for_each(|target| target.0[image] = 0.0);
        }
    }
}

/// Writes (or adds, when `accumulate`) what stands side by side to the place that `part` names for each image that there is.
#[inline(always)]
pub(crate) fn apart<'a>(plane: &[Sixteen], accumulate: bool, part: impl Fn(usize) -> Option<&'a mut [f32]>) {
    for image in 0..16 {
        let Some(target) = part(image) else { return };
        let values = target.iter_mut().zip(plane);
        if accumulate {
            values.for_each(|(target, values)| *target += values.0[image]);
        } else {
            values.for_each(|(target, values)| *target = values.0[image]);
        }
    }
}

/// [`Tail::forward`] for sixteen planes.
#[inline(always)]
pub(crate) fn after_products(
    tail: &Tail,
    products: &[Sixteen],
    bias: f32,
    output: &mut [Sixteen],
    best: &mut [Sixteen<u32>],
) {
    match &tail.pool {
        Some(window) => maxima(window, products, bias, output, best),
        None => {
            for (output, products) in output.iter_mut().zip(products) {
                output.0 = products.0.map(|x| x + bias);
            }
        }
    }
    if tail.relu {
        output.iter_mut().for_each(|output| output.0 = output.0.map(relu));
    }
}

/// The places of window (y, x) inside the plane, row by row.
#[inline(always)]
fn places(window: &Window, y: usize, x: usize) -> impl Iterator<Item = usize> {
    let window = *window;
    let rows = (0..window.kernel.0).filter_map(move |tap| window.input_row(y, tap));
    rows.flat_map(move |row| {
        (0..window.kernel.1).filter_map(move |tap| {
            let column = (x * window.stride.1 + tap).wrapping_sub(window.padding.1);
            (column < window.input.1).then_some(row * window.input.1 + column)
        })
    })
}

#[inline(always)]
fn maxima(window: &Window, plane: &[Sixteen], bias: f32, output: &mut [Sixteen], best: &mut [Sixteen<u32>]) {
    for (at, (output, best)) in output.iter_mut().zip(best).enumerate() {
        let mut places = places(window, at / window.output.1, at % window.output.1);
        let (mut largest, mut where_) = match places.next() {
            Some(place) => (plane[place].0.map(|x| x + bias), [place as u32; 16]),
            None => ([f32::NEG_INFINITY; 16], [0; 16]),
        };
        for place in places {
            for image in 0..16 {
                let candidate = plane[place].0[image] + bias;
                let larger = candidate > largest[image];
                largest[image] = if larger { candidate } else { largest[image] };
                where_[image] = if larger { place as u32 } else { where_[image] };
            }
        }
        (output.0, best.0) = (largest, where_);
    }
}

/// Sends the gradients of sixteen pooled planes to the places of the maxima, 0 elsewhere.
#[inline(always)]
pub(crate) fn to_maxima(window: &Window, d_output: &[Sixteen], best: &[Sixteen<u32>], d_plane: &mut [Sixteen]) {
    d_plane.fill(Sixteen([0.0; 16]));
    for (at, (d, best)) in d_output.iter().zip(best).enumerate() {
        let (d, best) = (d.0, best.0);
        for place in places(window, at / window.output.1, at % window.output.1) {
            let target = &mut d_plane[place].0;
            for image in 0..16 {
                let hit = if best[image] == place as u32 { d[image] } else { 0.0 };
                target[image] += hit;
            }
        }
    }
}

/// The sum over places and images.
#[inline(always)]
pub(crate) fn total(plane: &[Sixteen]) -> f32 {
    // SAFETY: a `Sixteen` is sixteen floats without padding.
    let flat = unsafe { std::slice::from_raw_parts(plane.as_ptr().cast::<f32>(), plane.len() * 16) };
    sum(flat, |x| x)
}
