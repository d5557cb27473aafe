//! Functions of one element: sigmoid and tanh here, others in files of their own.

use std::marker::PhantomData;

use lockstep_models::Layer;

use super::elementwise::merge;
use super::threads::{Disjoint, Threads, tile_range};
use super::{Forward, Gradients, Head, Wanted};
use crate::simd::wide;
use crate::workspace::{Workspace, bytes};

/// Elements one tile covers.
const TILE: usize = 16 * 1024;

/// The head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    match of.layer {
        Layer::Sigmoid => Some(Activation::<Sigmoid>::boxed(of.threads)),
        Layer::Tanh => Some(Activation::<Tanh>::boxed(of.threads)),
        _ => None,
    }
}

/// A function of one element. `exp` and `tanh` are the platform's, whose last bit may differ elsewhere.
pub(crate) trait Curve: Send + Sync + 'static {
    /// Whether its slope follows from the input; else it follows from the output.
    const FROM_INPUT: bool;

    /// The output.
    fn value(x: f32) -> f32;

    /// The slope where the input, or the output, is `at`.
    fn slope(at: f32) -> f32;
}

/// 1 / (1 + e⁻ˣ).
pub(crate) struct Sigmoid;

impl Curve for Sigmoid {
    const FROM_INPUT: bool = false;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        1.0 / (1.0 + (-x).exp())
    }

    #[inline(always)]
    fn slope(y: f32) -> f32 {
        y * (1.0 - y)
    }
}

/// tanh x.
struct Tanh;

impl Curve for Tanh {
    const FROM_INPUT: bool = false;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        x.tanh()
    }

    #[inline(always)]
    fn slope(y: f32) -> f32 {
        1.0 - y * y
    }
}

/// A layer that applies a function to every element.
pub(crate) struct Activation<C> {
    threads: Threads,
    curve: PhantomData<C>,
}

impl<C: Curve> Activation<C> {
    /// The head of the layer.
    pub(crate) fn boxed(threads: &Threads) -> Box<dyn Head> {
        Box::new(Activation::<C> { threads: threads.clone(), curve: PhantomData })
    }

    /// Elements of a backward pass' workspace.
    fn workspace(&self) -> [usize; 1] {
        [self.threads.count() * TILE]
    }
}

impl<C: Curve> Head for Activation<C> {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (input, output) = (of.inputs[0], of.output);
        let len = output.len();
        let output = Disjoint::new(output);
        self.threads.each(len.div_ceil(TILE), |_, tile| {
            let range = tile_range(tile, TILE, len);
            // SAFETY: each tile has its own range.
            let output = unsafe { output.part(range.clone()) };
            if input.is_empty() {
                output.iter_mut().for_each(|y| *y = C::value(*y));
            } else {
                output.iter_mut().zip(&input[range]).for_each(|(y, x)| *y = C::value(*x));
            }
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some(d_input) = of.d_inputs.first_mut().and_then(|d_input| d_input.as_deref_mut()) else { return };
        let accumulate = of.accumulate_inputs.first().is_some_and(|accumulate| *accumulate);
        let (len, from) = (of.d_output.len(), if C::FROM_INPUT { of.inputs[0] } else { of.output });
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
                    for ((d_x, d_y), y) in scratch.iter_mut().zip(&of.d_output[range.clone()]).zip(&from[range]) {
                        *d_x = *d_y * C::slope(*y);
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
