//! Applies the chain's tail to N images side by side.
//!
//! A pooling window's elements are whole registers here, so a maximum over N images costs as much as one over a
//! single plane.

use super::tail::{Tail, relu};
use super::window::Window;
use crate::simd::sum;

/// [`Tail::forward`] for N planes: in place, or from `products` to `pooled`; returns where the result is.
#[inline(always)]
pub(crate) fn after_products<'a, const N: usize>(
    tail: &Tail,
    products: &'a mut [[f32; N]],
    bias: Option<f32>,
    pooled: &'a mut [[f32; N]],
    best: &mut [[u32; N]],
) -> &'a [[f32; N]] {
    let output = match &tail.pool {
        Some(window) => {
            maxima(window, products, bias.unwrap_or(0.0), pooled, best);
            pooled
        }
        None => {
            if let Some(bias) = bias {
                products.iter_mut().for_each(|output| *output = output.map(|x| x + bias));
            }
            products
        }
    };
    if tail.relu {
        output.iter_mut().for_each(|output| *output = output.map(relu));
    }
    output
}

/// The places of window (y, x) inside the plane, row by row.
#[inline(always)]
fn places(window: &Window, y: usize, x: usize) -> impl Iterator<Item = usize> {
    let window = *window;
    let rows = (0..window.kernel.0).filter_map(move |tap| window.input_row(y, tap));
    rows.flat_map(move |row| {
        (0..window.kernel.1).filter_map(move |tap| {
            let column = (x * window.stride.1 + tap).wrapping_sub(window.padding.1);
            // Left of the image the column has wrapped around and is filtered out.
            (column < window.input.1).then(|| row * window.input.1 + column)
        })
    })
}

#[inline(always)]
fn maxima<const N: usize>(
    window: &Window,
    plane: &[[f32; N]],
    bias: f32,
    output: &mut [[f32; N]],
    best: &mut [[u32; N]],
) {
    for (at, (output, best)) in output.iter_mut().zip(best).enumerate() {
        let mut places = places(window, at / window.output.1, at % window.output.1);
        let (mut largest, mut where_) = match places.next() {
            Some(place) => (plane[place].map(|x| x + bias), [place as u32; N]),
            None => ([f32::NEG_INFINITY; N], [0; N]),
        };
        for place in places {
            for image in 0..N {
                let candidate = plane[place][image] + bias;
                let larger = candidate > largest[image];
                largest[image] = if larger { candidate } else { largest[image] };
                where_[image] = if larger { place as u32 } else { where_[image] };
            }
        }
        (*output, *best) = (largest, where_);
    }
}

/// Adds the gradients of N pooled planes at the places of the maxima, 0 elsewhere.
#[inline(always)]
pub(crate) fn to_maxima<const N: usize>(
    window: &Window,
    d_output: &[[f32; N]],
    best: &[[u32; N]],
    d_plane: &mut [[f32; N]],
) {
    d_plane.fill([0.0; N]);
    for (at, (d, best)) in d_output.iter().zip(best).enumerate() {
        // Copies, which the target cannot overlap: without them the compiler branches on each image.
        let (d, best) = (*d, *best);
        for place in places(window, at / window.output.1, at % window.output.1) {
            let target = &mut d_plane[place];
            for image in 0..N {
                let hit = if best[image] == place as u32 { d[image] } else { 0.0 };
                target[image] += hit;
            }
        }
    }
}

/// `target[places[p]] = plane[p]`.
pub(crate) fn spread<const N: usize>(plane: &[[f32; N]], places: &[u32], target: &mut [[f32; N]]) {
    for (value, place) in plane.iter().zip(places) {
        target[*place as usize] = *value;
    }
}

/// `target[p] = plane[places[p]]`, or adds it when `accumulate`.
#[inline(always)]
pub(crate) fn collect<const N: usize>(plane: &[[f32; N]], places: &[u32], accumulate: bool, target: &mut [[f32; N]]) {
    for (target, place) in target.iter_mut().zip(places) {
        let value = plane[*place as usize];
        if accumulate {
            target.iter_mut().zip(value).for_each(|(t, v)| *t += v);
        } else {
            *target = value;
        }
    }
}

/// `target = d` where the rectified `y` is positive, else 0.
#[inline(always)]
pub(crate) fn masked<const N: usize>(d: &[[f32; N]], y: &[[f32; N]], target: &mut [[f32; N]]) {
    for ((target, d), y) in target.iter_mut().zip(d).zip(y) {
        // Copies, as above.
        let (d, y) = (*d, *y);
        for image in 0..N {
            target[image] = if y[image] <= 0.0 { 0.0 } else { d[image] };
        }
    }
}

/// The sum over places and images.
#[inline(always)]
pub(crate) fn total<const N: usize>(plane: &[[f32; N]]) -> f32 {
    sum(plane.as_flattened(), |x| x)
}
