//! Computes layers whose output elements depend on one element of each input: add, ReLU, flatten (a copy), and concat.

use lockstep_models::Layer;

use super::layout::{Fit, Layout};
use super::tail::{before_relu, relu};
use super::threads::{Disjoint, Threads, tile_range};
use super::{Forward, Gradients, Head, Wanted, size};
use crate::simd::{add_into, put, wide};
use crate::workspace::Workspace;

/// Elements of one tile.
const TILE: usize = 16 * 1024;

/// `target = gradient`, or `target += gradient` when `accumulate`.
#[inline]
pub(crate) fn merge(target: &mut [f32], gradient: &[f32], accumulate: bool) {
    if accumulate {
        add_into(target, gradient);
    } else {
        target.copy_from_slice(gradient);
    }
}

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let threads = of.threads.clone();
    match of.layer {
        Layer::Relu => Some(Box::new(Sum { relu: true, threads })),
        Layer::Add | Layer::Relayout(_) => Some(Box::new(Sum { relu: of.tail.relu, threads })),
        Layer::Concat => {
            Some(Box::new(Concat { sizes: of.inputs.iter().map(|shape| size(*shape)).collect(), threads }))
        }
        _ => None,
    }
}

/// The sum of one or more inputs, rectified or not. ReLU is the rectified sum of one input, flatten the plain one.
pub(crate) struct Sum {
    relu: bool,
    threads: Threads,
}

impl Sum {
    pub(crate) fn new(relu: bool, threads: &Threads) -> Sum {
        Sum { relu, threads: threads.clone() }
    }
}

impl Head for Sum {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let Forward { inputs, output, .. } = of;
        let in_place = inputs.iter().any(|input| input.is_empty());
        if in_place && inputs.len() == 1 && !self.relu {
            return;
        }
        self.threads.each_chunk(output, TILE, |_, range, output| {
            let mut others = inputs.iter().filter(|input| !input.is_empty()).map(|input| &input[range.clone()]);
            if let (false, Some(first)) = (in_place, others.clone().next()) {
                output.copy_from_slice(first);
                others.next();
            }
            // The last one is added and rectified in one pass.
            let mut last = others.next();
            for next in others {
                add_into(output, last.replace(next).unwrap_or_default());
            }
            wide!(match (last, self.relu) {
                (Some(last), true) => output.iter_mut().zip(last).for_each(|(y, x)| *y = relu(*y + *x)),
                (Some(last), false) => output.iter_mut().zip(last).for_each(|(y, x)| *y += *x),
                (None, true) => output.iter_mut().for_each(|y| *y = relu(*y)),
                (None, false) => {}
            });
        });
    }

    /// Computes the gradients of all inputs, tile by tile, so that each tile of the output's is read from memory once.
    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let len = of.d_output.len();
        let targets = of.d_inputs.iter_mut().flatten().map(|(d_input, adds)| (Disjoint::new(d_input), *adds));
        let targets: Vec<(Disjoint<'_, f32>, bool)> = targets.collect();
        self.threads.each(len.div_ceil(TILE), |_, tile| {
            let range = tile_range(tile, TILE, len);
            let d_output = &of.d_output[range.clone()];
            for (d_input, accumulate) in &targets {
                // SAFETY: each tile has its own range.
                let target = unsafe { d_input.part(range.clone()) };
                if !self.relu {
                    merge(target, d_output, *accumulate);
                    continue;
                }
                let output = &of.output[range.clone()];
                wide!(put(target, *accumulate, before_relu(d_output, output)));
            }
        });
    }

    fn fit(&self) -> Fit {
        Fit::Alike
    }

    fn lay(&mut self, input: Layout, output: Layout) {
        assert!(input == output, "a sum turns nothing");
    }
}

/// Inputs side by side along channels.
struct Concat {
    /// Elements per sample of each input.
    sizes: Vec<usize>,
    threads: Threads,
}

impl Head for Concat {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let Forward { inputs, output, .. } = of;
        let out: usize = self.sizes.iter().sum();
        self.threads.each_chunk(output, out, |_, range, mut rest| {
            let sample = range.start / out;
            for (input, size) in inputs.iter().zip(&self.sizes) {
                let (part, behind) = rest.split_at_mut(*size);
                part.copy_from_slice(&input[sample * size..(sample + 1) * size]);
                rest = behind;
            }
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let out: usize = self.sizes.iter().sum();
        let mut start = 0;
        for (d_input, size) in of.d_inputs.iter_mut().zip(&self.sizes) {
            if let Some((d_input, accumulate)) = d_input {
                self.threads.each_chunk(d_input, *size, |_, range, d_input| {
                    let from = range.start / size * out + start;
                    merge(d_input, &of.d_output[from..from + size], *accumulate);
                });
            }
            start += size;
        }
    }
}
