//! Batch normalisation (Ioffe & Szegedy 2015, Algorithm 1 and the gradients of §3).
//!
//! A thread has a channel's whole batch to itself, so no sum crosses threads. Sums run in f32 inside a plane and in f64 over
//! the planes.

use lockstep_models::BatchNorm as Layer;

use super::elementwise::merge;
use super::simd::{sum, sum_pairs, wide};
use super::tail::{mask, relu};
use super::threads::{Disjoint, Threads, tile_range};
use super::workspace::Workspace;
use super::{Gradients, Mode};

/// Channels of one tile where planes are smaller than a cache line, so that tiles do not share lines.
const SMALL: usize = 16;

/// `y = γ · (x − mean) / √(variance + ε) + β` per channel, rectified or not.
pub(crate) struct BatchNorm {
    channels: usize,
    plane: usize,
    epsilon: f32,
    momentum: f32,
    relu: bool,
    threads: Threads,
    /// Per channel: the batch's mean and 1 / √(variance + ε).
    batch: Vec<(f32, f32)>,
}

/// One channel's planes: the range of each in the batch.
fn plane_of(sample: usize, channel: usize, channels: usize, plane: usize) -> std::ops::Range<usize> {
    let start = (sample * channels + channel) * plane;
    start..start + plane
}

impl BatchNorm {
    pub(crate) fn new(layer: &Layer, channels: usize, plane: usize, relu: bool, threads: &Threads) -> BatchNorm {
        BatchNorm {
            channels,
            plane,
            epsilon: layer.epsilon,
            momentum: layer.momentum,
            relu,
            threads: threads.clone(),
            batch: vec![(0.0, 0.0); channels],
        }
    }

    /// Elements of a backward pass' workspace: per thread a plane of gradients before the ReLU, and one towards the input.
    pub(crate) fn workspace(&self) -> [usize; 1] {
        [self.threads.count() * 2 * self.plane]
    }

    fn tile(&self) -> usize {
        if self.plane >= SMALL { 1 } else { SMALL }
    }

    /// `statistics`: running means, then running variances, updated in training. The running variance takes the unbiased one
    /// of the batch, as the paper's Algorithm 2 wants (the biased one if there is but one element).
    pub(crate) fn forward(
        &mut self,
        mode: Mode,
        input: &[f32],
        parameters: &[f32],
        statistics: &mut [f32],
        output: &mut [f32],
    ) {
        let (channels, plane, tile) = (self.channels, self.plane, self.tile());
        let samples = output.len() / (channels * plane);
        let count = (samples * plane) as f64;
        let (gamma, beta) = parameters.split_at(channels);
        let (means, variances) = statistics.split_at_mut(channels);
        let (means, variances) = (Disjoint::new(means), Disjoint::new(variances));
        let (batch, output) = (Disjoint::new(&mut self.batch), Disjoint::new(output));
        self.threads.each(channels.div_ceil(tile), |_, index| {
            let range = tile_range(index, tile, channels);
            // SAFETY: channels belong to one tile.
            let (means, variances, batch) =
                unsafe { (means.part(range.clone()), variances.part(range.clone()), batch.part(range.clone())) };
            let planes = || (0..samples).flat_map(|sample| range.clone().map(move |channel| (sample, channel)));
            // The weight of what the running statistics were.
            let keep = match mode {
                Mode::Train => Some(self.momentum),
                Mode::Statistics { batch } => Some(batch as f32 / (batch as f32 + 1.0)),
                Mode::Evaluate => None,
            };
            if let Some(keep) = keep {
                let (mut total, mut squares) = ([0.0f64; SMALL], [0.0f64; SMALL]);
                wide(
                    #[inline(always)]
                    || {
                        for (sample, channel) in planes() {
                            let xs = &input[plane_of(sample, channel, channels, plane)];
                            total[channel - range.start] += f64::from(sum(xs, |x| x));
                        }
                        for (sample, channel) in planes() {
                            let mean = (total[channel - range.start] / count) as f32;
                            let xs = &input[plane_of(sample, channel, channels, plane)];
                            squares[channel - range.start] += f64::from(sum(xs, |x| (x - mean) * (x - mean)));
                        }
                    },
                );
                for at in 0..range.len() {
                    let (mean, variance) = (total[at] / count, squares[at] / count);
                    let unbiased = if count > 1.0 { squares[at] / (count - 1.0) } else { variance };
                    batch[at] = (mean as f32, (1.0 / (variance + f64::from(self.epsilon)).sqrt()) as f32);
                    means[at] = keep * means[at] + (1.0 - keep) * mean as f32;
                    variances[at] = keep * variances[at] + (1.0 - keep) * unbiased as f32;
                }
            } else {
                for at in 0..range.len() {
                    let deviation = (f64::from(variances[at]) + f64::from(self.epsilon)).sqrt();
                    batch[at] = (means[at], (1.0 / deviation) as f32);
                }
            }
            wide(
                #[inline(always)]
                || {
                    for (sample, channel) in planes() {
                        let (mean, inverse) = batch[channel - range.start];
                        let (scale, shift) = (gamma[channel] * inverse, beta[channel]);
                        let part = plane_of(sample, channel, channels, plane);
                        // SAFETY: channels belong to one tile.
                        let ys = unsafe { output.part(part.clone()) };
                        for (y, x) in ys.iter_mut().zip(&input[part]) {
                            let value = (*x - mean) * scale + shift;
                            *y = if self.relu { relu(value) } else { value };
                        }
                    }
                },
            );
        });
    }

    pub(crate) fn backward(&self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (channels, plane, tile) = (self.channels, self.plane, self.tile());
        let input = of.inputs[0];
        let samples = of.d_output.len() / (channels * plane);
        let count = (samples * plane) as f64;
        let (rectified, accumulate_parameters) = (self.relu, of.accumulate_parameters);
        let accumulate = of.accumulate_inputs.first().is_some_and(|accumulate| *accumulate);
        let d_input = of.d_inputs.first_mut().and_then(|d_input| d_input.as_deref_mut()).map(Disjoint::new);
        let d_parameters = of.d_parameters.map(|d_parameters| {
            let (d_gamma, d_beta) = d_parameters.split_at_mut(channels);
            (Disjoint::new(d_gamma), Disjoint::new(d_beta))
        });
        let [scratch] = workspace.parts(self.workspace());
        let (scratch, batch) = (Disjoint::new(scratch), &self.batch);
        self.threads.each(channels.div_ceil(tile), |worker, index| {
            let range = tile_range(index, tile, channels);
            // SAFETY: a worker's scratch is its own.
            let (masked, d_plane) =
                unsafe { scratch.part(worker * 2 * plane..(worker + 1) * 2 * plane) }.split_at_mut(plane);
            let planes = || (0..samples).flat_map(|sample| range.clone().map(move |channel| (sample, channel)));
            let (mut d_gamma, mut d_beta) = ([0.0f64; SMALL], [0.0f64; SMALL]);
            wide(
                #[inline(always)]
                || {
                    for (sample, channel) in planes() {
                        let (mean, inverse) = batch[channel];
                        let part = plane_of(sample, channel, channels, plane);
                        let ds = before_relu(rectified, of.d_output, of.output, part.clone(), masked);
                        let products = sum_pairs(ds, &input[part], |d, x| d * (x - mean));
                        d_gamma[channel - range.start] += f64::from(products * inverse);
                        d_beta[channel - range.start] += f64::from(sum(ds, |d| d));
                    }
                },
            );
            if let Some((gammas, betas)) = &d_parameters {
                let d_gamma = d_gamma.map(|d| d as f32);
                let d_beta = d_beta.map(|d| d as f32);
                // SAFETY: channels belong to one tile.
                let (gammas, betas) = unsafe { (gammas.part(range.clone()), betas.part(range.clone())) };
                merge(gammas, &d_gamma[..range.len()], accumulate_parameters);
                merge(betas, &d_beta[..range.len()], accumulate_parameters);
            }
            let Some(d_input) = &d_input else { return };
            wide(
                #[inline(always)]
                || {
                    for (sample, channel) in planes() {
                        let (mean, inverse) = batch[channel];
                        let part = plane_of(sample, channel, channels, plane);
                        let ds = before_relu(rectified, of.d_output, of.output, part.clone(), masked);
                        let scale = of.parameters[channel] * inverse;
                        let along = (d_gamma[channel - range.start] / count) as f32 * inverse;
                        let level = (d_beta[channel - range.start] / count) as f32;
                        for ((d_x, d), x) in d_plane.iter_mut().zip(ds).zip(&input[part.clone()]) {
                            *d_x = (*d - level - (*x - mean) * along) * scale;
                        }
                        // SAFETY: channels belong to one tile.
                        let target = unsafe { d_input.part(part) };
                        if accumulate {
                            target.iter_mut().zip(&*d_plane).for_each(|(t, d)| *t += *d);
                        } else {
                            target.iter_mut().zip(&*d_plane).for_each(|(t, d)| *t = *d);
                        }
                    }
                },
            );
        });
    }
}

/// The gradient of one plane before the ReLU, if there is one.
#[inline(always)]
fn before_relu<'a>(
    rectified: bool,
    d_output: &'a [f32],
    output: &[f32],
    part: std::ops::Range<usize>,
    masked: &'a mut [f32],
) -> &'a [f32] {
    if !rectified {
        return &d_output[part];
    }
    mask(&d_output[part.clone()], &output[part], masked);
    masked
}
