//! Computes local response normalisation across channels (Krizhevsky, Sutskever, Hinton 2012, §3.3).
//!
//! With s = k + α·Σ x² over the window around a channel, y = x·s^−β and
//! dx = dy·s^−β − 2αβ·x·Σ dy·y/s, the second sum over the same window. Loops run over whole planes, channel by channel.

use lockstep_models::{Layer, LocalResponseNorm};

use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{put, wide};
use crate::workspace::{Workspace, bytes};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::LocalResponseNorm(layer) = of.layer else { return None };
    let (channels, plane, threads) = (of.channels(), of.plane(), of.threads.clone());
    Some(Box::new(LocalResponse { layer: layer.clone(), channels, plane, threads }))
}

/// The layer; one sample is one tile.
struct LocalResponse {
    layer: LocalResponseNorm,
    channels: usize,
    plane: usize,
    threads: Threads,
}

/// s^−β by the platform's `powf`, except for AlexNet's β, which takes two square roots.
#[inline(always)]
fn power(s: f32, beta: f32) -> f32 {
    if beta == 0.75 {
        let root = s.sqrt();
        1.0 / (root * root.sqrt())
    } else {
        s.powf(-beta)
    }
}

impl LocalResponse {
    /// Elements of a backward pass's workspace: per thread s^−β and dy·y/s of a sample, and a plane of gradients.
    pub(crate) fn workspace(&self) -> [usize; 1] {
        [self.threads.count() * (2 * self.channels + 1) * self.plane]
    }

    /// The window around `channel`.
    fn window(&self, channel: usize) -> std::ops::Range<usize> {
        let half = self.layer.size as usize / 2;
        channel.saturating_sub(half)..(channel + half + 1).min(self.channels)
    }

    /// `total = Σ term(values)` over the window around `channel`, the lowest channel first.
    #[inline(always)]
    fn sum(&self, channel: usize, values: &[f32], term: impl Fn(f32) -> f32 + Copy, total: &mut [f32]) {
        total.fill(0.0);
        for other in self.window(channel) {
            let values = &values[other * self.plane..(other + 1) * self.plane];
            total.iter_mut().zip(values).for_each(|(total, value)| *total += term(*value));
        }
    }
}

impl Head for LocalResponse {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (input, output) = (of.inputs[0], of.output);
        let size = self.channels * self.plane;
        let LocalResponseNorm { alpha, beta, k, .. } = self.layer;
        self.threads.each_chunk(output, size, |_, range, ys| {
            let xs = &input[range];
            wide!({
                for (channel, ys) in ys.chunks_exact_mut(self.plane).enumerate() {
                    self.sum(channel, xs, |x| x * x, ys);
                    let xs = &xs[channel * self.plane..];
                    ys.iter_mut().zip(xs).for_each(|(y, x)| *y = *x * power(k + alpha * *y, beta));
                }
            });
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        let (plane, size) = (self.plane, self.channels * self.plane);
        let LocalResponseNorm { alpha, beta, k, .. } = self.layer;
        let own = 2 * size + plane;
        let [scratch] = workspace.parts(self.workspace());
        let places = Disjoint::new(scratch);
        self.threads.each_chunk(d_input, size, |worker, range, d_xs| {
            let (xs, ys, ds) = (&of.inputs[0][range.clone()], &of.output[range.clone()], &of.d_output[range]);
            // SAFETY: a worker's scratch is its own.
            let scratch = unsafe { places.part(worker * own..(worker + 1) * own) };
            let (powers, rest) = scratch.split_at_mut(size);
            let (ratios, d_plane) = rest.split_at_mut(size);
            wide!({
                for channel in 0..self.channels {
                    let part = channel * plane..(channel + 1) * plane;
                    let ratios = &mut ratios[part.clone()];
                    self.sum(channel, xs, |x| x * x, ratios);
                    let gradients = ds[part.clone()].iter().zip(&ys[part.clone()]);
                    for ((ratio, power_of), (d, y)) in ratios.iter_mut().zip(&mut powers[part]).zip(gradients) {
                        let s = k + alpha * *ratio;
                        *power_of = power(s, beta);
                        *ratio = *d * *y / s;
                    }
                }
                for (channel, target) in d_xs.chunks_exact_mut(plane).enumerate() {
                    let part = channel * plane..(channel + 1) * plane;
                    self.sum(channel, ratios, |ratio| ratio, d_plane);
                    let known = ds[part.clone()].iter().zip(&xs[part.clone()]).zip(&powers[part]);
                    let gradients = d_plane.iter().zip(known);
                    let gradient = |(sum, ((d, x), power)): (&f32, ((&f32, &f32), &f32))| {
                        *d * *power - 2.0 * alpha * beta * *x * *sum
                    };
                    put(target, accumulate, gradients.map(gradient));
                }
            });
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&self.workspace())
    }
}
