//! Sigmoid and tanh: layers whose slope follows from their own output.

use super::elementwise::merge;
use super::threads::{Disjoint, Threads, tile_range};
use super::{Forward, Gradients, Head};
use crate::simd::wide;
use crate::workspace::{Workspace, bytes};

/// Elements one tile covers.
const TILE: usize = 16 * 1024;

/// Which curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Curve {
    Sigmoid,
    Tanh,
}

impl Curve {
    /// `exp` and `tanh` are the platform's, whose last bit may differ elsewhere.
    fn value(self, x: f32) -> f32 {
        match self {
            Curve::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Curve::Tanh => x.tanh(),
        }
    }

    /// The slope where the value is `y`.
    #[inline(always)]
    fn slope(self, y: f32) -> f32 {
        match self {
            Curve::Sigmoid => y * (1.0 - y),
            Curve::Tanh => 1.0 - y * y,
        }
    }
}

/// A layer that applies a curve to every element.
pub(crate) struct Activation {
    curve: Curve,
    threads: Threads,
}

impl Activation {
    pub(crate) fn new(curve: Curve, threads: &Threads) -> Activation {
        Activation { curve, threads: threads.clone() }
    }

    /// Elements of a backward pass' workspace.
    pub(crate) fn workspace(&self) -> [usize; 1] {
        [self.threads.count() * TILE]
    }
}

impl Head for Activation {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (input, output) = (of.inputs[0], of.output);
        let len = output.len();
        let output = Disjoint::new(output);
        self.threads.each(len.div_ceil(TILE), |_, tile| {
            let range = tile_range(tile, TILE, len);
            // SAFETY: each tile has its own range.
            let output = unsafe { output.part(range.clone()) };
            if input.is_empty() {
                output.iter_mut().for_each(|y| *y = self.curve.value(*y));
            } else {
                output.iter_mut().zip(&input[range]).for_each(|(y, x)| *y = self.curve.value(*x));
            }
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some(d_input) = of.d_inputs.first_mut().and_then(|d_input| d_input.as_deref_mut()) else { return };
        let accumulate = of.accumulate_inputs.first().is_some_and(|accumulate| *accumulate);
        let (len, curve) = (of.d_output.len(), self.curve);
        let [scratch] = workspace.parts(self.workspace());
        let (scratch, d_input) = (Disjoint::new(scratch), Disjoint::new(d_input));
        self.threads.each(len.div_ceil(TILE), |worker, tile| {
            let range = tile_range(tile, TILE, len);
            // SAFETY: each tile has its own range, each worker its own scratch.
            let (d_input, scratch) =
                unsafe { (d_input.part(range.clone()), scratch.part(worker * TILE..worker * TILE + range.len())) };
            wide(
                #[inline(always)]
                || {
                    for ((d_x, d_y), y) in scratch.iter_mut().zip(&of.d_output[range.clone()]).zip(&of.output[range]) {
                        *d_x = *d_y * curve.slope(*y);
                    }
                },
            );
            merge(d_input, scratch, accumulate);
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&self.workspace())
    }
}
