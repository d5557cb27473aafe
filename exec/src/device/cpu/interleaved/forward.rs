//! Runs the forward pass over N images at a time: products, then the tail, written to the outputs.

use super::super::layout::{Layout, lines_mut};
use super::super::register_tiles::CHANNELS;
use super::super::side_by_side::after_products;
use super::super::threads::{Disjoint, tile_range};
use super::super::transpose::apart;
use super::super::winograd::Direction;
use super::{Interleaved, Method};
use crate::simd::wide;
use crate::workspace::Workspace;

/// The outputs of one group; each channel is written by one thread.
enum Outputs<'a, const N: usize> {
    /// Planes of this number of images.
    Planes(Disjoint<'a, f32>, usize),
    SideBySide(Disjoint<'a, [f32; N]>),
}

impl<const N: usize> Interleaved<N> {
    pub(super) fn forward_side_by_side(
        &mut self,
        input: &[f32],
        parameters: &[f32],
        output: &mut [f32],
        workspace: &mut Workspace,
    ) {
        let (in_size, out_size) = self.sizes();
        let [side, products, scratch, filters, tiles] = workspace.lines(self.forward_workspace());
        let filters = filters.as_flattened_mut();
        let mut best = std::mem::take(&mut self.best);
        let best_of = if self.tail.pool.is_some() { self.out_channels * self.out_plane } else { 0 };
        best.resize(best.len().max((output.len() / out_size).div_ceil(N) * best_of), [0; N]);
        let weights = &parameters[..self.out_channels * self.offsets.depth()];
        if let Method::Winograd(winograd, _) = &self.method {
            winograd.transform(weights, self.channels, Direction::Forward, filters);
        }
        let groups = input.chunks(N * in_size).zip(output.chunks_mut(N * out_size));
        for (group, (input, output)) in groups.enumerate() {
            let images = self.images(input, side);
            let best = &mut best[group * best_of..(group + 1) * best_of];
            let in_place = self.is_whole() && self.output.is_interleaved() && self.tail.pool.is_none();
            let whole = if in_place { lines_mut(&mut *output) } else { &mut *products };
            match &self.method {
                Method::Taps => {}
                Method::Winograd(winograd, _) => winograd.convolve(images, filters, whole, tiles),
                Method::Unfolded(unfolded) => unfolded.products(&self.offsets, images, weights, whole, tiles),
            }
            if in_place {
                self.behind_in_place(parameters, whole);
                continue;
            }
            let outputs = match self.output {
                Layout::Planes => {
                    let images = output.len() / out_size;
                    Outputs::Planes(Disjoint::new(output), images)
                }
                Layout::SideBySide(_) => Outputs::SideBySide(Disjoint::new(lines_mut(output))),
            };
            self.behind(images, parameters, products, scratch, best, &outputs);
        }
        self.best = best;
    }

    fn bias_of(&self, channel: usize, parameters: &[f32]) -> Option<f32> {
        self.bias.then(|| parameters[self.out_channels * self.offsets.depth() + channel])
    }

    /// Applies the tail without pooling to products that are already in the place of the outputs.
    fn behind_in_place(&self, parameters: &[f32], output: &mut [[f32; N]]) {
        if !self.tail.relu && !self.bias {
            return;
        }
        self.threads.each_chunk(output, self.out_plane, |_, range, plane| {
            let bias = self.bias_of(range.start / self.out_plane, parameters);
            wide!({
                after_products(&self.tail, plane, bias, &mut [], &mut []);
            });
        });
    }

    /// The outputs of one group, from all `products` or from products computed here.
    fn behind(
        &self,
        images: &[[f32; N]],
        parameters: &[f32],
        products: &mut [[f32; N]],
        scratch: &mut [[f32; N]],
        best: &mut [[u32; N]],
        outputs: &Outputs<'_, N>,
    ) {
        let (depth, places, out_plane) = (self.offsets.depth(), self.offsets.padded(), self.out_plane);
        let (out_size, per_worker, pools) = (self.sizes().1, self.per_worker(), self.tail.pool.is_some());
        let (all_products, shared, best) = (Disjoint::new(products), Disjoint::new(scratch), Disjoint::new(best));
        self.threads.each(self.out_channels.div_ceil(CHANNELS), |worker, tile| {
            // SAFETY: a worker's scratch is its own.
            let scratch = unsafe { shared.part(worker * per_worker..(worker + 1) * per_worker) };
            let (products, plane) = scratch.split_at_mut(CHANNELS * places);
            let range = tile_range(tile, CHANNELS, self.out_channels);
            let (products, distance) = if self.is_whole() {
                let plane = self.window.output_size();
                // SAFETY: channels belong to one tile.
                (unsafe { all_products.part(range.start * plane..range.end * plane) }, plane)
            } else {
                let row = |o: usize| &parameters[(range.start + o).min(range.end - 1) * depth..][..depth];
                self.offsets.products(images, std::array::from_fn(row), products);
                (products, places)
            };
            for (channel, products) in range.zip(products.chunks_exact_mut(distance)) {
                let of_channel = channel * out_plane..(channel + 1) * out_plane;
                let bias = self.bias_of(channel, parameters);
                // SAFETY: channels belong to one tile.
                let best = unsafe { best.part(if pools { of_channel.clone() } else { 0..0 }) };
                let tail = |products, pooled, best| wide!(after_products(&self.tail, products, bias, pooled, best));
                match outputs {
                    Outputs::Planes(outputs, images) => {
                        let found = tail(products, &mut *plane, best);
                        // SAFETY: as above.
                        apart(found, &self.dense[..out_plane], false, |image| unsafe {
                            let start = image * out_size + channel * out_plane;
                            (image < *images).then(|| outputs.part(start..start + out_plane))
                        });
                    }
                    Outputs::SideBySide(outputs) => {
                        // SAFETY: as above.
                        let target = unsafe { outputs.part(of_channel) };
                        if pools {
                            tail(products, target, best);
                        } else {
                            target.copy_from_slice(&tail(products, &mut [], best)[..out_plane]);
                        }
                    }
                }
            }
        });
    }
}
