//! Scales each channel by its norm among all channels' norms (Woo et al. 2023). A thread processes a sample, and in the
//! gradients of γ and β a channel.

use lockstep_models::Layer;

use super::elementwise::merge;
use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{put, sum, sum_pairs, wide};
use crate::workspace::{Workspace, bytes};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::ResponseNorm(layer) = of.layer else { return None };
    let (channels, plane, threads) = (of.channels(), of.plane(), of.threads.clone());
    Some(Box::new(ResponseNorm { channels, plane, epsilon: layer.epsilon, threads, kept: Vec::new() }))
}

/// `y = γ · x · g / m + β + x` with the channel's norm g and m, the mean of the sample's norms plus ε.
struct ResponseNorm {
    channels: usize,
    plane: usize,
    epsilon: f32,
    threads: Threads,
    /// Per sample: the norm of each channel.
    kept: Vec<f32>,
}

impl ResponseNorm {
    /// m of a sample.
    fn mean(&self, norms: &[f32]) -> f32 {
        sum(norms, |norm| norm) / self.channels as f32 + self.epsilon
    }
}

impl Head for ResponseNorm {
    /// `parameters`: γ of each channel, then β.
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (channels, plane, input) = (self.channels, self.plane, of.inputs[0]);
        let sample = channels * plane;
        let (gammas, betas) = of.parameters.split_at(channels);
        let mut kept = std::mem::take(&mut self.kept);
        kept.resize(kept.len().max(of.output.len() / plane), 0.0);
        let parts = Disjoint::new(&mut kept);
        self.threads.each_chunk(of.output, sample, |_, range, output| {
            let first = range.start / plane;
            let x = &input[range];
            // SAFETY: a sample's norms belong to its chunk.
            let norms = unsafe { parts.part(first..first + channels) };
            wide!({
                for (norm, x) in norms.iter_mut().zip(x.chunks_exact(plane)) {
                    *norm = sum(x, |x| x * x).sqrt();
                }
                let mean = self.mean(norms);
                let rows = output.chunks_exact_mut(plane).zip(x.chunks_exact(plane));
                for (channel, (row, x)) in rows.enumerate() {
                    let (factor, beta) = (gammas[channel] * (norms[channel] / mean), betas[channel]);
                    row.iter_mut().zip(x).for_each(|(y, x)| *y = factor * x + beta + x);
                }
            });
        });
        self.kept = kept;
    }

    /// With n = g / m and s = γ · Σ dy · x of each channel: dx = dy · (1 + γ · n) + x / g · (s − mean(s · n)) / m, without
    /// the second term where g is 0; dγ = Σ n · dy · x, dβ = Σ dy.
    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (channels, plane) = (self.channels, self.plane);
        let sample = channels * plane;
        let (input, d_output, parameters, kept) = (of.inputs[0], of.d_output, of.parameters, &self.kept);
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let d_parameters = Disjoint::new(d_parameters);
            let means = kept[..d_output.len() / plane].chunks_exact(channels).map(|norms| self.mean(norms));
            let means: Vec<f32> = means.collect();
            self.threads.each(channels, |_, channel| {
                let (mut d_gamma, mut d_beta) = (0.0f64, 0.0f64);
                for (at, mean) in means.iter().enumerate() {
                    let row = (at * channels + channel) * plane..(at * channels + channel + 1) * plane;
                    let (x, d) = (&input[row.clone()], &d_output[row]);
                    let normal = kept[at * channels + channel] / mean;
                    d_gamma += f64::from(normal * wide!(sum_pairs(x, d, |x, d| x * d)));
                    d_beta += f64::from(wide!(sum(d, |d| d)));
                }
                for (place, gradient) in [(channel, d_gamma), (channels + channel, d_beta)] {
                    // SAFETY: one γ and one β per channel.
                    merge(unsafe { d_parameters.part(place..place + 1) }, &[gradient as f32], accumulate);
                }
            });
        }
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let [scratch] = workspace.parts([self.threads.count() * channels]);
        let scratch = Disjoint::new(scratch);
        self.threads.each_chunk(d_input, sample, |worker, range, d_input| {
            let norms = &kept[range.start / plane..][..channels];
            let (x, d) = (&input[range.clone()], &d_output[range]);
            // SAFETY: a worker's scratch is its own.
            let gradients = unsafe { scratch.part(worker * channels..(worker + 1) * channels) };
            wide!({
                let mean = self.mean(norms);
                let rows = || x.chunks_exact(plane).zip(d.chunks_exact(plane));
                for ((gradient, gamma), (x, d)) in gradients.iter_mut().zip(parameters).zip(rows()) {
                    *gradient = gamma * sum_pairs(x, d, |x, d| x * d);
                }
                let shared = sum_pairs(gradients, norms, |gradient, norm| gradient * (norm / mean)) / channels as f32;
                for (channel, (target, (x, d))) in d_input.chunks_exact_mut(plane).zip(rows()).enumerate() {
                    let norm = norms[channel];
                    let factor = 1.0 + parameters[channel] * (norm / mean);
                    let pull = if norm > 0.0 { (gradients[channel] - shared) / mean / norm } else { 0.0 };
                    put(target, accumulate, x.iter().zip(d).map(|(x, d)| factor * d + pull * x));
                }
            });
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.threads.count() * self.channels])
    }
}
