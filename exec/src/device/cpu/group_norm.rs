//! Normalises each sample over groups of its channels (Wu and He 2018). A thread processes a group of a sample, and in the
//! gradients of γ and β a channel.

use lockstep_models::Layer;

use super::elementwise::merge;
use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{put, sum, sum_pairs, wide};
use crate::workspace::Workspace;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::GroupNorm(layer) = of.layer else { return None };
    let (channels, plane, threads) = (of.channels(), of.plane(), of.threads.clone());
    let groups = layer.groups as usize;
    Some(Box::new(GroupNorm { channels, plane, groups, epsilon: layer.epsilon, threads, kept: Vec::new() }))
}

/// `y = γ · (x − mean) · inverse + β` with the mean and the inverse deviation of the group.
struct GroupNorm {
    channels: usize,
    plane: usize,
    groups: usize,
    epsilon: f32,
    threads: Threads,
    /// Per sample and group: its mean, its inverse deviation.
    kept: Vec<f32>,
}

impl GroupNorm {
    /// Elements of a group in a sample.
    fn size(&self) -> usize {
        self.channels / self.groups * self.plane
    }

    /// The channels of group `at` of all samples' groups.
    fn channels_of(&self, at: usize) -> std::ops::Range<usize> {
        let each = self.channels / self.groups;
        let first = at % self.groups * each;
        first..first + each
    }
}

impl Head for GroupNorm {
    /// `parameters`: γ of each channel, then β.
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (plane, size, input) = (self.plane, self.size(), of.inputs[0]);
        let (gammas, betas) = of.parameters.split_at(self.channels);
        let all = of.output.len() / size;
        let mut kept = std::mem::take(&mut self.kept);
        kept.resize(kept.len().max(2 * all), 0.0);
        let parts = Disjoint::new(&mut kept);
        self.threads.each_chunk(of.output, size, |_, range, output| {
            let at = range.start / size;
            let x = &input[range];
            // SAFETY: a group's statistics belong to its chunk.
            let kept = unsafe { parts.part(2 * at..2 * (at + 1)) };
            wide!({
                let mean = sum(x, |x| x) / size as f32;
                let variance = sum(x, |x| (x - mean) * (x - mean)) / size as f32;
                let inverse = 1.0 / (variance + self.epsilon).sqrt();
                kept.copy_from_slice(&[mean, inverse]);
                let rows = output.chunks_exact_mut(plane).zip(x.chunks_exact(plane));
                for (channel, (row, x)) in self.channels_of(at).zip(rows) {
                    let (gamma, beta) = (gammas[channel], betas[channel]);
                    row.iter_mut().zip(x).for_each(|(y, x)| *y = gamma * (x - mean) * inverse + beta);
                }
            });
        });
        self.kept = kept;
    }

    /// With n = (x − mean) · inverse and g = γ · dy: dx = inverse · (g − mean(g) − n · mean(g · n)), dγ = Σ dy · n, dβ = Σ dy.
    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let (channels, plane, size) = (self.channels, self.plane, self.size());
        let (input, d_output, parameters, kept) = (of.inputs[0], of.d_output, of.parameters, &self.kept);
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let d_parameters = Disjoint::new(d_parameters);
            self.threads.each(channels, |_, channel| {
                let (mut d_gamma, mut d_beta) = (0.0f64, 0.0f64);
                for sample in 0..d_output.len() / (channels * plane) {
                    let row = (sample * channels + channel) * plane..(sample * channels + channel + 1) * plane;
                    let at = sample * self.groups + channel / (channels / self.groups);
                    let (mean, inverse) = (kept[2 * at], kept[2 * at + 1]);
                    let (x, d) = (&input[row.clone()], &d_output[row]);
                    d_gamma += f64::from(wide!(sum_pairs(x, d, |x, d| d * ((x - mean) * inverse))));
                    d_beta += f64::from(wide!(sum(d, |d| d)));
                }
                for (place, gradient) in [(channel, d_gamma), (channels + channel, d_beta)] {
                    // SAFETY: one γ and one β per channel.
                    merge(unsafe { d_parameters.part(place..place + 1) }, &[gradient as f32], accumulate);
                }
            });
        }
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        self.threads.each_chunk(d_input, size, |_, range, d_input| {
            let at = range.start / size;
            let (mean, inverse) = (kept[2 * at], kept[2 * at + 1]);
            let (x, d) = (&input[range.clone()], &d_output[range]);
            wide!({
                let (mut gradients, mut products) = (0.0f32, 0.0f32);
                let rows = || self.channels_of(at).zip(x.chunks_exact(plane).zip(d.chunks_exact(plane)));
                for (channel, (x, d)) in rows() {
                    gradients += parameters[channel] * sum(d, |d| d);
                    products += parameters[channel] * sum_pairs(x, d, |x, d| d * ((x - mean) * inverse));
                }
                (gradients, products) = (gradients / size as f32, products / size as f32);
                for (target, (channel, (x, d))) in d_input.chunks_exact_mut(plane).zip(rows()) {
                    let gamma = parameters[channel];
                    let gradient =
                        |(x, d): (&f32, &f32)| inverse * (gamma * d - gradients - (x - mean) * inverse * products);
                    put(target, accumulate, x.iter().zip(d).map(gradient));
                }
            });
        });
    }
}
