//! Runs the backward pass over N images at a time: for each group the gradient before the tail, then those of
//! parameters and images.

use super::super::elementwise::merge;
use super::super::layout::{Layout, lines, lines_mut};
use super::super::register_tiles::{CHANNELS, TAPS};
use super::super::side_by_side::{collect, masked, to_maxima, total};
use super::super::threads::{Disjoint, tile_range};
use super::super::transpose::{apart, rectified_side_by_side, side_by_side};
use super::super::winograd::Direction;
use super::super::{Gradients, only};
use super::{Interleaved, Method};
use crate::simd::wide;
use crate::workspace::Workspace;

impl<const N: usize> Interleaved<N> {
    pub(super) fn backward_side_by_side(&self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (in_size, out_size) = self.sizes();
        let [side, d_side, d_products, scratch, gradient, filters, tiles, sums] = workspace.lines(self.workspace());
        let (gradient, sums) = (&mut gradient.as_flattened_mut()[..self.parameters()], sums.as_flattened_mut());
        sums.fill(0.0);
        let samples = of.d_output.len() / out_size;
        let mut d_input = only(of.d_inputs);
        let filters = filters.as_flattened_mut();
        let weights = &of.parameters[..self.out_channels * self.offsets.depth()];
        if let (Method::Winograd(winograd, _), Some(_)) = (&self.method, &d_input) {
            winograd.transform(weights, self.channels, Direction::Backward, filters);
        }
        for group in 0..samples.div_ceil(N) {
            let range = tile_range(group, N, samples);
            let images = match &of.d_parameters {
                Some(_) => self.images(&of.inputs[0][range.start * in_size..range.end * in_size], side),
                None => &[],
            };
            let outputs = range.start * out_size..range.end * out_size;
            let d_output = &of.d_output[outputs.clone()];
            let d_products = if self.passes_gradients() {
                lines(d_output)
            } else {
                let output = if self.tail.relu { &of.output[outputs] } else { &[] };
                let wanted = of.d_parameters.is_some().then_some((images, &mut *gradient));
                self.channels_backward(group, d_output, output, d_products, scratch, wanted);
                &*d_products
            };
            match (&self.method, &of.d_parameters) {
                (Method::Winograd(_, weights), Some(_)) => weights.add(images, d_products, sums, tiles),
                (Method::Unfolded(unfolded), Some(_)) => {
                    let d_weights = (&mut gradient[..weights.len()], group > 0);
                    unfolded.weights(&self.offsets, images, d_products, d_weights, tiles);
                }
                _ => {}
            }
            let Some((d_input, accumulate)) = &mut d_input else { continue };
            let d_input = &mut d_input[range.start * in_size..range.end * in_size];
            let in_place = self.is_whole() && self.padding == (0, 0) && self.input.is_interleaved() && !*accumulate;
            let whole = if in_place { lines_mut(&mut *d_input) } else { &mut *d_side };
            match &self.method {
                Method::Taps => {}
                Method::Winograd(winograd, _) => winograd.convolve(d_products, filters, whole, tiles),
                Method::Unfolded(unfolded) => {
                    let plane = self.padded.0 * self.padded.1;
                    unfolded.images(&self.offsets, d_products, weights, (whole, plane), tiles);
                }
            }
            if in_place {
                continue;
            }
            self.images_backward(of.parameters, d_products, d_side, d_input, *accumulate);
        }
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            if let Method::Winograd(_, gradients) = &self.method {
                gradients.finish(sums, &mut gradient[..weights.len()]);
            }
            merge(d_parameters, gradient, accumulate);
        }
    }

    /// Whether the gradient after the tail equals that before it and is interleaved already.
    fn passes_gradients(&self) -> bool {
        let tail = self.tail.relu || self.tail.pool.is_some() || self.bias;
        self.is_whole() && self.output.is_interleaved() && !tail
    }

    /// Computes the gradient before the tail of one group, and from it those of parameters and images where they are
    /// requested.
    fn channels_backward(
        &self,
        group: usize,
        d_output: &[f32],
        output: &[f32],
        d_products: &mut [[f32; N]],
        scratch: &mut [[f32; N]],
        parameters: Option<(&[[f32; N]], &mut [f32])>,
    ) {
        let (depth, d_plane, out_plane) = (self.offsets.depth(), self.d_plane(), self.out_plane);
        let (out_size, per_worker) = (self.sizes().1, self.per_worker());
        let parameters = parameters.map(|(side, gradient)| {
            let (d_weights, d_bias) = gradient.split_at_mut(self.out_channels * depth);
            (side, Disjoint::new(d_weights), Disjoint::new(d_bias))
        });
        let (shared, shared_products) = (Disjoint::new(scratch), Disjoint::new(d_products));
        self.threads.each(self.out_channels.div_ceil(CHANNELS), |worker, tile| {
            let block = tile * CHANNELS * d_plane;
            // SAFETY: a worker's scratch is its own, channels belong to one tile.
            let (plane, products) = unsafe {
                let scratch = shared.part(worker * per_worker..(worker + 1) * per_worker);
                (&mut scratch[per_worker - out_plane..], shared_products.part(block..block + CHANNELS * d_plane))
            };
            let range = tile_range(tile, CHANNELS, self.out_channels);
            // Zeros for the channels that the last block lacks, and for padding places.
            products[range.len() * d_plane..].fill([0.0; N]);
            for (channel, products) in range.clone().zip(products.chunks_exact_mut(d_plane)) {
                products[self.window.output_size()..].fill([0.0; N]);
                let start = channel * out_plane;
                let places = &self.dense[..out_plane];
                let target = if self.tail.pool.is_some() { &mut *plane } else { &mut *products };
                let lie = |of| &lines(of)[start..start + out_plane];
                match (self.output, self.tail.relu) {
                    (Layout::Planes, true) => {
                        rectified_side_by_side(d_output, output, out_size, start, places, target);
                    }
                    (Layout::Planes, false) => side_by_side(d_output, out_size, start, places, target),
                    (Layout::SideBySide(_), true) => wide!(masked(lie(d_output), lie(output), target)),
                    (Layout::SideBySide(_), false) => target[..out_plane].copy_from_slice(lie(d_output)),
                }
                if let Some(pool) = &self.tail.pool {
                    let best = &self.best[(group * self.out_channels + channel) * out_plane..][..out_plane];
                    wide!(to_maxima(pool, plane, best, products));
                }
                if let (Some((_, _, d_bias)), true) = (&parameters, self.bias) {
                    // SAFETY: channels belong to one tile.
                    let d_bias = unsafe { d_bias.part(channel..channel + 1) };
                    let sum = wide!(total(products));
                    d_bias[0] = if group == 0 { sum } else { d_bias[0] + sum };
                }
            }
            let Some((side, d_weights, _)) = parameters.as_ref().filter(|_| !self.is_whole()) else { return };
            // SAFETY: channels belong to one tile.
            let d_weights = unsafe { d_weights.part(range.start * depth..range.end * depth) };
            for first in (0..depth).step_by(TAPS) {
                let sums = self.offsets.weights(side, products, first);
                for (row, sums) in d_weights.chunks_exact_mut(depth).zip(sums) {
                    for (d, sum) in row[first..].iter_mut().zip(sums) {
                        *d = if group == 0 { sum } else { *d + sum };
                    }
                }
            }
        });
    }

    /// Computes the gradient of one group of images; `d_side` already holds it unless products are sums over
    /// taps.
    fn images_backward(
        &self,
        parameters: &[f32],
        d_products: &[[f32; N]],
        d_side: &mut [[f32; N]],
        d_input: &mut [f32],
        accumulate: bool,
    ) {
        let (in_size, in_plane, channels) = (self.sizes().0, self.window.input_size(), self.channels);
        let (taps, images) = (self.window.taps(), d_input.len() / in_size);
        let weights = &parameters[..self.out_channels * self.offsets.depth()];
        let plane = self.padded.0 * self.padded.1;
        let d_images = Disjoint::new(d_side);
        let (in_planes, in_groups) = match self.input {
            Layout::Planes => (Disjoint::new(d_input), Disjoint::new(&mut [])),
            Layout::SideBySide(_) => (Disjoint::new(&mut []), Disjoint::new(lines_mut(d_input))),
        };
        self.threads.each(channels.div_ceil(CHANNELS), |_, tile| {
            let range = tile_range(tile, CHANNELS, channels);
            // SAFETY: channels belong to one tile.
            let d_images = unsafe { d_images.part(range.start * plane..range.end * plane) };
            if !self.is_whole() {
                let taps = range.start * taps..range.end * taps;
                d_images.fill([0.0; N]);
                self.offsets.images(d_products, weights, taps, d_images, range.start * plane);
            }
            for (channel, d_plane) in range.zip(d_images.chunks_exact(plane)) {
                if self.input.is_interleaved() {
                    // SAFETY: channels belong to one tile.
                    let target = unsafe { in_groups.part(channel * in_plane..(channel + 1) * in_plane) };
                    wide!(collect(d_plane, &self.inside, accumulate, target));
                    continue;
                }
                let part = |image: usize| {
                    let start = image * in_size + channel * in_plane;
                    // SAFETY: as above.
                    (image < images).then(|| unsafe { in_planes.part(start..start + in_plane) })
                };
                apart(d_plane, &self.inside, accumulate, part);
            }
        });
    }
}
