//! Normalises each pixel of an image over its channels (Ba et al. 2016). A thread processes a sample, and in the gradients of
//! γ and β a channel.

use lockstep_models::Layer;

use super::elementwise::merge;
use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{put, wide};
use crate::workspace::{Workspace, bytes};

/// Makes the head of such a layer; rows of features are normalised elsewhere.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::LayerNorm(layer) = of.layer else { return None };
    let (channels, plane, threads) = (of.channels(), of.plane(), of.threads.clone());
    if plane == 1 {
        return None;
    }
    Some(Box::new(LayerNorm { channels, plane, epsilon: layer.epsilon, threads, kept: Vec::new() }))
}

/// `y = γ · (x − mean) · inverse + β` with the mean and the inverse deviation of the place.
struct LayerNorm {
    channels: usize,
    plane: usize,
    epsilon: f32,
    threads: Threads,
    /// Per sample: the means of its places, then their inverse deviations.
    kept: Vec<f32>,
}

impl Head for LayerNorm {
    /// `parameters`: γ of each channel, then β.
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (channels, plane, epsilon) = (self.channels, self.plane, self.epsilon);
        let sample = channels * plane;
        let (input, parameters) = (of.inputs[0], of.parameters);
        let samples = of.output.len() / sample;
        self.kept.resize(self.kept.len().max(2 * plane * samples), 0.0);
        let kept = Disjoint::new(&mut self.kept);
        self.threads.each_chunk(of.output, sample, |_, range, output| {
            let at = range.start / sample;
            let input = &input[range];
            // SAFETY: a sample's statistics belong to its chunk.
            let kept = unsafe { kept.part(2 * plane * at..2 * plane * (at + 1)) };
            let (means, inverses) = kept.split_at_mut(plane);
            wide!({
                means.fill(0.0);
                inverses.fill(0.0);
                for row in input.chunks_exact(plane) {
                    means.iter_mut().zip(row).for_each(|(mean, x)| *mean += *x);
                }
                means.iter_mut().for_each(|mean| *mean /= channels as f32);
                for row in input.chunks_exact(plane) {
                    let places = inverses.iter_mut().zip(means.iter()).zip(row);
                    places.for_each(|((square, mean), x)| *square += (*x - *mean) * (*x - *mean));
                }
                inverses.iter_mut().for_each(|square| *square = 1.0 / (*square / channels as f32 + epsilon).sqrt());
                for (channel, (row, x)) in output.chunks_exact_mut(plane).zip(input.chunks_exact(plane)).enumerate() {
                    let (gamma, beta) = (parameters[channel], parameters[channels + channel]);
                    let places = row.iter_mut().zip(x).zip(means.iter().zip(inverses.iter()));
                    places.for_each(|((y, x), (mean, inverse))| *y = gamma * (*x - *mean) * *inverse + beta);
                }
            });
        });
    }

    /// With n = (x − mean) · inverse and g = γ · dy: dx = inverse · (g − mean(g) − n · mean(g · n)), dγ = Σ dy · n, dβ = Σ dy.
    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (channels, plane) = (self.channels, self.plane);
        let sample = channels * plane;
        let (input, d_output, parameters, kept) = (of.inputs[0], of.d_output, of.parameters, &self.kept);
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let d_parameters = Disjoint::new(d_parameters);
            self.threads.each(channels, |_, channel| {
                let (mut d_gamma, mut d_beta) = (0.0f64, 0.0f64);
                for at in 0..d_output.len() / sample {
                    let row = at * sample + channel * plane..at * sample + (channel + 1) * plane;
                    let (means, inverses) = kept[2 * plane * at..2 * plane * (at + 1)].split_at(plane);
                    let places = d_output[row.clone()].iter().zip(&input[row]).zip(means.iter().zip(inverses));
                    for ((d, x), (mean, inverse)) in places {
                        d_gamma += f64::from(*d * (*x - *mean) * *inverse);
                        d_beta += f64::from(*d);
                    }
                }
                for (place, gradient) in [(channel, d_gamma), (channels + channel, d_beta)] {
                    // SAFETY: one γ and one β per channel.
                    merge(unsafe { d_parameters.part(place..place + 1) }, &[gradient as f32], accumulate);
                }
            });
        }
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let [scratch] = workspace.parts([self.threads.count() * 2 * plane]);
        let scratch = Disjoint::new(scratch);
        self.threads.each_chunk(d_input, sample, |worker, range, d_input| {
            let (means, inverses) = kept[range.start / sample * 2 * plane..][..2 * plane].split_at(plane);
            let (x, d) = (&input[range.clone()], &d_output[range]);
            // SAFETY: a worker's scratch is its own.
            let scratch = unsafe { scratch.part(worker * 2 * plane..(worker + 1) * 2 * plane) };
            let (gradients, products) = scratch.split_at_mut(plane);
            wide!({
                gradients.fill(0.0);
                products.fill(0.0);
                for (channel, (x, d)) in x.chunks_exact(plane).zip(d.chunks_exact(plane)).enumerate() {
                    let gamma = parameters[channel] / channels as f32;
                    for place in 0..plane {
                        gradients[place] += gamma * d[place];
                        products[place] += gamma * d[place] * (x[place] - means[place]) * inverses[place];
                    }
                }
                let rows = d_input.chunks_exact_mut(plane).zip(x.chunks_exact(plane).zip(d.chunks_exact(plane)));
                for (channel, (target, (x, d))) in rows.enumerate() {
                    let gamma = parameters[channel];
                    let gradient = |place: usize| {
                        let normal = (x[place] - means[place]) * inverses[place];
                        inverses[place] * (gamma * d[place] - gradients[place] - normal * products[place])
                    };
                    put(target, accumulate, (0..plane).map(gradient));
                }
            });
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.threads.count() * 2 * self.plane])
    }
}
