//! Computes layers of straight lines with constants of their own: a constant factor and shift, and the leaky ReLU.

use lockstep_models::Layer;

use super::threads::Threads;
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{put, wide};
use crate::workspace::Workspace;

/// Elements of one tile.
const TILE: usize = 16 * 1024;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (above, below, shift, bent) = match of.layer {
        Layer::Affine(affine) => (affine.factor, affine.factor, affine.shift, false),
        Layer::LeakyRelu(leaky) => (1.0, leaky.slope, 0.0, true),
        _ => return None,
    };
    Some(Box::new(Straight { above, below, shift, bent, threads: of.threads.clone() }))
}

/// `y = above · x + shift`; with a bend at 0 `below · x` where x is not positive.
struct Straight {
    above: f32,
    below: f32,
    shift: f32,
    bent: bool,
    threads: Threads,
}

impl Head for Straight {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (input, output) = (of.inputs[0], of.output);
        let (above, below, shift) = (self.above, self.below, self.shift);
        let value = |x: f32| if x > 0.0 { above * x + shift } else { below * x + shift };
        self.threads.each_chunk(output, TILE, |_, range, output| {
            wide!(if input.is_empty() {
                output.iter_mut().for_each(|y| *y = value(*y));
            } else {
                output.iter_mut().zip(&input[range]).for_each(|(y, x)| *y = value(*x));
            });
        });
    }

    /// An output has the sign of its input where there is a bend.
    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let (above, below, bent) = (self.above, self.below, self.bent);
        self.threads.each_chunk(d_input, TILE, |_, range, d_input| {
            let d_output = &of.d_output[range.clone()];
            wide!(if bent {
                let both = d_output.iter().zip(&of.output[range]);
                put(d_input, accumulate, both.map(|(d, y)| if *y > 0.0 { above * *d } else { below * *d }));
            } else {
                put(d_input, accumulate, d_output.iter().map(|d| above * *d));
            });
        });
    }
}
