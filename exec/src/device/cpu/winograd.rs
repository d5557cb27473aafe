//! Computes 3 × 3 convolutions of stride 1 over N images side by side with fewer products: 16 for four outputs of a channel
//! pair instead of 36 (F(2 × 2, 3 × 3) of Lavin and Gray 2016, §4.1).
//!
//! Tiles of 4 × 4 inputs become V = Bᵀ d B, filters U = G g Gᵀ; each of the sixteen places of a tile is then a product
//! of matrices over channels, M = U V, and Y = Aᵀ M A holds 2 × 2 outputs. The images fill registers, so the transforms
//! are additions of whole registers. The gradient of the images is the same convolution with rotated
//! filters.

use std::array::from_fn;
use std::ops::Range;

use super::layout::{lines, lines_mut, lines_of_register};
use super::register_tiles::{CHANNELS, PLACES};
use super::threads::{Disjoint, Threads, tile_range, tile_ranges};
use super::winograd_tiles::{POSITIONS, Tile, multiply, prefetch, prefetch_inputs, transform_input, transform_output};

/// Input channels of a position's block that stay in the first-level cache.
const CACHED: usize = 64;

/// Tiles of a block at most.
const MOST_TILES: usize = 4 * PLACES;

/// Number of blocks of tiles below which output channels are divided among threads too, to keep them busy.
const FEW_BLOCKS: usize = 8;

/// Convolutions of planes of one size, with one zero all around, to planes of that size.
pub(crate) struct Winograd<const N: usize> {
    /// Height and width of an output plane, both even.
    size: (usize, usize),
    /// The larger number of channels on either side.
    most_channels: usize,
    /// Pairs of channels.
    pairs: usize,
    threads: Threads,
}

/// The direction in which a filter is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From images to outputs.
    Forward,
    /// From the outputs' gradients to the images'.
    Backward,
}

/// Whether layers with these channels and planes suit it: whole tiles, whole blocks of channels, and enough of them to pay
/// for the transforms.
pub(crate) fn suits(channels: usize, out_channels: usize, size: (usize, usize)) -> bool {
    let channels_suit = |channels: usize| channels >= 2 * CHANNELS && channels.is_multiple_of(CHANNELS);
    channels_suit(channels) && channels_suit(out_channels) && size.0.is_multiple_of(2) && size.1.is_multiple_of(2)
}

impl<const N: usize> Winograd<N> {
    pub(crate) fn new(channels: usize, out_channels: usize, size: (usize, usize), threads: &Threads) -> Self {
        let most_channels = channels.max(out_channels);
        Winograd { size, most_channels, pairs: channels * out_channels, threads: threads.clone() }
    }

    /// Lines of its workspace: transformed filters, and the threads' scratch: a block of transformed tiles and one of
    /// their products each.
    pub(crate) fn workspace(&self) -> [usize; 2] {
        [
            POSITIONS * filter_step(self.pairs) / N,
            self.threads.count() * 2 * POSITIONS * tile_step::<N>(self.most_channels),
        ]
    }

    /// Transforms the filters `[out_channels, channels, 3, 3]` of the convolutions that follow.
    pub(crate) fn transform(&self, weights: &[f32], channels: usize, direction: Direction, filters: &mut [f32]) {
        let out_channels = weights.len() / 9 / channels;
        let (rows, columns) = match direction {
            Direction::Forward => (out_channels, channels),
            Direction::Backward => (channels, out_channels),
        };
        let step = filter_step(rows * columns);
        let filters = Disjoint::new(filters);
        self.threads.each(rows, |_, row| {
            // SAFETY: a row of each position belongs to one item.
            let mut targets: [&mut [f32]; POSITIONS] = from_fn(|position| unsafe {
                let start = position * step + row * columns;
                filters.part(start..start + columns)
            });
            for column in 0..columns {
                let filter = |at: usize| match direction {
                    Direction::Forward => weights[9 * (row * columns + column) + at],
                    Direction::Backward => weights[9 * (column * channels + row) + 8 - at],
                };
                let half: [[f32; 4]; 3] = from_fn(|x| spread([filter(x), filter(3 + x), filter(6 + x)]));
                let tile: [[f32; 4]; 4] = from_fn(|y| spread([half[0][y], half[1][y], half[2][y]]));
                for (target, value) in targets.iter_mut().zip(tile.as_flattened()) {
                    target[column] = *value;
                }
            }
        });
    }

    /// Convolves `images`, `[channels, height, width]`, to `output`, `[out_channels, height, width]`, with transformed
    /// filters; backward the two sides are swapped.
    pub(crate) fn convolve(
        &self,
        images: &[[f32; N]],
        filters: &[f32],
        output: &mut [[f32; N]],
        scratch: &mut [[f32; N]],
    ) {
        let plane = self.size.0 * self.size.1;
        let (channels, out_channels) = (images.len() / plane, output.len() / plane);
        assert_eq!(channels * plane, images.len(), "whole planes of images");
        assert_eq!(out_channels * plane, output.len(), "whole planes of outputs");
        assert_eq!(channels * out_channels, self.pairs, "a filter for each pair of channels");
        let tiles = plane / 4;
        let of_block = tiles_of_block::<N>();
        let blocks = tiles.div_ceil(of_block);
        let parts = if blocks < FEW_BLOCKS && out_channels.is_multiple_of(2 * CHANNELS) { 2 } else { 1 };
        let part = out_channels / parts;
        let per_worker = 2 * POSITIONS * tile_step::<N>(self.most_channels);
        let size = self.size;
        let (scratch, output) = (Disjoint::new(scratch), Disjoint::new(output));
        self.threads.each(blocks * parts, |worker, item| {
            // SAFETY: a worker's scratch is its own.
            let scratch = unsafe { scratch.part(worker * per_worker..(worker + 1) * per_worker) };
            let (inputs, products) = scratch.split_at_mut(per_worker / 2);
            let outs = tile_range(item % parts, part, out_channels);
            let first = item / parts * of_block;
            // Tiles after the last are computed as copies of it and dropped.
            let from = |first: usize| {
                let tile = |at: usize| Tile::at(corner((first + at).min(tiles - 1), size), size);
                let mut block = [tile(0); MOST_TILES];
                block[1..of_block].iter_mut().zip(1..).for_each(|(target, at)| *target = tile(at));
                block
            };
            let live = of_block.min(tiles - first);
            // The block that this thread will probably process next.
            let ahead = from(first + self.threads.count().div_ceil(parts) * of_block);
            let block = Block { tiles: from(first), ahead, channels, outs: outs.clone() };
            // SAFETY: tiles and channels belong to one item.
            let row = |start: usize| unsafe { output.part(start..start + 2) };
            for (out, tile) in outs.clone().flat_map(|out| block.tiles[..live].iter().map(move |tile| (out, tile))) {
                // Outputs are written much later; their lines should be in the cache by then.
                let [first, second] = tile.outputs();
                row(out * plane + first).iter().for_each(prefetch);
                row(out * plane + second).iter().for_each(prefetch);
            }
            block.products(images, filters, out_channels, inputs, products);
            for (index, out) in outs.enumerate() {
                for (at, tile) in block.tiles[..live].iter().enumerate() {
                    let [first, second] = tile.outputs();
                    let rows = [row(out * plane + first), row(out * plane + second)];
                    transform_output(&products[index * of_block + at..], tile_step::<N>(block.outs.len()), rows);
                }
            }
        });
    }
}

/// Distance between the filters of two places: whole lines, but not a power of two, which would map them all to one
/// part of the cache.
fn filter_step(pairs: usize) -> usize {
    pairs.next_multiple_of(16) + 16
}

/// Tiles of a block: those of [`PLACES`] registers.
fn tiles_of_block<const N: usize>() -> usize {
    PLACES * lines_of_register::<N>()
}

/// Distance between the tiles of two positions, in lines; an odd number of registers for the same reason.
fn tile_step<const N: usize>(channels: usize) -> usize {
    channels * tiles_of_block::<N>() + lines_of_register::<N>()
}

/// [`multiply`] of lines of whole registers.
fn multiply_registers<const N: usize>(
    inputs: &[[f32; N]],
    filters: &[f32],
    channels: Range<usize>,
    products: &mut [[f32; N]],
) {
    let (all, sums) = (inputs.as_flattened(), products.as_flattened_mut());
    match lines_of_register::<N>() * N {
        8 => multiply::<8>(lines(all), filters, channels, lines_mut(sums)),
        _ => multiply::<16>(lines(all), filters, channels, lines_mut(sums)),
    }
}

/// (G g)ᵢ for one column g, the rows of G being 1 0 0, ½ ½ ½, ½ −½ ½, 0 0 1.
fn spread(g: [f32; 3]) -> [f32; 4] {
    [g[0], 0.5 * (g[0] + g[1] + g[2]), 0.5 * (g[0] - g[1] + g[2]), g[2]]
}

/// Row and column of the first output of a tile.
pub(crate) fn corner(tile: usize, size: (usize, usize)) -> (usize, usize) {
    let across = size.1 / 2;
    (tile / across * 2, tile % across * 2)
}

/// The tiles of one block and the output channels of one item.
struct Block {
    tiles: [Tile; MOST_TILES],
    /// Tiles whose inputs should be prefetched.
    ahead: [Tile; MOST_TILES],
    channels: usize,
    outs: Range<usize>,
}

impl Block {
    /// Computes `products[position][out][tile]` of the block, through `inputs[position][channel][tile]`.
    fn products<const N: usize>(
        &self,
        images: &[[f32; N]],
        filters: &[f32],
        out_channels: usize,
        inputs: &mut [[f32; N]],
        products: &mut [[f32; N]],
    ) {
        let (in_step, out_step) = (tile_step::<N>(self.channels), tile_step::<N>(self.outs.len()));
        let of_block = tiles_of_block::<N>();
        for (channel, plane) in images.chunks_exact(self.tiles[0].plane()).enumerate() {
            for (at, tile) in self.tiles[..of_block].iter().enumerate() {
                transform_input(plane, tile, &mut inputs[channel * of_block + at..], in_step);
            }
            self.ahead[..of_block].iter().for_each(|tile| prefetch_inputs(plane, tile));
        }
        for position in 0..POSITIONS {
            let inputs = &inputs[position * in_step..][..self.channels * of_block];
            let start = position * filter_step(out_channels * self.channels) + self.outs.start * self.channels;
            let filters = &filters[start..];
            for channels in tile_ranges(CACHED, self.channels) {
                for out in (0..self.outs.len()).step_by(CHANNELS) {
                    let filters = &filters[out * self.channels..(out + CHANNELS) * self.channels];
                    let products = &mut products[position * out_step + out * of_block..][..CHANNELS * of_block];
                    multiply_registers(inputs, filters, channels.clone(), products);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::layout::for_each_group;
    use super::*;
    use crate::workspace::Workspace;

    /// Y by the definition.
    fn by_definition<const N: usize>(
        images: &[[f32; N]],
        weights: &[f32],
        channels: usize,
        (height, width): (usize, usize),
    ) -> Vec<f32> {
        let (outs, plane) = (weights.len() / 9 / channels, height * width);
        let places = (0..outs).flat_map(|o| (0..height * width).map(move |p| (o, p / width, p % width)));
        let sum = |(o, y, x): (usize, usize, usize)| {
            from_fn::<f32, N, _>(|image| {
                let taps =
                    (0..channels * 9).map(|k| (k / 9, (y + k % 9 / 3).wrapping_sub(1), (x + k % 3).wrapping_sub(1)));
                let inside = |y: usize, x: usize| y < height && x < width;
                let values =
                    taps.map(|(c, y, x)| if inside(y, x) { images[c * plane + y * width + x][image] } else { 0.0 });
                values.zip(&weights[o * channels * 9..]).map(|(x, w)| x * w).sum()
            })
        };
        places.flat_map(sum).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Small whole numbers and filters of multiples of four: nothing is rounded, so both ways give the same
        /// numbers, and the gradient is that of ⟨d, W x⟩.
        #[test]
        fn is_the_convolution(
            c in prop_oneof![4 => 2..5usize, 1 => 16..20usize],
            o in 2..7usize,
            h in 1..5usize,
            w in 1..8usize,
            count in 1..3usize,
        ) {
            for_each_group!({
                let (channels, outs, size) = (4 * c, 4 * o, (2 * h, 2 * w));
                let plane = size.0 * size.1;
                prop_assert!(suits(channels, outs, size));
                let number = |at: usize| ((at * 37) % 11) as f32 - 5.0;
                let planes = |channels: usize, shift: usize| -> Vec<[f32; N]> {
                    let one = |at: usize| from_fn(|image| number(N * at + image + shift));
                    (0..channels * plane).map(one).collect()
                };
                let weights: Vec<f32> = (0..outs * channels * 9).map(|at| 4.0 * number(at * 5 + at / 9)).collect();
                let threads = Threads::new(count).expect("a few threads");
                let winograd = Winograd::<N>::new(channels, outs, size, &threads);
                let mut workspace = Workspace::default();
                let [filters, scratch] = workspace.lines(winograd.workspace());
                let filters = filters.as_flattened_mut();
                let flat = |of: &[[f32; N]]| of.as_flattened().to_vec();

                let images = planes(channels, 0);
                let mut found = vec![[f32::NAN; N]; outs * plane];
                winograd.transform(&weights, channels, Direction::Forward, filters);
                winograd.convolve(&images, filters, &mut found, scratch);
                prop_assert_eq!(flat(&found), by_definition(&images, &weights, channels, size));

                let gradients = planes(outs, 3);
                let mut found = vec![[f32::NAN; N]; channels * plane];
                winograd.transform(&weights, channels, Direction::Backward, filters);
                winograd.convolve(&gradients, filters, &mut found, scratch);
                let turned = |at: usize| {
                    let (c, o, tap) = (at / 9 / outs, at / 9 % outs, at % 9);
                    weights[(o * channels + c) * 9 + 8 - tap]
                };
                let turned: Vec<f32> = (0..weights.len()).map(turned).collect();
                prop_assert_eq!(flat(&found), by_definition(&gradients, &turned, outs, size));
            });
        }
    }
}
