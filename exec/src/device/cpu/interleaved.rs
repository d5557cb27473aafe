//! 2-d convolution over sixteen images at a time, kept side by side as `[channel, row, column, image]` with the padding's zeros.
//!
//! It serves batches that fill most of the sixteens; the others, and large images, go through [`super::convolution`]. Sixteens
//! follow one another in the order of the batch, and inside one a thread has whole channels to itself, so the sums of a
//! gradient have one order whatever the threads.

use lockstep_models::{Conv2d, Shape};

use super::elementwise::merge;
use super::register_tiles::{CHANNELS, Offsets, Sixteen, TAPS, available};
use super::side_by_side::{after_products, apart, rectified_side_by_side, side_by_side, to_maxima, total};
use super::simd::wide;
use super::tail::Tail;
use super::threads::{Disjoint, Threads, tile_range};
use super::window::Window;
use super::workspace::{Workspace, flat};
use super::{Gradients, pair};

/// Images side by side.
const IMAGES: usize = 16;
/// Elements of sixteen images' input or output beyond which the caches no longer serve them.
const CACHED: usize = 1 << 20;

/// A convolution with its tail.
pub(crate) struct Interleaved {
    window: Window,
    /// Height and width of an input plane with its padding.
    padded: (usize, usize),
    channels: usize,
    out_channels: usize,
    bias: bool,
    tail: Tail,
    /// Elements of one output plane, after the tail.
    out_plane: usize,
    offsets: Offsets,
    threads: Threads,
    /// `[sixteen, out_channels, out_plane]`: the places of maxima, with pooling.
    best: Vec<Sixteen<u32>>,
}

impl Interleaved {
    /// Whether this is the better way for `layer`: one channel group, sixteens at least two thirds full, images that the
    /// second-level cache holds, and a processor with AVX-512.
    pub(crate) fn suits(layer: &Conv2d, input: Shape, output: Shape, samples: usize) -> bool {
        let elements = |shape: Shape| super::size(shape) * IMAGES;
        let filled = 3 * samples >= 2 * samples.next_multiple_of(IMAGES);
        available() && layer.groups == 1 && filled && elements(input).max(elements(output)) <= CACHED
    }

    pub(crate) fn new(layer: &Conv2d, input: Shape, output: Shape, tail: Tail, threads: &Threads) -> Self {
        let window = Window {
            kernel: pair(layer.kernel),
            stride: pair(layer.stride),
            padding: pair(layer.padding),
            dilation: pair(layer.dilation),
            input: (input.height as usize, input.width as usize),
            output: (output.height as usize, output.width as usize),
        };
        let padded = (window.input.0 + 2 * window.padding.0, window.input.1 + 2 * window.padding.1);
        let (channels, out_channels) = (input.channels as usize, output.channels as usize);
        let at = |channel: usize, y: usize, x: usize| ((channel * padded.0 + y) * padded.1 + x) as u32;
        let (places, taps) = (0..window.output_size(), 0..channels * window.taps());
        let place = |p: usize| at(0, p / window.output.1 * window.stride.0, p % window.output.1 * window.stride.1);
        let tap = |k: usize| {
            let (channel, y, x) = (k / window.taps(), k % window.taps() / window.kernel.1, k % window.kernel.1);
            at(channel, y * window.dilation.0, x * window.dilation.1)
        };
        let offsets = Offsets::new(places.map(place).collect(), taps.map(tap).collect());
        let out_plane = tail.pool.map_or(window.output_size(), |pool| pool.output_size());
        Interleaved {
            window,
            padded,
            channels,
            out_channels,
            bias: layer.bias,
            tail,
            out_plane,
            threads: threads.clone(),
            best: Vec::new(),
            offsets,
        }
    }

    /// Elements of one sample's input and output.
    fn sizes(&self) -> (usize, usize) {
        (self.channels * self.window.input_size(), self.out_channels * self.out_plane)
    }

    /// Lines of the padded planes of one sixteen, of the gradient before the tail (whole blocks of channels), and of what a
    /// thread needs: products of a block of channels and a plane behind the tail.
    fn lines(&self) -> (usize, usize, usize) {
        let products = self.out_channels.next_multiple_of(CHANNELS) * self.offsets.padded();
        let per_worker = CHANNELS * self.offsets.padded() + self.out_plane;
        (self.channels * self.padded.0 * self.padded.1, products, self.threads.count() * per_worker)
    }

    /// Lines of a backward pass' workspace: one sixteen of images, the gradient towards it, that before the tail, what threads
    /// need, and the gradient of all parameters.
    pub(crate) fn workspace(&self) -> [usize; 5] {
        let (planes, products, per_workers) = self.lines();
        [planes, planes, products, per_workers, self.parameters().div_ceil(IMAGES)]
    }

    fn parameters(&self) -> usize {
        self.out_channels * (self.offsets.depth() + usize::from(self.bias))
    }

    /// Puts up to sixteen images side by side, zeros for the rest and around them.
    fn interleave(&self, input: &[f32], images: &mut [Sixteen]) {
        let (in_size, window, padded) = (self.sizes().0, self.window, self.padded);
        let images = Disjoint::new(images);
        self.threads.each(self.channels, |_, channel| {
            let plane = padded.0 * padded.1;
            // SAFETY: channels belong to one tile.
            let target = unsafe { images.part(channel * plane..(channel + 1) * plane) };
            for (y, row) in target.chunks_exact_mut(padded.1).enumerate() {
                let Some(y) = y.checked_sub(window.padding.0).filter(|y| *y < window.input.0) else {
                    row.fill(Sixteen::default());
                    continue;
                };
                let start = channel * window.input_size() + y * window.input.1;
                let (left, right) = (window.padding.1, window.padding.1 + window.input.1);
                row[..left].fill(Sixteen::default());
                side_by_side(input, in_size, start, &mut row[left..right]);
                row[right..].fill(Sixteen::default());
            }
        });
    }

    pub(crate) fn forward(&mut self, input: &[f32], parameters: &[f32], output: &mut [f32], workspace: &mut Workspace) {
        let (in_size, out_size) = self.sizes();
        let (planes, _, per_workers) = self.lines();
        let [side, scratch] = workspace.lines([planes, per_workers]);
        if self.tail.pool.is_some() {
            let lines = (output.len() / out_size).div_ceil(IMAGES) * self.out_channels * self.out_plane;
            self.best.resize(self.best.len().max(lines), Sixteen([0; IMAGES]));
        }
        let sixteens = input.chunks(IMAGES * in_size).zip(output.chunks_mut(IMAGES * out_size));
        for (sixteen, (input, output)) in sixteens.enumerate() {
            self.interleave(input, side);
            let images = output.len() / out_size;
            let mut best = std::mem::take(&mut self.best);
            {
                let this = &*self;
                let (depth, places, out_plane) = (this.offsets.depth(), this.offsets.padded(), this.out_plane);
                let best_of = if best.is_empty() { 0 } else { this.out_channels * out_plane };
                let output = Disjoint::new(output);
                let (side, shared) = (&*side, Disjoint::new(scratch));
                let best = Disjoint::new(&mut best[sixteen * best_of..(sixteen + 1) * best_of]);
                this.threads.each(this.out_channels.div_ceil(CHANNELS), |worker, tile| {
                    let per_worker = CHANNELS * places + out_plane;
                    // SAFETY: a worker's scratch is its own.
                    let scratch = unsafe { shared.part(worker * per_worker..(worker + 1) * per_worker) };
                    let (products, plane) = scratch.split_at_mut(CHANNELS * places);
                    let range = tile_range(tile, CHANNELS, this.out_channels);
                    let rows =
                        std::array::from_fn(|o| &parameters[(range.start + o).min(range.end - 1) * depth..][..depth]);
                    this.offsets.products(side, rows, products);
                    for (channel, products) in range.zip(products.chunks_exact(places)) {
                        let bias = if this.bias { parameters[this.out_channels * depth + channel] } else { 0.0 };
                        // SAFETY: channels belong to one tile.
                        let best = unsafe {
                            best.part(if best_of > 0 { channel * out_plane..(channel + 1) * out_plane } else { 0..0 })
                        };
                        wide(
                            #[inline(always)]
                            || after_products(&this.tail, products, bias, plane, best),
                        );
                        // SAFETY: as above.
                        apart(plane, false, |image| unsafe {
                            let start = image * out_size + channel * out_plane;
                            (image < images).then(|| output.part(start..start + out_plane))
                        });
                    }
                });
            }
            self.best = best;
        }
    }

    pub(crate) fn backward(&self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (in_size, out_size) = self.sizes();
        let [side, d_side, d_products, scratch, gradient] = workspace.lines(self.workspace());
        let gradient = &mut flat(gradient)[..self.parameters()];
        let samples = of.d_output.len() / out_size;
        let mut d_input = of.d_inputs.first_mut().and_then(|d_input| d_input.as_deref_mut());
        let accumulate = of.accumulate_inputs.first().is_some_and(|accumulate| *accumulate);
        for sixteen in 0..samples.div_ceil(IMAGES) {
            let range = tile_range(sixteen, IMAGES, samples);
            if of.d_parameters.is_some() {
                self.interleave(&of.inputs[0][range.start * in_size..range.end * in_size], side);
            }
            let outputs = range.start * out_size..range.end * out_size;
            self.channels_backward(
                sixteen,
                &of.d_output[outputs.clone()],
                if self.tail.relu { &of.output[outputs] } else { &[] },
                d_products,
                scratch,
                of.d_parameters.is_some().then_some((&*side, &mut *gradient)),
            );
            if let Some(d_input) = d_input.as_deref_mut() {
                let d_input = &mut d_input[range.start * in_size..range.end * in_size];
                self.images_backward(of.parameters, d_products, d_side, d_input, accumulate);
            }
        }
        if let Some(d_parameters) = of.d_parameters {
            merge(d_parameters, gradient, of.accumulate_parameters);
        }
    }

    /// The gradient before the tail of one sixteen, and the parameters' from it and the images where they are wanted.
    fn channels_backward(
        &self,
        sixteen: usize,
        d_output: &[f32],
        output: &[f32],
        d_products: &mut [Sixteen],
        scratch: &mut [Sixteen],
        parameters: Option<(&[Sixteen], &mut [f32])>,
    ) {
        let (depth, places, out_plane) = (self.offsets.depth(), self.offsets.padded(), self.out_plane);
        let (count, out_size) = (self.window.output_size(), self.sizes().1);
        let parameters = parameters.map(|(side, gradient)| {
            let (d_weights, d_bias) = gradient.split_at_mut(self.out_channels * depth);
            (side, Disjoint::new(d_weights), Disjoint::new(d_bias))
        });
        let (shared, shared_products) = (Disjoint::new(scratch), Disjoint::new(d_products));
        self.threads.each(self.out_channels.div_ceil(CHANNELS), |worker, tile| {
            let per_worker = CHANNELS * places + out_plane;
            let block = tile * CHANNELS * places;
            // SAFETY: a worker's scratch is its own, channels belong to one tile.
            let (plane, products) = unsafe {
                let scratch = shared.part(worker * per_worker..(worker + 1) * per_worker);
                (&mut scratch[CHANNELS * places..], shared_products.part(block..block + CHANNELS * places))
            };
            let range = tile_range(tile, CHANNELS, self.out_channels);
            // Zeros for the channels that the last block lacks, and behind the last place of each.
            products[range.len() * places..].fill(Sixteen::default());
            for (channel, products) in range.clone().zip(products.chunks_exact_mut(places)) {
                products[count..].fill(Sixteen::default());
                let best = if self.best.is_empty() {
                    &[]
                } else {
                    &self.best[(sixteen * self.out_channels + channel) * out_plane..][..out_plane]
                };
                let products = &mut products[..count];
                let target = if best.is_empty() { &mut *products } else { &mut *plane };
                if self.tail.relu {
                    rectified_side_by_side(d_output, output, out_size, channel * out_plane, target);
                } else {
                    side_by_side(d_output, out_size, channel * out_plane, target);
                }
                let sum = wide(
                    #[inline(always)]
                    || {
                        if let Some(pool) = &self.tail.pool {
                            to_maxima(pool, plane, best, products);
                        }
                        total(products)
                    },
                );
                if let (Some((_, _, d_bias)), true) = (&parameters, self.bias) {
                    // SAFETY: channels belong to one tile.
                    let d_bias = unsafe { d_bias.part(channel..channel + 1) };
                    d_bias[0] = if sixteen == 0 { sum } else { d_bias[0] + sum };
                }
            }
            let Some((side, d_weights, _)) = &parameters else { return };
            // SAFETY: channels belong to one tile.
            let d_weights = unsafe { d_weights.part(range.start * depth..range.end * depth) };
            for first in (0..depth).step_by(TAPS) {
                let sums = self.offsets.weights(side, products, first);
                for (row, sums) in d_weights.chunks_exact_mut(depth).zip(sums) {
                    for (d, sum) in row[first..].iter_mut().zip(sums) {
                        *d = if sixteen == 0 { sum } else { *d + sum };
                    }
                }
            }
        });
    }

    /// The gradient towards one sixteen of images.
    fn images_backward(
        &self,
        parameters: &[f32],
        d_products: &[Sixteen],
        d_side: &mut [Sixteen],
        d_input: &mut [f32],
        accumulate: bool,
    ) {
        let (window, padded, in_size, channels) = (self.window, self.padded, self.sizes().0, self.channels);
        let (plane, taps, images) = (padded.0 * padded.1, window.taps(), d_input.len() / in_size);
        let weights = &parameters[..self.out_channels * self.offsets.depth()];
        let (d_images, d_input) = (Disjoint::new(d_side), Disjoint::new(d_input));
        let offsets = &self.offsets;
        self.threads.each(channels.div_ceil(CHANNELS), |_, tile| {
            let range = tile_range(tile, CHANNELS, channels);
            // SAFETY: channels belong to one tile.
            let d_images = unsafe { d_images.part(range.start * plane..range.end * plane) };
            d_images.fill(Sixteen([0.0; IMAGES]));
            offsets.images(d_products, weights, range.start * taps..range.end * taps, d_images, range.start * plane);
            for (channel, d_plane) in range.zip(d_images.chunks_exact(plane)) {
                let rows = d_plane.chunks_exact(padded.1).skip(window.padding.0).take(window.input.0);
                for (y, row) in rows.enumerate() {
                    let row = &row[window.padding.1..][..window.input.1];
                    let part = |image: usize| {
                        let start = image * in_size + channel * window.input_size() + y * window.input.1;
                        // SAFETY: channels belong to one tile.
                        (image < images).then(|| unsafe { d_input.part(start..start + window.input.1) })
                    };
                    apart(row, accumulate, part);
                }
            }
        });
    }
}
