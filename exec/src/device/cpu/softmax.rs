//! Computes softmax over sets of channels at each place. A thread processes a sample.

use lockstep_models::Layer;

use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::wide;
use crate::workspace::{Workspace, bytes};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Softmax(layer) = of.layer else { return None };
    let parts = layer.parts as usize;
    let apart = of.channels() / parts * of.plane();
    Some(Box::new(Softmax { parts, apart, threads: of.threads.clone() }))
}

/// yₖ = e^(xₖ − max) / Σ e^(xⱼ − max) over elements that are `apart`.
struct Softmax {
    parts: usize,
    /// Elements from one of a set to the next; as many sets.
    apart: usize,
    threads: Threads,
}

impl Head for Softmax {
    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace) {
        let (apart, sample) = (self.apart, self.parts * self.apart);
        let input = of.inputs[0];
        let [scratch] = workspace.parts([self.threads.count() * 2 * apart]);
        let scratch = Disjoint::new(scratch);
        self.threads.each_chunk(of.output, sample, |worker, range, output| {
            let input = &input[range];
            // SAFETY: a worker's scratch is its own.
            let scratch = unsafe { scratch.part(worker * 2 * apart..(worker + 1) * 2 * apart) };
            let (most, sums) = scratch.split_at_mut(apart);
            most.copy_from_slice(&input[..apart]);
            for row in input.chunks_exact(apart) {
                wide!(most.iter_mut().zip(row).for_each(|(most, x)| *most = most.max(*x)));
            }
            sums.fill(0.0);
            for (row, x) in output.chunks_exact_mut(apart).zip(input.chunks_exact(apart)) {
                for ((y, x), (most, sum)) in row.iter_mut().zip(x).zip(most.iter().zip(sums.iter_mut())) {
                    *y = (x - most).exp();
                    *sum += *y;
                }
            }
            for row in output.chunks_exact_mut(apart) {
                wide!(row.iter_mut().zip(sums.iter()).for_each(|(y, sum)| *y /= sum));
            }
        });
    }

    /// dxₖ = yₖ · (dyₖ − Σⱼ dyⱼ · yⱼ).
    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let (apart, sample) = (self.apart, self.parts * self.apart);
        let (output, d_output) = (of.output, of.d_output);
        let [scratch] = workspace.parts([self.threads.count() * 2 * apart]);
        let scratch = Disjoint::new(scratch);
        self.threads.each_chunk(d_input, sample, |worker, range, d_input| {
            let (y, d) = (&output[range.clone()], &d_output[range]);
            // SAFETY: a worker's scratch is its own.
            let means = &mut unsafe { scratch.part(worker * 2 * apart..(worker + 1) * 2 * apart) }[..apart];
            wide!({
                means.fill(0.0);
                for (y, d) in y.chunks_exact(apart).zip(d.chunks_exact(apart)) {
                    means.iter_mut().zip(y).zip(d).for_each(|((mean, y), d)| *mean += y * d);
                }
                let rows = d_input.chunks_exact_mut(apart).zip(y.chunks_exact(apart).zip(d.chunks_exact(apart)));
                for (target, (y, d)) in rows {
                    let gradients = y.iter().zip(d).zip(means.iter()).map(|((y, d), mean)| y * (d - mean));
                    crate::simd::put(target, accumulate, gradients);
                }
            });
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.threads.count() * 2 * self.apart])
    }
}
