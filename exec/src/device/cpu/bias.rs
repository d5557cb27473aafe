//! Adds a bias per channel, or to each element of a sequence.

use lockstep_models::Layer;

use super::elementwise::{Sum, merge};
use super::threads::Threads;
use super::{Forward, Gradients, Head, Wanted, size};
use crate::simd::{add_into, sum, wide};
use crate::workspace::{Workspace, bytes};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (channels, plane) = match of.layer {
        Layer::Bias => (of.channels(), of.plane()),
        // Each element of a sequence has its own.
        Layer::PositionEmbedding => (size(of.input()), 1),
        _ => return None,
    };
    let threads = of.threads.clone();
    Some(Box::new(Bias { channels, plane, copy: Sum::new(false, of.threads), threads }))
}

/// `y = x + bias` per channel.
struct Bias {
    channels: usize,
    plane: usize,
    /// The gradient of the input is that of the output.
    copy: Sum,
    threads: Threads,
}

impl Head for Bias {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let Forward { parameters, output, .. } = of;
        let (input, plane) = (of.inputs[0], self.plane);
        self.threads.each_chunk(output, self.channels * plane, |_, sample, output| {
            let xs = &input[sample];
            if plane == 1 {
                return wide!(output.iter_mut().zip(xs).zip(parameters).for_each(|((y, x), bias)| *y = *x + *bias));
            }
            for ((ys, xs), bias) in output.chunks_exact_mut(plane).zip(xs.chunks_exact(plane)).zip(parameters) {
                wide!(ys.iter_mut().zip(xs).for_each(|(y, x)| *y = *x + *bias));
            }
        });
    }

    /// Sums one sample at a time, as a dense layer does with the gradient of its bias.
    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Gradients { d_output, d_parameters, .. } = of;
        if let Some((d_parameters, accumulate)) = d_parameters {
            let [total] = workspace.parts([self.channels]);
            total.fill(0.0);
            for sample in d_output.chunks_exact(self.channels * self.plane) {
                if self.plane == 1 {
                    add_into(total, sample);
                    continue;
                }
                for (total, ds) in total.iter_mut().zip(sample.chunks_exact(self.plane)) {
                    wide!(*total += sum(ds, |d| d));
                }
            }
            merge(d_parameters, total, accumulate);
        }
        self.copy.backward(Gradients { d_parameters: None, ..of }, workspace);
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.channels])
    }
}
