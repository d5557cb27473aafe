//! Computes the gradient of 3 × 3 filters of stride 1 with the products of F(2 × 2, 3 × 3): 16 a tile and channel pair
//! instead of 36.
//!
//! Tiles are transformed in blocks that stay in the second-level cache, four channels side by side, so that a tile of 4
//! × 4 channel pairs is summed over a block in registers. The inverse transform is applied once, after all images have
//! been summed.

use std::ops::Range;

use super::layout::{lines, lines_of_register};
use super::matmul::{Matrix, multiply};
use super::register_tiles::CHANNELS;
use super::threads::{Disjoint, Threads, tile_range};
use super::winograd::corner;
use super::winograd_gradients::{ROWS, add_products, gradient_row, input_row};
use super::winograd_tiles::Tile;

/// Channels on both sides from which the sums of a position are a matrix product.
const MANY: usize = 64;
/// Columns, tiles of N images, of such products, and their output channels at most.
const COLUMNS: usize = 512;
const OUTS: usize = 128;
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
    /// Whether sums are matrix products.
    matrices: bool,
    threads: Threads,
}

impl<const N: usize> WeightGradient<N> {
    pub(crate) fn new(channels: usize, out_channels: usize, size: (usize, usize), threads: &Threads) -> Self {
        assert!(channels.is_multiple_of(CHANNELS) && out_channels.is_multiple_of(CHANNELS), "whole fours of channels");
        Self::of(channels, out_channels, size, channels.min(out_channels) >= MANY, threads)
    }

    fn of(channels: usize, out_channels: usize, size: (usize, usize), matrices: bool, threads: &Threads) -> Self {
        let fit = if matrices { COLUMNS / N } else { BLOCK / (N * ROWS * (channels + out_channels)) };
        let tiles = fit.clamp(8, MOST_TILES).min(size.0 * size.1 / 4).next_multiple_of(lines_of_register::<N>());
        WeightGradient { size, channels, out_channels, tiles, matrices, threads: threads.clone() }
    }

    /// Lines of its workspace: the sums of all channel pairs, and a block of transformed tiles for each thread.
    pub(crate) fn workspace(&self) -> [usize; 2] {
        let sums = ROWS * ROWS * self.channels * self.out_channels / N;
        [sums, self.threads.count() * self.block()]
    }

    /// Lines of a block.
    fn block(&self) -> usize {
        ROWS * (position_step::<N>(self.channels * self.tiles) + position_step::<N>(self.out_channels * self.tiles))
    }

    /// Adds to `sums` (initially zero) the contribution of N `images`, `[channels, height, width]`, and the
    /// `gradients` of their outputs, `[out_channels, height, width]`. `sums`:
    /// `[row, fours of outputs, position in the row, fours of inputs, 4, 4]`, or, of matrix products,
    /// `[row, blocks of outputs, position in the row, outputs, inputs]`.
    pub(crate) fn add(&self, images: &[[f32; N]], gradients: &[[f32; N]], sums: &mut [f32], scratch: &mut [[f32; N]]) {
        let (plane, tiles) = (self.size.0 * self.size.1, self.size.0 * self.size.1 / 4);
        assert_eq!(images.len(), self.channels * plane, "planes of images");
        assert_eq!(gradients.len(), self.out_channels * plane, "planes of gradients");
        let (fours, out_fours) = (self.channels / CHANNELS, self.out_channels / CHANNELS);
        // A sum belongs to one part whatever their number, so the number may depend on the threads.
        let parts = self.threads.count().div_ceil(ROWS).min(out_fours);
        let part = out_fours.div_ceil(parts);
        let part = if self.matrices { part.next_multiple_of(OUTS / CHANNELS) } else { part };
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
                let (inputs, transformed) = scratch.split_at_mut(ROWS * position_step::<N>(self.channels * self.tiles));
                let gradients = &gradients[outs.start * CHANNELS * plane..outs.end * CHANNELS * plane];
                let tiles = &block[..live];
                let of_inputs =
                    |plane: &[_], tile: &_, target: &mut [_], step| input_row(plane, tile, row, target, step);
                let of_gradients =
                    |plane: &[_], tile: &_, target: &mut [_], step| gradient_row(plane, tile, row, target, step);
                let of_register = lines_of_register::<N>();
                // Tiles that the last register lacks are zeros.
                let padded = if self.matrices { live } else { live.next_multiple_of(of_register) };
                let steps =
                    [self.channels, outs.len() * CHANNELS].map(|channels| position_step::<N>(channels * padded));
                if self.matrices {
                    // `[position in the row, planes, tile]`.
                    let line = |channel: usize, at: usize| channel * live + at;
                    spread(images, tiles, (&mut *inputs, steps[0]), line, of_inputs);
                    spread(gradients, tiles, (&mut *transformed, steps[1]), line, of_gradients);
                    add_matrices((inputs, transformed), steps, live, self.channels, sums);
                    continue;
                }
                // `[position in the row, fours of planes, tiles of a register, 4, tile of the register]`.
                let line = |channel: usize, at: usize| {
                    let four = channel / CHANNELS * padded + at / of_register * of_register;
                    four * CHANNELS + channel % CHANNELS * of_register + at % of_register
                };
                spread(images, tiles, (&mut *inputs, steps[0]), line, of_inputs);
                spread(gradients, tiles, (&mut *transformed, steps[1]), line, of_gradients);
                clear(self.channels, live..padded, (&mut *inputs, steps[0]), line);
                clear(outs.len() * CHANNELS, live..padded, (&mut *transformed, steps[1]), line);
                let lines = padded * CHANNELS;
                for (out, sums) in sums.chunks_exact_mut(ROWS * fours * SUMS).enumerate() {
                    for (at, sums) in sums.chunks_exact_mut(SUMS).enumerate() {
                        let (position, four) = (at / fours, at % fours);
                        let transformed = &transformed[position * steps[1] + out * lines..][..lines];
                        add_registers(&inputs[position * steps[0] + four * lines..][..lines], transformed, sums);
                    }
                }
            }
        });
    }

    /// The gradient of the filters, `[out_channels, channels, 3, 3]`, from the sums of all images.
    pub(crate) fn finish(&self, sums: &[f32], gradient: &mut [f32]) {
        let (fours, out_fours) = (self.channels / CHANNELS, self.out_channels / CHANNELS);
        self.threads.each_chunk(gradient, 9 * self.channels, |_, range, gradient| {
            let o = range.start / (9 * self.channels);
            for (c, gradient) in gradient.chunks_exact_mut(9).enumerate() {
                let sum = |y: usize, x: usize| {
                    if self.matrices {
                        let first = o / OUTS * OUTS;
                        let outs = OUTS.min(self.out_channels - first);
                        let row = (y * self.out_channels + first) * ROWS + x * outs + o - first;
                        return sums[row * self.channels + c];
                    }
                    let tile = ((y * out_fours + o / CHANNELS) * ROWS + x) * fours + c / CHANNELS;
                    sums[tile * SUMS + o % CHANNELS * CHANNELS + c % CHANNELS]
                };
                let columns: [[f32; 3]; ROWS] = std::array::from_fn(|x| gathered(std::array::from_fn(|y| sum(y, x))));
                for y in 0..3 {
                    gradient[3 * y..3 * y + 3].copy_from_slice(&gathered(std::array::from_fn(|x| columns[x][y])));
                }
            }
        });
    }
}

/// Gᵀ u for one column u, the rows of Gᵀ being 1 ½ ½ 0, 0 ½ −½ 0, 0 ½ ½ 1.
fn gathered(u: [f32; ROWS]) -> [f32; 3] {
    let (plus, minus) = (0.5 * (u[1] + u[2]), 0.5 * (u[1] - u[2]));
    [u[0] + plus, minus, plus + u[3]]
}

/// Distance between two positions in a block: an odd number of registers, since a power of two would map them all to one
/// part of the cache.
fn position_step<const N: usize>(lines: usize) -> usize {
    lines + lines_of_register::<N>()
}

/// [`add_products`] of lines of whole registers.
fn add_registers<const N: usize>(inputs: &[[f32; N]], gradients: &[[f32; N]], sums: &mut [f32]) {
    let (inputs, gradients) = (inputs.as_flattened(), gradients.as_flattened());
    match lines_of_register::<N>() * N {
        8 => add_products::<8>(lines(inputs), lines(gradients), sums),
        _ => add_products::<16>(lines(inputs), lines(gradients), sums),
    }
}

/// Transforms `tiles` of all planes to `target`: tile `at` of plane `channel` to line `line(channel, at)`, the positions of
/// the row `step` lines apart.
fn spread<const N: usize>(
    planes: &[[f32; N]],
    tiles: &[Tile],
    (target, step): (&mut [[f32; N]], usize),
    line: impl Fn(usize, usize) -> usize,
    transform: impl Fn(&[[f32; N]], &Tile, &mut [[f32; N]], usize),
) {
    for (channel, plane) in planes.chunks_exact(tiles[0].plane()).enumerate() {
        for (at, tile) in tiles.iter().enumerate() {
            transform(plane, tile, &mut target[line(channel, at)..], step);
        }
    }
}

/// Zeros for tiles `missing` of `channels` planes, as [`spread`] has them.
fn clear<const N: usize>(
    channels: usize,
    missing: Range<usize>,
    (target, step): (&mut [[f32; N]], usize),
    line: impl Fn(usize, usize) -> usize,
) {
    for at in missing {
        for channel in 0..channels {
            (0..ROWS).for_each(|x| target[line(channel, at) + x * step] = [0.0; N]);
        }
    }
}

/// `sums[block][x][o][c] += Σ_t,image transformed[x][o][t] · inputs[x][c][t]` for `tiles` tiles t and `channels` inputs; the
/// positions x are `steps` lines apart.
fn add_matrices<const N: usize>(
    (inputs, transformed): (&[[f32; N]], &[[f32; N]]),
    steps: [usize; 2],
    tiles: usize,
    channels: usize,
    sums: &mut [f32],
) {
    let columns = tiles * N;
    for (block, sums) in sums.chunks_mut(OUTS * ROWS * channels).enumerate() {
        let outs = sums.len() / (ROWS * channels);
        for (x, sums) in sums.chunks_exact_mut(outs * channels).enumerate() {
            let inputs = Matrix::transposed(inputs[x * steps[0]..].as_flattened(), columns);
            let transformed = Matrix::rows(transformed[x * steps[1] + block * OUTS * tiles..].as_flattened(), columns);
            multiply((outs, channels, columns), sums, channels, true, transformed, inputs);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::layout::for_each_group;
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

        /// Small whole numbers, gradients of multiples of four: nothing is rounded, so all ways give the same numbers, for any
        /// number of threads; two groups of images add up.
        #[test]
        fn is_the_gradient(
            c in 1..5usize,
            o in prop_oneof![5 => 1..7usize, 1 => 33..35usize],
            h in 1..6usize,
            w in 1..8usize,
            count in 1..7usize,
            matrices in any::<bool>(),
        ) {
            for_each_group!({
                let (channels, outs, size) = (4 * c, 4 * o, (2 * h, 2 * w));
                let number = |at: usize| ((at * 37) % 11) as f32 - 5.0;
                let planes = |channels: usize, shift: usize, factor: f32| -> Vec<[f32; N]> {
                    let one = |at: usize| std::array::from_fn(|image| factor * number(N * at + image + shift));
                    (0..channels * size.0 * size.1).map(one).collect()
                };
                let threads = Threads::new(count).expect("a few threads");
                let weights = WeightGradient::<N>::of(channels, outs, size, matrices, &threads);
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
