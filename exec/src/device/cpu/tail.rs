//! Applies the tail of a chain, ReLU and max pooling, to its first layer's output, plane by plane while it is in the
//! cache.
//!
//! The unfused layers run the same code on whole planes, so a chain gives the bits of its layers run one by one.

use super::maxima::max_forward;
use super::window::Window;
use crate::simd::put;

/// An optional ReLU, then an optional max pooling.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tail {
    pub(crate) relu: bool,
    pub(crate) pool: Option<Window>,
}

/// max(x, 0), but NaN for NaN, so that a diverged model shows.
#[inline(always)]
pub(crate) fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

impl Tail {
    /// The output of the tail for `plane` with `bias` added to each element; `best` gets each pooling window's first
    /// maximal place and is empty without pooling.
    #[inline(always)]
    pub(crate) fn forward(&self, plane: &[f32], bias: f32, output: &mut [f32], best: &mut [u32]) {
        match (&self.pool, self.relu) {
            (None, false) => output.iter_mut().zip(plane).for_each(|(y, x)| *y = *x + bias),
            (None, true) => output.iter_mut().zip(plane).for_each(|(y, x)| *y = relu(*x + bias)),
            (Some(window), rectify) => {
                max_forward(window, plane, |x| x + bias, output, best);
                if rectify {
                    // The maximum of rectified values is the rectified maximum.
                    output.iter_mut().for_each(|y| *y = relu(*y));
                }
            }
        }
    }

    /// The gradient before the tail, from that after it and from what `forward` wrote; without a ReLU `output` is not
    /// read.
    #[inline(always)]
    pub(crate) fn backward(&self, d_output: &[f32], output: &[f32], best: &[u32], d_plane: &mut [f32]) {
        match (&self.pool, self.relu) {
            (None, false) => d_plane.copy_from_slice(d_output),
            (None, true) => put(d_plane, false, before_relu(d_output, output)),
            (Some(_), false) => {
                d_plane.fill(0.0);
                d_output.iter().zip(best).for_each(|(d, place)| d_plane[*place as usize] += *d);
            }
            (Some(_), true) => {
                d_plane.fill(0.0);
                before_relu(d_output, output).zip(best).for_each(|(d, place)| d_plane[*place as usize] += d);
            }
        }
    }
}

/// `d_y` where the rectified `y` is positive, else 0.
#[inline(always)]
pub(crate) fn before_relu(d_y: &[f32], y: &[f32]) -> impl Iterator<Item = f32> {
    d_y.iter().zip(y).map(|(d_y, y)| if *y <= 0.0 { 0.0 } else { *d_y })
}
