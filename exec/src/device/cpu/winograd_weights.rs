//! Computes the gradient of 3 × 3 filters of stride 1 with the products of F(2 × 2, 3 × 3): 16 a tile and channel pair
//! instead of 36.
//!
//! Tiles are transformed in blocks that stay in the second-level cache, four channels side by side, so that a tile of 4
//! × 4 channel pairs is summed over a block in registers. The inverse transform is applied once, after all images have
//! been summed.

use super::register_tiles::CHANNELS;
use super::threads::{Disjoint, Threads, tile_range};
use super::winograd::corner;
use super::winograd_slopes::{ROWS, add_products, gradient_row, input_row};
use super::winograd_tiles::Tile;

/// Sums of a tile of channel pairs.
const SUMS: usize = CHANNELS * CHANNELS;
/// Elements of transformed tiles that a block should have.
const BLOCK: usize = 1 << 16;
/// Tiles of a block at most.
const MOST_TILES: usize = 64;

/// Filters between planes of one size, with a border of zeros around those of the images; whole fours of channels.
pub(crate) struct WeightGradient<const N: usize> {
    /// Height and width of the planes, both even.
    size: (usize, usize),
    channels: usize,
    out_channels: usize,
    /// Tiles in a block.
    tiles: usize,
    threads: Threads,
}

impl<const N: usize> WeightGradient<N> {
    pub(crate) fn new(channels: usize, out_channels: usize, size: (usize, usize), threads: &Threads) -> Self {
        assert!(channels.is_multiple_of(CHANNELS) && out_channels.is_multiple_of(CHANNELS), "whole fours of channels");
        let fit = BLOCK / (N * ROWS * (channels + out_channels));
        let tiles = fit.clamp(8, MOST_TILES).min(size.0 * size.1 / 4);
        WeightGradient { size, channels, out_channels, tiles, threads: threads.clone() }
    }

    /// Lines of its workspace: the sums of all channel pairs, and a block of transformed tiles for each thread.
    pub(crate) fn workspace(&self) -> [usize; 2] {
        let sums = ROWS * ROWS * self.channels * self.out_channels / N;
        [sums, self.threads.count() * self.block()]
    }

    /// Lines of a block.
    fn block(&self) -> usize {
        ROWS * (position_step(self.channels * self.tiles) + position_step(self.out_channels * self.tiles))
    }

    /// Adds to `sums` (initially zero) the contribution of N `images`, `[channels, height, width]`, and the
    /// `gradients` of their outputs, `[out_channels, height, width]`. `sums`:
    /// `[row, fours of outputs, position in the row, fours of inputs, 4, 4]`.
    pub(crate) fn add(&self, images: &[[f32; N]], gradients: &[[f32; N]], sums: &mut [f32], scratch: &mut [[f32; N]]) {
        let (plane, tiles) = (self.size.0 * self.size.1, self.size.0 * self.size.1 / 4);
        assert_eq!(images.len(), self.channels * plane, "planes of images");
        assert_eq!(gradients.len(), self.out_channels * plane, "planes of gradients");
        let (fours, out_fours) = (self.channels / CHANNELS, self.out_channels / CHANNELS);
        // A sum belongs to one part whatever their number, so the number may depend on the threads.
        let parts = self.threads.count().div_ceil(ROWS).min(out_fours);
        let part = out_fours.div_ceil(parts);
        let parts = out_fours.div_ceil(part);
        let (sums, scratch) = (Disjoint::new(sums), Disjoint::new(scratch));
        self.threads.each(ROWS * parts, |worker, item| {
            let (row, outs) = (item / parts, tile_range(item % parts, part, out_fours));
            // SAFETY: a worker's scratch is its own, and a row's outputs belong to one item.
            let (scratch, sums) = unsafe {
                let of_four = ROWS * fours * SUMS;
                let start = row * out_fours * of_four;
                let sums = sums.part(start + outs.start * of_four..start + outs.end * of_four);
                (scratch.part(worker * self.block()..(worker + 1) * self.block()), sums)
            };
            for first in (0..tiles).step_by(self.tiles) {
                let live = self.tiles.min(tiles - first);
                let block: [Tile; MOST_TILES] =
                    std::array::from_fn(|at| Tile::at(corner((first + at).min(tiles - 1), self.size), self.size));
                let (inputs, slopes) = scratch.split_at_mut(ROWS * position_step(self.channels * self.tiles));
                let gradients = &gradients[outs.start * CHANNELS * plane..outs.end * CHANNELS * plane];
                let tiles = &block[..live];
                spread(images, tiles, inputs, |plane, tile, target, step| input_row(plane, tile, row, target, step));
                spread(gradients, tiles, slopes, |plane, tile, target, step| {
                    gradient_row(plane, tile, row, target, step);
                });
                let lines = live * CHANNELS;
                let steps = [fours, outs.len()].map(|fours| position_step(fours * lines));
                for (out, sums) in sums.chunks_exact_mut(ROWS * fours * SUMS).enumerate() {
                    for (at, sums) in sums.chunks_exact_mut(SUMS).enumerate() {
                        let (position, four) = (at / fours, at % fours);
                        let slopes = &slopes[position * steps[1] + out * lines..][..lines];
                        add_products(&inputs[position * steps[0] + four * lines..][..lines], slopes, sums);
                    }
                }
            }
        });
    }

    /// The gradient of the filters, `[out_channels, channels, 3, 3]`, from the sums of all images.
    pub(crate) fn finish(&self, sums: &[f32], gradient: &mut [f32]) {
        let (fours, out_fours) = (self.channels / CHANNELS, self.out_channels / CHANNELS);
        for (pair, gradient) in gradient.chunks_exact_mut(9).enumerate() {
            let (o, c) = (pair / self.channels, pair % self.channels);
            let sum = |y: usize, x: usize| {
                let tile = ((y * out_fours + o / CHANNELS) * ROWS + x) * fours + c / CHANNELS;
                sums[tile * SUMS + o % CHANNELS * CHANNELS + c % CHANNELS]
            };
            let columns: [[f32; 3]; ROWS] = std::array::from_fn(|x| gathered(std::array::from_fn(|y| sum(y, x))));
            for y in 0..3 {
                gradient[3 * y..3 * y + 3].copy_from_slice(&gathered(std::array::from_fn(|x| columns[x][y])));
            }
        }
    }
}

/// Gᵀ u for one column u, the rows of Gᵀ being 1 ½ ½ 0, 0 ½ −½ 0, 0 ½ ½ 1.
fn gathered(u: [f32; ROWS]) -> [f32; 3] {
    let (plus, minus) = (0.5 * (u[1] + u[2]), 0.5 * (u[1] - u[2]));
    [u[0] + plus, minus, plus + u[3]]
}

/// Distance between two positions in a block: odd, since a power of two would map them all to one part of the cache.
fn position_step(lines: usize) -> usize {
    lines + 1
}

/// Transforms `tiles` of all planes to `target`, `[position in the row, fours of planes, tile, 4]`.
fn spread<const N: usize>(
    planes: &[[f32; N]],
    tiles: &[Tile],
    target: &mut [[f32; N]],
    transform: impl Fn(&[[f32; N]], &Tile, &mut [[f32; N]], usize),
) {
    let size = tiles[0].plane();
    let step = position_step(planes.len() / size * tiles.len());
    for (channel, plane) in planes.chunks_exact(size).enumerate() {
        let start = channel / CHANNELS * tiles.len() * CHANNELS + channel % CHANNELS;
        for (at, tile) in tiles.iter().enumerate() {
            transform(plane, tile, &mut target[start + at * CHANNELS..], step);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::layout::for_side_by_side;
    use super::*;
    use crate::workspace::Workspace;

    /// The gradient by its definition: Σ d(o, y, x) · image(c, y + k − 1, x + l − 1).
    fn by_definition<const N: usize>(
        images: &[[f32; N]],
        gradients: &[[f32; N]],
        (height, width): (usize, usize),
    ) -> Vec<f32> {
        let plane = height * width;
        let (channels, outs) = (images.len() / plane, gradients.len() / plane);
        let tap = |(o, c, k): (usize, usize, usize)| {
            let places = (0..plane).filter_map(|p| {
                let (y, x) = ((p / width + k / 3).wrapping_sub(1), (p % width + k % 3).wrapping_sub(1));
                (y < height && x < width).then(|| (gradients[o * plane + p], images[c * plane + y * width + x]))
            });
            places.map(|(d, x)| d.iter().zip(x).map(|(d, x)| d * x).sum::<f32>()).sum::<f32>()
        };
        (0..outs * channels * 9).map(|at| tap((at / 9 / channels, at / 9 % channels, at % 9))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Small whole numbers, gradients of multiples of four: nothing is rounded, so both ways give the same numbers, for any
        /// number of threads; two groups of images add up.
        #[test]
        fn is_the_gradient(c in 1..5usize, o in 1..7usize, h in 1..6usize, w in 1..8usize, count in 1..7usize) {
            for_side_by_side!({
                let (channels, outs, size) = (4 * c, 4 * o, (2 * h, 2 * w));
                let number = |at: usize| ((at * 37) % 11) as f32 - 5.0;
                let planes = |channels: usize, shift: usize, factor: f32| -> Vec<[f32; N]> {
                    let one = |at: usize| std::array::from_fn(|image| factor * number(N * at + image + shift));
                    (0..channels * size.0 * size.1).map(one).collect()
                };
                let threads = Threads::new(count).expect("a few threads");
                let weights = WeightGradient::<N>::new(channels, outs, size, &threads);
                let mut workspace = Workspace::default();
                let [sums, scratch] = workspace.lines(weights.workspace());
                let sums = sums.as_flattened_mut();
                sums.fill(0.0);
                let mut expected = vec![0.0; outs * channels * 9];
                for shift in [0, 5] {
                    let (images, gradients) = (planes(channels, shift, 1.0), planes(outs, shift + 3, 4.0));
                    weights.add(&images, &gradients, sums, scratch);
                    expected.iter_mut().zip(by_definition(&images, &gradients, size)).for_each(|(sum, one)| *sum += one);
                }
                let mut found = vec![f32::NAN; outs * channels * 9];
                weights.finish(sums, &mut found);
                prop_assert_eq!(found, expected);
            });
        }
    }
}
