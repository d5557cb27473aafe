//! Applies functions of one element: sigmoid and tanh here, others in files of their own.

use std::marker::PhantomData;

use lockstep_models::Layer;

use super::threads::Threads;
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{put, wide};
use crate::workspace::Workspace;

/// Elements one tile covers.
const TILE: usize = 16 * 1024;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    match of.layer {
        Layer::Sigmoid => Some(Activation::<Sigmoid>::boxed(of.threads)),
        Layer::Tanh => Some(Activation::<Tanh>::boxed(of.threads)),
        _ => None,
    }
}

/// A function of one element. `exp` and `tanh` are the platform's, whose last bit may differ elsewhere.
pub(crate) trait Curve: Send + Sync + 'static {
    /// Whether its derivative is computed from the input; else it is computed from the output.
    const FROM_INPUT: bool;

    /// The output.
    fn value(x: f32) -> f32;

    /// The derivative where the input, or the output, is `at`.
    fn derivative(at: f32) -> f32;
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
    fn derivative(y: f32) -> f32 {
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
    fn derivative(y: f32) -> f32 {
        1.0 - y * y
    }
}

/// A layer that applies a function to every element.
pub(crate) struct Activation<C> {
    threads: Threads,
    curve: PhantomData<C>,
}

impl<C: Curve> Activation<C> {
    /// The layer as a head.
    pub(crate) fn boxed(threads: &Threads) -> Box<dyn Head> {
        Box::new(Activation::<C> { threads: threads.clone(), curve: PhantomData })
    }
}

impl<C: Curve> Head for Activation<C> {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (input, output) = (of.inputs[0], of.output);
        self.threads.each_chunk(output, TILE, |_, range, output| {
            wide!(if input.is_empty() {
                output.iter_mut().for_each(|y| *y = C::value(*y));
            } else {
                output.iter_mut().zip(&input[range]).for_each(|(y, x)| *y = C::value(*x));
            });
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let from = if C::FROM_INPUT { of.inputs[0] } else { of.output };
        self.threads.each_chunk(d_input, TILE, |_, range, d_input| {
            wide!({
                let gradients = of.d_output[range.clone()].iter().zip(&from[range]);
                put(d_input, accumulate, gradients.map(|(d_y, at)| *d_y * C::derivative(*at)));
            });
        });
    }
}
