//! Applies the chain's tail to sixteen interleaved images.
//!
//! A pooling window's elements are whole registers here, so a maximum over sixteen images costs as much as one over a
//! single plane.

use super::tail::{Tail, relu};
use super::window::Window;
use crate::simd::sum;
use crate::workspace::Sixteen;

/// [`Tail::forward`] for sixteen planes: in place, or from `products` to `pooled`; returns where the result is.
#[inline(always)]
pub(crate) fn after_products<'a>(
    tail: &Tail,
    products: &'a mut [Sixteen],
    bias: Option<f32>,
    pooled: &'a mut [Sixteen],
    best: &mut [Sixteen<u32>],
) -> &'a [Sixteen] {
    let output = match &tail.pool {
        Some(window) => {
            maxima(window, products, bias.unwrap_or(0.0), pooled, best);
            pooled
        }
        None => {
            if let Some(bias) = bias {
                products.iter_mut().for_each(|output| output.0 = output.0.map(|x| x + bias));
            }
            products
        }
    };
    if tail.relu {
        output.iter_mut().for_each(|output| output.0 = output.0.map(relu));
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

/// Adds the gradients of sixteen pooled planes at the places of the maxima, 0 elsewhere.
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

/// `target[places[p]] = plane[p]`.
pub(crate) fn spread(plane: &[Sixteen], places: &[u32], target: &mut [Sixteen]) {
    for (value, place) in plane.iter().zip(places) {
        target[*place as usize] = *value;
    }
}

/// `target[p] = plane[places[p]]`, or adds it when `accumulate`.
#[inline(always)]
pub(crate) fn collect(plane: &[Sixteen], places: &[u32], accumulate: bool, target: &mut [Sixteen]) {
    for (target, place) in target.iter_mut().zip(places) {
        let value = plane[*place as usize].0;
        if accumulate {
            target.0.iter_mut().zip(value).for_each(|(t, v)| *t += v);
        } else {
            target.0 = value;
        }
    }
}

/// `target = d` where the rectified `y` is positive, else 0.
#[inline(always)]
pub(crate) fn masked(d: &[Sixteen], y: &[Sixteen], target: &mut [Sixteen]) {
    for ((target, d), y) in target.iter_mut().zip(d).zip(y) {
        for image in 0..16 {
            target.0[image] = if y.0[image] <= 0.0 { 0.0 } else { d.0[image] };
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
