//! Computes 2-d convolutions of N images at a time, interleaved as `[channel, row, column, image]` with the
//! padding's zeros. Products are those of [`super::winograd`] for most 3 × 3 filters, else sums over taps for small
//! images and matrix products for large ones ([`unfolded`]).
//!
//! It is used for batches that fill most of the groups of N; other batches, and layers of several channel groups, use
//! [`super::convolution`]. Groups are processed in the order of the batch, and within one a thread processes whole
//! channels, so the sums of a gradient have one reduction order for any number of threads.

mod backward;
mod forward;
mod unfolded;

use lockstep_models::{Conv2d, Shape};

use super::layout::{Fit, Layout, for_side_by_side, lines, lines_of_register, side_by_side};
use super::register_tiles::{CHANNELS, Offsets};
use super::side_by_side::spread;
use super::tail::Tail;
use super::threads::Threads;
use super::transpose;
use super::window::Window;
use super::winograd::{self, Winograd};
use super::winograd_weights::WeightGradient;
use super::{Forward, Gradients, Head};
use crate::workspace::Workspace;
use unfolded::Unfolded;

/// Elements of an image's input or output beyond which N of them fit in no cache, and matrix products beat sums over
/// taps.
const CACHED: usize = 1 << 16;

/// [`CACHED`], or fewer elements where lines fill a part of a register: sums over taps use that part alone.
fn cached<const N: usize>() -> usize {
    CACHED >> (2 * (lines_of_register::<N>() - 1))
}

/// How products are computed.
enum Method<const N: usize> {
    /// Sums over taps, block of channels by block of channels.
    Taps,
    Winograd(Winograd<N>, WeightGradient<N>),
    Unfolded(Unfolded<N>),
}

impl<const N: usize> Method<N> {
    /// The fastest for a layer.
    fn of(layer: &Conv2d, input: Shape, output: Shape, threads: &Threads) -> Self {
        if takes_fewer_products(layer, input, output) {
            Method::winograd(input, output, threads)
        } else if super::size(input).max(super::size(output)) <= cached::<N>() {
            Method::Taps
        } else {
            Method::unfolded(layer, input, output, threads)
        }
    }

    fn winograd(input: Shape, output: Shape, threads: &Threads) -> Self {
        let (channels, out_channels) = (input.features() as usize, output.features() as usize);
        let (rows, columns) = output.image().sides();
        let size = (rows as usize, columns as usize);
        let weights = WeightGradient::new(channels, out_channels, size, threads);
        Method::Winograd(Winograd::new(channels, out_channels, size, threads), weights)
    }

    fn unfolded(layer: &Conv2d, input: Shape, output: Shape, threads: &Threads) -> Self {
        Method::Unfolded(Unfolded::new(&window_of(layer, input, output), input.features() as usize, threads))
    }
}

/// A convolution with its tail.
pub(crate) struct Interleaved<const N: usize> {
    window: Window,
    /// Zeros above and below, left and right of an input plane, and its height and width with them; Winograd's products
    /// need none.
    padding: (usize, usize),
    padded: (usize, usize),
    channels: usize,
    out_channels: usize,
    bias: bool,
    tail: Tail,
    /// Elements of one output plane, after the tail.
    out_plane: usize,
    /// The place in the padded plane of each element of an input plane.
    inside: Vec<u32>,
    /// 0, 1, 2 …, as many as a plane before or after the tail has.
    dense: Vec<u32>,
    offsets: Offsets,
    method: Method<N>,
    /// Layouts of the input and its gradient, and of those after the tail.
    input: Layout,
    output: Layout,
    threads: Threads,
    /// `[group, out_channels, out_plane]`: the places of maxima, with pooling.
    best: Vec<[u32; N]>,
}

/// The head of such a layer, if this is faster for it.
pub(super) fn made(
    layer: &Conv2d,
    input: Shape,
    output: Shape,
    samples: usize,
    tail: Tail,
    threads: &Threads,
) -> Option<Box<dyn Head>> {
    let group = side_by_side(samples).filter(|_| layer.groups == 1)?;
    Some(for_side_by_side!(group, {
        let method = Method::of(layer, input, output, threads);
        Box::new(Interleaved::<N>::new(layer, method, input, output, tail, threads))
    }))
}

/// The windows of a layer.
fn window_of(layer: &Conv2d, input: Shape, output: Shape) -> Window {
    Window::new([layer.kernel, layer.stride, layer.padding, layer.dilation], input, output)
}

/// Whether Winograd's products suit it: 3 × 3 filters at every place.
fn takes_fewer_products(layer: &Conv2d, input: Shape, output: Shape) -> bool {
    let window = window_of(layer, input, output);
    let same = Window { kernel: (3, 3), stride: (1, 1), padding: (1, 1), dilation: (1, 1), ..window };
    window == same && winograd::suits(input.features() as usize, output.features() as usize, window.output)
}

impl<const N: usize> Interleaved<N> {
    fn new(layer: &Conv2d, method: Method<N>, input: Shape, output: Shape, tail: Tail, threads: &Threads) -> Self {
        let window = window_of(layer, input, output);
        let (channels, out_channels) = (input.features() as usize, output.features() as usize);
        let padding = if matches!(method, Method::Winograd(..)) { (0, 0) } else { window.padding };
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
            method,
            input: Layout::Planes,
            output: Layout::Planes,
            threads: threads.clone(),
            best: Vec::new(),
            offsets,
        }
    }

    /// Elements of one sample's input and output.
    fn sizes(&self) -> (usize, usize) {
        (self.channels * self.window.input_size(), self.out_channels * self.out_plane)
    }

    /// Lines of a forward pass's workspace: one group of images, Winograd's products, a thread's scratch (products of
    /// a block of channels and a plane after the tail), Winograd's own two.
    fn forward_workspace(&self) -> [usize; 5] {
        let images = self.channels * self.padded.0 * self.padded.1;
        let outputs = self.out_channels * self.window.output_size();
        let [outputs, filters, tiles] = match &self.method {
            Method::Taps => [0; 3],
            Method::Winograd(winograd, _) => {
                let [filters, tiles] = winograd.workspace();
                [outputs, filters, tiles]
            }
            Method::Unfolded(unfolded) => [outputs, 0, unfolded.workspace()],
        };
        [images, outputs, self.threads.count() * self.per_worker(), filters, tiles]
    }

    /// Lines of a backward pass's workspace: one group of images, its gradient, the gradient before the tail (whole
    /// blocks of channels), the threads' scratch, the gradient of all parameters, Winograd's own: filters, tiles, sums.
    pub(crate) fn workspace(&self) -> [usize; 8] {
        let [images, _, per_workers, filters, tiles] = self.forward_workspace();
        let d_products = self.out_channels.next_multiple_of(CHANNELS) * self.d_plane();
        let [sums, blocks] = match &self.method {
            Method::Winograd(_, weights) => weights.workspace(),
            _ => [0; 2],
        };
        let gradient = self.parameters().div_ceil(N);
        [images, images, d_products, per_workers, gradient, filters, tiles.max(blocks), sums]
    }

    fn per_worker(&self) -> usize {
        CHANNELS * self.offsets.padded() + self.out_plane
    }

    /// Distance between the planes of gradients before the tail.
    fn d_plane(&self) -> usize {
        if self.is_whole() { self.window.output_size() } else { self.offsets.padded() }
    }

    /// Whether the products of all channels are computed before the tail is applied to any.
    fn is_whole(&self) -> bool {
        !matches!(self.method, Method::Taps)
    }

    fn parameters(&self) -> usize {
        self.out_channels * (self.offsets.depth() + usize::from(self.bias))
    }

    /// Up to N interleaved images, with zeros for missing images and around them: built in `side` unless the
    /// input is interleaved already.
    fn images<'a>(&self, input: &'a [f32], side: &'a mut [[f32; N]]) -> &'a [[f32; N]] {
        if (self.input.is_interleaved(), self.padding) == (true, (0, 0)) {
            return lines(input);
        }
        self.interleave(input, side);
        side
    }

    fn interleave(&self, input: &[f32], images: &mut [[f32; N]]) {
        let (in_size, in_plane) = (self.sizes().0, self.window.input_size());
        let plane = self.padded.0 * self.padded.1;
        self.threads.each_chunk(images, plane, |_, range, target| {
            let channel = range.start / plane;
            self.clear_border(target);
            match self.input {
                Layout::Planes => transpose::side_by_side(input, in_size, channel * in_plane, &self.inside, target),
                Layout::SideBySide(_) => spread(&lines(input)[channel * in_plane..][..in_plane], &self.inside, target),
            }
        });
    }

    /// Zeros around a padded plane.
    fn clear_border(&self, plane: &mut [[f32; N]]) {
        let (padding, input, zero) = (self.padding, self.window.input, [0.0; N]);
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
}

impl<const N: usize> Head for Interleaved<N> {
    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace) {
        self.forward_side_by_side(of.inputs[0], of.parameters, of.output, workspace);
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        self.backward_side_by_side(of, workspace);
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        self.workspace().iter().sum::<usize>() * size_of::<[f32; N]>()
    }

    fn fit(&self) -> Fit {
        Fit::Free
    }

    fn lay(&mut self, input: Layout, output: Layout) {
        (self.input, self.output) = (input, output);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The heads of a layer by each method that supports it, of N images side by side, with names.
    pub(crate) fn by_each_method<const N: usize>(
        layer: &Conv2d,
        input: Shape,
        output: Shape,
        threads: &Threads,
    ) -> Vec<(&'static str, Box<dyn Head>)> {
        let mut methods = vec![("taps", Method::Taps), ("unfolded", Method::unfolded(layer, input, output, threads))];
        if takes_fewer_products(layer, input, output) {
            methods.push(("winograd", Method::winograd(input, output, threads)));
        }
        let head = |method| Interleaved::<N>::new(layer, method, input, output, Tail::default(), threads);
        methods.into_iter().map(|(name, method)| (name, Box::new(head(method)) as Box<dyn Head>)).collect()
    }
}
