//! Computes batch normalisation (Ioffe & Szegedy 2015, Algorithm 1 and the gradients of §3).
//!
//! Each channel's whole batch is processed by one thread, so no sum crosses threads. Sums run in f32 inside a plane and
//! in f64 over the planes; those of interleaved planes are the same sums, so the layout changes no bit.

mod sums;

use lockstep_models::{BatchNorm as Settings, Layer};

use super::elementwise::merge;
use super::layout::{Fit, Layout, for_side_by_side, lines};
use super::tail::relu;
use super::threads::{Disjoint, Threads, tile_range};
use super::{Forward, Gradients, Head, Mode, Wanted, only};
use crate::simd::{put, sum, sum_pairs, wide};
use crate::workspace::Workspace;
use sums::{gradients, sums};

/// Channels of one tile where planes are smaller than a cache line, so that tiles do not share lines.
const SMALL: usize = 16;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let &Layer::BatchNorm(Settings { epsilon, momentum }) = of.layer else { return None };
    let (channels, relu, threads) = (of.channels(), of.tail.relu, of.threads.clone());
    let (plane, layout, batch) = (of.plane(), Layout::Planes, vec![(0.0, 0.0); channels]);
    Some(Box::new(BatchNorm { channels, plane, epsilon, momentum, relu, threads, layout, batch }))
}

/// `y = γ · (x − mean) / √(variance + ε) + β` per channel, rectified or not.
struct BatchNorm {
    channels: usize,
    plane: usize,
    epsilon: f32,
    momentum: f32,
    relu: bool,
    threads: Threads,
    /// The layout of input, output and their gradients.
    layout: Layout,
    /// Per channel: the batch's mean and 1 / √(variance + ε).
    batch: Vec<(f32, f32)>,
}

impl BatchNorm {
    fn tile(&self) -> usize {
        if self.plane >= SMALL { 1 } else { SMALL }
    }

    /// The parts of `channels` in a tensor of `elements`, in the order of the samples: the channel, and a plane or
    /// several side by side.
    fn parts(
        &self,
        channels: std::ops::Range<usize>,
        elements: usize,
    ) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let (all, part) = (self.channels, self.plane * self.layout.samples());
        (0..elements / (all * part)).flat_map(move |index| {
            channels.clone().map(move |channel| {
                let start = (index * all + channel) * part;
                (channel, start..start + part)
            })
        })
    }

    /// Adds Σ x over each plane of a part to `total`, or Σ (x − mean)², plane by plane.
    #[inline(always)]
    fn add_sums(&self, total: &mut f64, xs: &[f32], mean: Option<f32>) {
        match (self.layout, mean) {
            (Layout::Planes, None) => *total += f64::from(sum(xs, |x| x)),
            (Layout::Planes, Some(mean)) => *total += f64::from(sum(xs, |x| (x - mean) * (x - mean))),
            (Layout::SideBySide(samples), mean) => for_side_by_side!(samples, {
                sums::<N>(lines(xs), mean).iter().for_each(|sum| *total += f64::from(*sum));
            }),
        }
    }
}

impl Head for BatchNorm {
    /// `statistics`: running means, then running variances, updated in training. The running variance uses the batch's
    /// unbiased one, as the paper's Algorithm 2 does (the biased one if there is but one element).
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let Forward { mode, parameters, statistics, output, .. } = of;
        let input = of.inputs[0];
        let (channels, tile, elements) = (self.channels, self.tile(), output.len());
        let count = (elements / channels) as f64;
        let (gamma, beta) = parameters.split_at(channels);
        let (means, variances) = statistics.split_at_mut(channels);
        let (means, variances) = (Disjoint::new(means), Disjoint::new(variances));
        let mut batch = std::mem::take(&mut self.batch);
        let this = &*self;
        let (shared, output) = (Disjoint::new(&mut batch), Disjoint::new(output));
        this.threads.each(channels.div_ceil(tile), |_, index| {
            let range = tile_range(index, tile, channels);
            // SAFETY: channels belong to one tile.
            let (means, variances, batch) =
                unsafe { (means.part(range.clone()), variances.part(range.clone()), shared.part(range.clone())) };
            let parts = || this.parts(range.clone(), elements);
            // The weight of the old running statistics.
            let keep = match mode {
                Mode::Train => Some(this.momentum),
                Mode::Recompute => Some(1.0),
                Mode::Statistics { batch } => Some(batch as f32 / (batch as f32 + 1.0)),
                Mode::Evaluate => None,
            };
            if let Some(keep) = keep {
                let (mut total, mut squares) = ([0.0f64; SMALL], [0.0f64; SMALL]);
                wide!({
                    for (channel, part) in parts() {
                        this.add_sums(&mut total[channel - range.start], &input[part], None);
                    }
                    for (channel, part) in parts() {
                        let mean = (total[channel - range.start] / count) as f32;
                        this.add_sums(&mut squares[channel - range.start], &input[part], Some(mean));
                    }
                });
                for at in 0..range.len() {
                    let (mean, variance) = (total[at] / count, squares[at] / count);
                    let unbiased = if count > 1.0 { squares[at] / (count - 1.0) } else { variance };
                    batch[at] = (mean as f32, (1.0 / (variance + f64::from(this.epsilon)).sqrt()) as f32);
                    if mode == Mode::Recompute {
                        continue;
                    }
                    means[at] = keep * means[at] + (1.0 - keep) * mean as f32;
                    variances[at] = keep * variances[at] + (1.0 - keep) * unbiased as f32;
                }
            } else {
                for at in 0..range.len() {
                    let deviation = (f64::from(variances[at]) + f64::from(this.epsilon)).sqrt();
                    batch[at] = (means[at], (1.0 / deviation) as f32);
                }
            }
            wide!({
                for (channel, part) in parts() {
                    let (mean, inverse) = batch[channel - range.start];
                    let (scale, shift) = (gamma[channel] * inverse, beta[channel]);
                    // SAFETY: channels belong to one tile.
                    let ys = unsafe { output.part(part.clone()) };
                    for (y, x) in ys.iter_mut().zip(&input[part]) {
                        let value = (*x - mean) * scale + shift;
                        *y = if this.relu { relu(value) } else { value };
                    }
                }
            });
        });
        self.batch = batch;
    }

    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let (channels, tile, elements) = (self.channels, self.tile(), of.d_output.len());
        let input = of.inputs[0];
        let count = (elements / channels) as f64;
        let d_input = only(of.d_inputs).map(|(d_input, adds)| (Disjoint::new(d_input), adds));
        let d_parameters = of.d_parameters.map(|(d_parameters, adds)| {
            let (d_gamma, d_beta) = d_parameters.split_at_mut(channels);
            (Disjoint::new(d_gamma), Disjoint::new(d_beta), adds)
        });
        let batch = &self.batch;
        let (gamma, beta) = of.parameters.split_at(channels);
        self.threads.each(channels.div_ceil(tile), |_, index| {
            let range = tile_range(index, tile, channels);
            let parts = || self.parts(range.clone(), elements);
            let (mut d_gamma, mut d_beta) = ([0.0f64; SMALL], [0.0f64; SMALL]);
            wide!({
                for (channel, part) in parts() {
                    let (at, (mean, inverse)) = (channel - range.start, batch[channel]);
                    let rectified = self.relu.then(|| (gamma[channel] * inverse, beta[channel]));
                    let mut add = |products: f32, sum: f32| {
                        d_gamma[at] += f64::from(products * inverse);
                        d_beta[at] += f64::from(sum);
                    };
                    match self.layout {
                        Layout::Planes => {
                            let (ds, xs) = (&of.d_output[part.clone()], &input[part]);
                            let before_relu = |d: f32, x: f32| match rectified {
                                Some((scale, shift)) if (x - mean) * scale + shift <= 0.0 => 0.0,
                                _ => d,
                            };
                            let products = sum_pairs(ds, xs, |d, x| before_relu(d, x) * (x - mean));
                            add(products, sum_pairs(ds, xs, before_relu));
                        }
                        Layout::SideBySide(samples) => for_side_by_side!(samples, {
                            let (ds, xs) = (lines::<N>(&of.d_output[part.clone()]), lines(&input[part]));
                            let [products, sums] = gradients(ds, xs, mean, rectified);
                            products.iter().zip(sums).for_each(|(products, sum)| add(*products, sum));
                        }),
                    }
                }
            });
            if let Some((gammas, betas, adds)) = &d_parameters {
                let (d_gamma, d_beta) = (d_gamma.map(|d| d as f32), d_beta.map(|d| d as f32));
                // SAFETY: channels belong to one tile.
                let (gammas, betas) = unsafe { (gammas.part(range.clone()), betas.part(range.clone())) };
                merge(gammas, &d_gamma[..range.len()], *adds);
                merge(betas, &d_beta[..range.len()], *adds);
            }
            let Some((d_input, adds)) = &d_input else { return };
            wide!({
                for (channel, part) in parts() {
                    let (mean, inverse) = batch[channel];
                    let (scale, shift) = (gamma[channel] * inverse, beta[channel]);
                    let along = (d_gamma[channel - range.start] / count) as f32 * inverse;
                    let level = (d_beta[channel - range.start] / count) as f32;
                    let gradient = |d: f32, x: f32| (d - level - (x - mean) * along) * scale;
                    // SAFETY: channels belong to one tile.
                    let target = unsafe { d_input.part(part.clone()) };
                    let (ds, xs) = (&of.d_output[part.clone()], &input[part]);
                    let all = ds.iter().zip(xs);
                    if self.relu {
                        let falls = |x: f32| (x - mean) * scale + shift <= 0.0;
                        put(target, *adds, all.map(|(d, x)| gradient(if falls(*x) { 0.0 } else { *d }, *x)));
                    } else {
                        put(target, *adds, all.map(|(d, x)| gradient(*d, *x)));
                    }
                }
            });
        });
    }

    fn fit(&self) -> Fit {
        Fit::Alike
    }

    fn lay(&mut self, input: Layout, output: Layout) {
        assert!(input == output, "batch normalisation turns nothing");
        self.layout = input;
    }
}
