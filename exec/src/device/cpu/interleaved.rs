//! 2-d convolution over sixteen images at a time, kept side by side as `[channel, row, column, image]` with the padding's zeros.
//! Products are sums over taps, or, for most 3 × 3 filters, those of [`super::winograd`].
//!
//! It serves batches that fill most of the sixteens; the others, and large images, go through [`super::convolution`]. Sixteens
//! follow one another in the order of the batch, and inside one a thread has whole channels to itself, so the sums of a
//! gradient have one order whatever the threads.

mod backward;

use lockstep_models::{Conv2d, Shape};

use super::pair;
use super::register_tiles::{CHANNELS, Offsets, Sixteen, available};
use super::side_by_side::after_products;
use super::simd::wide;
use super::tail::Tail;
use super::threads::{Disjoint, Threads, tile_range};
use super::transpose::{apart, side_by_side};
use super::window::Window;
use super::winograd::{Direction, Winograd};
use super::winograd_weights::WeightGradient;
use super::workspace::{Workspace, flat};

/// Images side by side.
const IMAGES: usize = 16;
/// Elements of sixteen images' input or output beyond which the caches no longer serve them.
const CACHED: usize = 1 << 20;

/// A convolution with its tail.
pub(crate) struct Interleaved {
    window: Window,
    /// Zeros above and below, left and right of an input plane, and its height and width with them; Winograd's products need
    /// none.
    padding: (usize, usize),
    padded: (usize, usize),
    channels: usize,
    out_channels: usize,
    bias: bool,
    tail: Tail,
    /// Elements of one output plane, after the tail.
    out_plane: usize,
    /// Where each element of an input plane lies in the padded one.
    inside: Vec<u32>,
    /// 0, 1, 2 …, as many as a plane before or behind the tail has.
    dense: Vec<u32>,
    offsets: Offsets,
    winograd: Option<(Winograd, WeightGradient)>,
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
        let (channels, out_channels) = (input.channels as usize, output.channels as usize);
        let same = Window { kernel: (3, 3), stride: (1, 1), padding: (1, 1), dilation: (1, 1), ..window };
        let fewer = window == same && Winograd::suits(channels, out_channels, window.output);
        let padding = if fewer { (0, 0) } else { window.padding };
        let padded = (window.input.0 + 2 * padding.0, window.input.1 + 2 * padding.1);
        let at = |channel: usize, y: usize, x: usize| ((channel * padded.0 + y) * padded.1 + x) as u32;
        let (places, taps) = (0..window.output_size(), 0..channels * window.taps());
        let place = |p: usize| at(0, p / window.output.1 * window.stride.0, p % window.output.1 * window.stride.1);
        let tap = |k: usize| {
            let (channel, y, x) = (k / window.taps(), k % window.taps() / window.kernel.1, k % window.kernel.1);
            at(channel, y * window.dilation.0, x * window.dilation.1)
        };
        let inside: Vec<u32> = (0..window.input_size())
            .map(|p| at(0, p / window.input.1 + padding.0, p % window.input.1 + padding.1))
            .collect();
        let offsets = Offsets::new(places.map(place).collect(), taps.map(tap).collect());
        let out_plane = tail.pool.map_or(window.output_size(), |pool| pool.output_size());
        let dense: Vec<u32> = (0..out_plane.max(window.output_size()).max(window.input_size()) as u32).collect();
        let winograd = fewer.then(|| {
            let weights = WeightGradient::new(channels, out_channels, window.output, threads);
            (Winograd::new(channels, out_channels, window.output, threads), weights)
        });
        Interleaved {
            window,
            padding,
            padded,
            channels,
            out_channels,
            bias: layer.bias,
            tail,
            out_plane,
            inside,
            dense,
            winograd,
            threads: threads.clone(),
            best: Vec::new(),
            offsets,
        }
    }

    /// Elements of one sample's input and output.
    fn sizes(&self) -> (usize, usize) {
        (self.channels * self.window.input_size(), self.out_channels * self.out_plane)
    }

    /// Lines of a forward pass' workspace: one sixteen of images, Winograd's products, what a thread needs (products of a block
    /// of channels and a plane behind the tail), Winograd's own two.
    fn forward_workspace(&self) -> [usize; 5] {
        let images = self.channels * self.padded.0 * self.padded.1;
        let outputs = self.winograd.as_ref().map_or(0, |_| self.out_channels * self.window.output_size());
        let [filters, tiles] = self.winograd.as_ref().map_or([0; 2], |(winograd, _)| winograd.workspace());
        [images, outputs, self.threads.count() * self.per_worker(), filters, tiles]
    }

    /// Lines of a backward pass' workspace: one sixteen of images, the gradient towards it, that before the tail (whole blocks of
    /// channels), what threads need, the gradient of all parameters, Winograd's own: filters, tiles, sums.
    pub(crate) fn workspace(&self) -> [usize; 8] {
        let [images, _, per_workers, filters, tiles] = self.forward_workspace();
        let d_products = self.out_channels.next_multiple_of(CHANNELS) * self.d_plane();
        let [sums, blocks] = self.winograd.as_ref().map_or([0; 2], |(_, weights)| weights.workspace());
        let gradient = self.parameters().div_ceil(IMAGES);
        [images, images, d_products, per_workers, gradient, filters, tiles.max(blocks), sums]
    }

    fn per_worker(&self) -> usize {
        CHANNELS * self.offsets.padded() + self.out_plane
    }

    /// Distance of the planes of gradients before the tail.
    fn d_plane(&self) -> usize {
        if self.winograd.is_some() { self.window.output_size() } else { self.offsets.padded() }
    }

    fn parameters(&self) -> usize {
        self.out_channels * (self.offsets.depth() + usize::from(self.bias))
    }

    /// Puts up to sixteen images side by side, zeros for the rest and around them.
    fn interleave(&self, input: &[f32], images: &mut [Sixteen]) {
        let (in_size, in_plane) = (self.sizes().0, self.window.input_size());
        let images = Disjoint::new(images);
        self.threads.each(self.channels, |_, channel| {
            let plane = self.padded.0 * self.padded.1;
            // SAFETY: channels belong to one tile.
            let target = unsafe { images.part(channel * plane..(channel + 1) * plane) };
            self.clear_border(target);
            side_by_side(input, in_size, channel * in_plane, &self.inside, target);
        });
    }

    /// Zeros around a padded plane.
    fn clear_border(&self, plane: &mut [Sixteen]) {
        let (padding, input, zero) = (self.padding, self.window.input, Sixteen([0.0; IMAGES]));
        if padding == (0, 0) {
            return;
        }
        let rows = padding.0..padding.0 + input.0;
        for (y, row) in plane.chunks_exact_mut(self.padded.1).enumerate() {
            if rows.contains(&y) {
                row[..padding.1].fill(zero);
                row[padding.1 + input.1..].fill(zero);
            } else {
                row.fill(zero);
            }
        }
    }

    pub(crate) fn forward(&mut self, input: &[f32], parameters: &[f32], output: &mut [f32], workspace: &mut Workspace) {
        let (in_size, out_size) = self.sizes();
        let [side, outputs, scratch, filters, tiles] = workspace.lines(self.forward_workspace());
        let filters = flat(filters);
        if self.tail.pool.is_some() {
            let lines = (output.len() / out_size).div_ceil(IMAGES) * self.out_channels * self.out_plane;
            self.best.resize(self.best.len().max(lines), Sixteen([0; IMAGES]));
        }
        if let Some((winograd, _)) = &self.winograd {
            let weights = &parameters[..self.out_channels * self.offsets.depth()];
            winograd.transform(weights, self.channels, Direction::Forward, filters);
        }
        let sixteens = input.chunks(IMAGES * in_size).zip(output.chunks_mut(IMAGES * out_size));
        for (sixteen, (input, output)) in sixteens.enumerate() {
            self.interleave(input, side);
            if let Some((winograd, _)) = &self.winograd {
                winograd.convolve(side, filters, outputs, tiles);
            }
            let images = output.len() / out_size;
            let mut best = std::mem::take(&mut self.best);
            {
                let this = &*self;
                let (depth, places, out_plane) = (this.offsets.depth(), this.offsets.padded(), this.out_plane);
                let best_of = if best.is_empty() { 0 } else { this.out_channels * out_plane };
                let output = Disjoint::new(output);
                let (side, outputs, shared) = (&*side, Disjoint::new(outputs), Disjoint::new(scratch));
                let best = Disjoint::new(&mut best[sixteen * best_of..(sixteen + 1) * best_of]);
                this.threads.each(this.out_channels.div_ceil(CHANNELS), |worker, tile| {
                    let per_worker = CHANNELS * places + out_plane;
                    // SAFETY: a worker's scratch is its own.
                    let scratch = unsafe { shared.part(worker * per_worker..(worker + 1) * per_worker) };
                    let (products, plane) = scratch.split_at_mut(CHANNELS * places);
                    let range = tile_range(tile, CHANNELS, this.out_channels);
                    let (products, distance) = if this.winograd.is_some() {
                        let plane = this.window.output_size();
                        // SAFETY: channels belong to one tile.
                        (unsafe { outputs.part(range.start * plane..range.end * plane) }, plane)
                    } else {
                        let row = |o: usize| &parameters[(range.start + o).min(range.end - 1) * depth..][..depth];
                        this.offsets.products(side, std::array::from_fn(row), products);
                        (products, places)
                    };
                    for (channel, products) in range.zip(products.chunks_exact_mut(distance)) {
                        let bias = this.bias.then(|| parameters[this.out_channels * depth + channel]);
                        // SAFETY: channels belong to one tile.
                        let best = unsafe {
                            best.part(if best_of > 0 { channel * out_plane..(channel + 1) * out_plane } else { 0..0 })
                        };
                        let plane = wide(
                            #[inline(always)]
                            || after_products(&this.tail, products, bias, plane, best),
                        );
                        // SAFETY: as above.
                        apart(plane, &this.dense[..out_plane], false, |image| unsafe {
                            let start = image * out_size + channel * out_plane;
                            (image < images).then(|| output.part(start..start + out_plane))
                        });
                    }
                });
            }
            self.best = best;
        }
    }
}
