//! Computes 2-d convolutions as matrix products over unfolded images, with the chain's tail applied while a result is
//! in the cache.
//!
//! The batch is cut into groups of images whose unfolded form stays in the second-level cache; a large image is
//! unfolded in blocks of rows. Weight gradients are summed group after group within a few fixed segments of the batch,
//! then segment after segment. All sizes depend on the layer alone, never on the threads.

use lockstep_models::{Conv2d, Layer, Shape};

use super::elementwise::merge;
use super::interleaved;
use super::matmul::{Matrix, multiply};
use super::tail::Tail;
use super::threads::{Disjoint, Threads, tile_range, tile_ranges};
use super::window::Window;
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{sum, wide};
use crate::workspace::{Workspace, bytes};

/// Elements of an unfolded group that stay in the second-level cache beside the products (512 KiB of 1 MiB).
const CACHED: usize = 128 * 1024;
/// Segments of the batch whose weight gradients are summed separately; at most this many threads take part.
const SEGMENTS: usize = 4;
/// Parameters that one tile sums over the segments.
const SUM_TILE: usize = 8192;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Conv2d(layer) = of.layer else { return None };
    let &Wanted { output, tail, samples, threads, .. } = of;
    let interleaved = interleaved::made(layer, of.input(), output, samples, tail, threads);
    interleaved.or_else(|| Some(Box::new(Convolution::new(layer, of.input(), output, tail, samples, threads))))
}

/// A convolution with its tail.
pub(crate) struct Convolution {
    window: Window,
    /// Input channels, output channels and channel groups.
    channels: usize,
    out_channels: usize,
    groups: usize,
    bias: bool,
    tail: Tail,
    /// Elements of one sample's output, after the tail.
    out_size: usize,
    /// Images unfolded together, and output rows unfolded at a time (all of them unless one image is too large).
    images: usize,
    rows: usize,
    threads: Threads,
    /// Per output element, with pooling: the place of the maximum.
    best: Vec<u32>,
}

impl Convolution {
    pub(crate) fn new(
        layer: &Conv2d,
        input: Shape,
        output: Shape,
        tail: Tail,
        samples: usize,
        threads: &Threads,
    ) -> Self {
        let window = Window::new([layer.kernel, layer.stride, layer.padding, layer.dilation], input, output);
        let (channels, out_channels) = (input.features() as usize, output.features() as usize);
        let groups = layer.groups as usize;
        let depth = channels / groups * window.taps();
        let places = window.output_size();
        let images = (CACHED / ((depth + out_channels) * places)).clamp(1, samples.div_ceil(SEGMENTS));
        let rows =
            if images == 1 { (CACHED / (depth * window.output.1)).clamp(1, window.output.0) } else { window.output.0 };
        let out_size = out_channels * tail.pool.map_or(places, |pool| pool.output_size());
        Convolution {
            window,
            channels,
            out_channels,
            groups,
            bias: layer.bias,
            tail,
            out_size,
            images,
            rows,
            threads: threads.clone(),
            best: Vec::new(),
        }
    }

    /// Number of parameters: weights, then biases.
    fn parameters(&self) -> usize {
        self.weights() + if self.bias { self.out_channels } else { 0 }
    }

    fn weights(&self) -> usize {
        self.out_channels * self.depth()
    }

    /// Products that one output element sums.
    fn depth(&self) -> usize {
        self.channels / self.groups * self.window.taps()
    }

    /// Scratch of a thread: unfolded columns, products, gradients of images.
    fn scratch_sizes(&self) -> (usize, usize, usize) {
        let columns = self.depth() * self.images * self.rows * self.window.output.1;
        let products = self.out_channels * self.images * self.window.output_size();
        (columns, products, self.images * self.channels * self.window.input_size())
    }

    /// Elements of a backward pass's workspace, with all gradients: the threads' scratch, and a gradient of all
    /// parameters per segment.
    pub(crate) fn workspace(&self, samples: usize) -> [usize; 2] {
        let (columns, products, d_images) = self.scratch_sizes();
        [self.threads.count() * (columns + products + d_images), self.segments(samples).1 * self.parameters()]
    }

    /// Groups of images in a segment, and number of segments.
    fn segments(&self, samples: usize) -> (usize, usize) {
        let groups = samples.div_ceil(self.images);
        let groups_per_segment = groups.div_ceil(SEGMENTS);
        (groups_per_segment, groups.div_ceil(groups_per_segment))
    }

    /// Blocks of output rows that are unfolded at a time.
    fn blocks(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        tile_ranges(self.rows, self.window.output.0)
    }

    /// `products[o, i · plane + p]`: output channel o of image i at place p, without bias.
    fn product(&self, input: &[f32], weights: &[f32], columns: &mut [f32], products: &mut [f32]) {
        let in_size = self.channels * self.window.input_size();
        let images = input.len() / in_size;
        let (depth, out) = (self.depth(), self.out_channels / self.groups);
        let distance = images * self.window.output_size();
        for group in 0..self.groups {
            let weights = &weights[group * out * depth..(group + 1) * out * depth];
            for rows in self.blocks() {
                let first = rows.start * self.window.output.1;
                let count = images * rows.len() * self.window.output.1;
                let columns = self.unfold(input, group, rows, columns, count);
                let products = &mut products[group * out * distance + first..];
                multiply((out, count, depth), products, distance, false, Matrix::rows(weights, depth), columns);
            }
        }
    }

    /// The unfolded channel group of all images of `input`; for a single image under a 1 × 1 filter, the image itself.
    fn unfold<'a>(
        &self,
        input: &'a [f32],
        group: usize,
        rows: std::ops::Range<usize>,
        columns: &'a mut [f32],
        distance: usize,
    ) -> Matrix<'a> {
        let (plane, channels) = (self.window.input_size(), self.channels / self.groups);
        let images = input.chunks_exact(self.channels * plane);
        if images.len() == 1 && self.window.is_pointwise() {
            return Matrix::rows(&input[group * channels * plane + rows.start * self.window.output.1..], plane);
        }
        wide!({
            for (index, image) in images.enumerate() {
                let image = &image[group * channels * plane..(group + 1) * channels * plane];
                let offset = index * rows.len() * self.window.output.1;
                self.window.unfold(image, rows.clone(), columns, distance, offset);
            }
        });
        Matrix::rows(columns, distance)
    }

    /// The gradient of `products` for the images of one group.
    fn before_tail(&self, images: std::ops::Range<usize>, d_output: &[f32], output: &[f32], d_products: &mut [f32]) {
        let (plane, out_plane) = (self.window.output_size(), self.out_size / self.out_channels);
        let distance = images.len() * plane;
        wide!({
            for index in 0..images.len() * self.out_channels {
                let (image, channel) = (index / self.out_channels, index % self.out_channels);
                let from = (images.start * self.out_channels + index) * out_plane;
                let out = from..from + out_plane;
                let best = if self.best.is_empty() { &[] } else { &self.best[out.clone()] };
                let d_plane = &mut d_products[channel * distance + image * plane..][..plane];
                let output = if self.tail.relu { &output[out.clone()] } else { &[] };
                self.tail.backward(&d_output[out], output, best, d_plane);
            }
        });
    }

    /// Adds a group's part to `partial`, or starts it when `first`.
    fn weight_gradient(
        &self,
        input: &[f32],
        columns: &mut [f32],
        d_products: &[f32],
        partial: &mut [f32],
        first: bool,
    ) {
        let images = input.len() / (self.channels * self.window.input_size());
        let distance = images * self.window.output_size();
        let (depth, out) = (self.depth(), self.out_channels / self.groups);
        let (weights, biases) = partial.split_at_mut(self.weights());
        wide!({
            for (bias, row) in biases.iter_mut().zip(d_products.chunks_exact(distance)) {
                let gradient = sum(row, |d| d);
                *bias = if first { gradient } else { *bias + gradient };
            }
        });
        for (group, weights) in weights.chunks_exact_mut(out * depth).enumerate() {
            for rows in self.blocks() {
                let (start, add) = (rows.start * self.window.output.1, !first || rows.start > 0);
                let count = images * rows.len() * self.window.output.1;
                let columns = self.unfold(input, group, rows, columns, count).transpose();
                let d_products = Matrix::rows(&d_products[group * out * distance + start..], distance);
                multiply((out, depth, count), weights, depth, add, d_products, columns);
            }
        }
    }

    /// Writes the gradient of a group's images.
    fn data_gradient(&self, weights: &[f32], columns: &mut [f32], d_products: &[f32], d_images: &mut [f32]) {
        let (plane, channels) = (self.window.input_size(), self.channels / self.groups);
        let images = d_images.len() / (self.channels * plane);
        let distance = images * self.window.output_size();
        let (depth, out) = (self.depth(), self.out_channels / self.groups);
        d_images.fill(0.0);
        for group in 0..self.groups {
            let weights = Matrix::transposed(&weights[group * out * depth..(group + 1) * out * depth], depth);
            for rows in self.blocks() {
                let start = rows.start * self.window.output.1;
                let count = images * rows.len() * self.window.output.1;
                let d_products = Matrix::rows(&d_products[group * out * distance + start..], distance);
                multiply((depth, count, out), columns, count, false, weights, d_products);
                wide!({
                    for (index, image) in d_images.chunks_exact_mut(self.channels * plane).enumerate() {
                        let image = &mut image[group * channels * plane..(group + 1) * channels * plane];
                        let offset = index * rows.len() * self.window.output.1;
                        self.window.fold(columns, count, offset, rows.clone(), image);
                    }
                });
            }
        }
    }
}

impl Head for Convolution {
    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace) {
        let Forward { parameters, output, .. } = of;
        let input = of.inputs[0];
        let samples = output.len() / self.out_size;
        let mut best = std::mem::take(&mut self.best);
        best.resize(best.len().max(if self.tail.pool.is_some() { output.len() } else { 0 }), 0);
        {
            let (columns_len, products_len, _) = self.scratch_sizes();
            let per_worker = columns_len + products_len;
            let [scratch] = workspace.parts([self.threads.count() * per_worker]);
            let (shared, best, output) = (Disjoint::new(scratch), Disjoint::new(&mut best), Disjoint::new(output));
            let (in_size, plane) = (self.channels * self.window.input_size(), self.window.output_size());
            let this = &*self;
            this.threads.each(samples.div_ceil(this.images), |worker, tile| {
                let range = tile_range(tile, this.images, samples);
                // SAFETY: a worker's scratch is its own, and images belong to one tile.
                let (scratch, output, best) = unsafe {
                    let outputs = range.start * this.out_size..range.end * this.out_size;
                    let best = best.part(if this.tail.pool.is_some() { outputs.clone() } else { 0..0 });
                    (shared.part(worker * per_worker..(worker + 1) * per_worker), output.part(outputs), best)
                };
                let (columns, products) = scratch.split_at_mut(columns_len);
                this.product(&input[range.start * in_size..range.end * in_size], parameters, columns, products);
                let (distance, out_plane) = (range.len() * plane, this.out_size / this.out_channels);
                wide!({
                    for (index, out) in output.chunks_exact_mut(out_plane).enumerate() {
                        let (image, channel) = (index / this.out_channels, index % this.out_channels);
                        let bias = if this.bias { parameters[this.weights() + channel] } else { 0.0 };
                        let best = if best.is_empty() { &mut [] } else { &mut best[index * out_plane..][..out_plane] };
                        let from = channel * distance + image * plane;
                        this.tail.forward(&products[from..from + plane], bias, out, best);
                    }
                });
            });
        }
        self.best = best;
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let input = of.inputs[0];
        let (in_size, per_segment) = (self.channels * self.window.input_size(), self.parameters());
        let samples = of.d_output.len() / self.out_size;
        let d_input = only(of.d_inputs).map(|(d_input, adds)| (Disjoint::new(d_input), adds));
        let adds_input = d_input.as_ref().is_some_and(|(_, adds)| *adds);
        let wants_parameters = of.d_parameters.is_some();
        let groups = samples.div_ceil(self.images);
        let (groups_per_segment, segments) = self.segments(samples);
        let (columns_len, products_len, d_images_len) = self.scratch_sizes();
        let per_worker = columns_len + products_len + if adds_input { d_images_len } else { 0 };
        let partial = if wants_parameters { segments * per_segment } else { 0 };
        let [scratch, partial] = workspace.parts([self.threads.count() * per_worker, partial]);
        let (shared, shared_partial) = (Disjoint::new(scratch), Disjoint::new(partial));
        self.threads.each(segments, |worker, segment| {
            // SAFETY: a worker's scratch is its own, a segment's partial gradient belongs to its tile.
            let (scratch, partial) = unsafe {
                let partial = if wants_parameters { segment * per_segment..(segment + 1) * per_segment } else { 0..0 };
                (shared.part(worker * per_worker..(worker + 1) * per_worker), shared_partial.part(partial))
            };
            let (columns, rest) = scratch.split_at_mut(columns_len);
            let (products, d_images) = rest.split_at_mut(products_len);
            for group in tile_range(segment, groups_per_segment, groups) {
                let images = tile_range(group, self.images, samples);
                let inputs = images.start * in_size..images.end * in_size;
                self.before_tail(images, of.d_output, of.output, products);
                let first = group == segment * groups_per_segment;
                if wants_parameters {
                    self.weight_gradient(&input[inputs.clone()], columns, products, partial, first);
                }
                if let Some((d_input, adds)) = &d_input {
                    // SAFETY: images belong to one group, a group to one segment.
                    let target = unsafe { d_input.part(inputs) };
                    if *adds {
                        let d_images = &mut d_images[..target.len()];
                        self.data_gradient(of.parameters, columns, products, d_images);
                        merge(target, d_images, true);
                    } else {
                        self.data_gradient(of.parameters, columns, products, target);
                    }
                }
            }
        });
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            self.threads.each_chunk(d_parameters, SUM_TILE, |_, range, d_parameters| {
                // SAFETY: each chunk has its own range, and segments follow one another.
                let part = |segment: usize| unsafe {
                    shared_partial.part(segment * per_segment + range.start..segment * per_segment + range.end)
                };
                let sum = part(0);
                (1..segments).for_each(|segment| merge(sum, part(segment), true));
                merge(d_parameters, sum, accumulate);
            });
        }
    }

    fn workspace_bytes(&self, samples: usize) -> usize {
        bytes(&self.workspace(samples))
    }
}
