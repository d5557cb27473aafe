//! Computes convolutions of any filter over N images side by side as matrix products: rows of weights by a column for each
//! place and image.
//!
//! Under a 1 × 1 filter of stride 1 the images themselves are the columns; other filters are unfolded. Places are
//! processed in blocks. All sizes depend on the layer alone, never on the threads.

use std::ops::Range;

use super::super::matmul::{Matrix, multiply, multiply_part};
use super::super::register_tiles::Offsets;
use super::super::threads::{Disjoint, Threads, tile_range, tile_ranges};
use super::super::window::Window;

/// Elements of an unfolded block, and columns of a block at most.
const BLOCK: usize = 1 << 18;
const COLUMNS: usize = 1024;
/// Number of blocks below which the other side of a product is divided too, to keep threads busy.
const FEW_BLOCKS: usize = 4;

/// The matrix products of one layer over N images.
pub(super) struct Unfolded<const N: usize> {
    /// Whether the images themselves are the columns.
    pointwise: bool,
    /// Output places, and those of a block.
    places: usize,
    block: usize,
    /// Weights of an output channel, and those of one input channel.
    depth: usize,
    taps: usize,
    threads: Threads,
}

impl<const N: usize> Unfolded<N> {
    /// The products of a layer with these windows over `channels` planes.
    pub(super) fn new(window: &Window, channels: usize, threads: &Threads) -> Self {
        let (pointwise, places, taps) = (window.is_pointwise(), window.output_size(), window.taps());
        let depth = channels * taps;
        let columns = if pointwise { COLUMNS } else { (BLOCK / depth).min(COLUMNS) };
        let blocks = places.div_ceil((columns / N).clamp(1, places));
        Unfolded { pointwise, places, block: places.div_ceil(blocks), depth, taps, threads: threads.clone() }
    }

    /// Lines of its workspace: an unfolded block for each thread.
    pub(super) fn workspace(&self) -> usize {
        self.threads.count() * self.per_worker()
    }

    fn per_worker(&self) -> usize {
        if self.pointwise { 0 } else { self.depth * self.block }
    }

    /// Rows `taps` and columns `places` of `images`, unfolded into `scratch` unless they are the images.
    fn columns<'a>(
        &self,
        offsets: &Offsets,
        images: &'a [[f32; N]],
        (taps, places): (Range<usize>, &Range<usize>),
        scratch: &'a mut [[f32; N]],
    ) -> Matrix<'a> {
        if self.pointwise {
            return Matrix::rows(images[taps.start * self.places + places.start..].as_flattened(), self.places * N);
        }
        let columns = &mut scratch[..taps.len() * places.len()];
        offsets.unfold(images, taps, places.clone(), columns);
        Matrix::rows(columns.as_flattened(), places.len() * N)
    }

    /// Calls `work` with each tile below `tiles` and a thread's scratch.
    fn each(&self, tiles: usize, scratch: &mut [[f32; N]], work: impl Fn(usize, &mut [[f32; N]]) + Sync) {
        let (per_worker, scratch) = (self.per_worker(), Disjoint::new(scratch));
        self.threads.each(tiles, |worker, tile| {
            // SAFETY: a worker's scratch is its own.
            work(tile, unsafe { scratch.part(worker * per_worker..(worker + 1) * per_worker) });
        });
    }

    /// Calls `work` with each block of places, divided into parts of `rows` of the product where there are few.
    fn each_block(
        &self,
        rows: usize,
        scratch: &mut [[f32; N]],
        work: impl Fn(Range<usize>, Range<usize>, &mut [[f32; N]]) + Sync,
    ) {
        let blocks = self.places.div_ceil(self.block);
        let part = rows.div_ceil(FEW_BLOCKS.div_ceil(blocks));
        let parts = rows.div_ceil(part);
        self.each(blocks * parts, scratch, |tile, scratch| {
            work(tile_range(tile % parts, part, rows), tile_range(tile / parts, self.block, self.places), scratch);
        });
    }

    /// `products[o][p] = Σ_k weights[o][k] · images[place p, tap k]`.
    pub(super) fn products(
        &self,
        offsets: &Offsets,
        images: &[[f32; N]],
        weights: &[f32],
        products: &mut [[f32; N]],
        scratch: &mut [[f32; N]],
    ) {
        let (depth, stride) = (self.depth, self.places * N);
        let out_channels = weights.len() / depth;
        let products = Disjoint::new(products.as_flattened_mut());
        self.each_block(out_channels, scratch, |rows, places, scratch| {
            let columns = self.columns(offsets, images, (0..depth, &places), scratch);
            let sizes = (rows.len(), places.len() * N, depth);
            let start = rows.start * stride + places.start * N;
            let weights = Matrix::rows(&weights[rows.start * depth..], depth);
            // SAFETY: rows and places belong to one tile.
            unsafe { multiply_part(sizes, (&products, start), stride, false, weights, columns) };
        });
    }

    /// Writes, or adds when `add`, the gradient of the weights, `Σ_p,image d_products[o][p] · images[place p, tap k]`.
    pub(super) fn weights(
        &self,
        offsets: &Offsets,
        images: &[[f32; N]],
        d_products: &[[f32; N]],
        (d_weights, add): (&mut [f32], bool),
        scratch: &mut [[f32; N]],
    ) {
        let (depth, stride) = (self.depth, self.places * N);
        let out_channels = d_weights.len() / depth;
        // Each tile unfolds its own columns.
        let [part, part_across] = if self.pointwise {
            [out_channels.div_ceil(2), depth.div_ceil(2)]
        } else {
            [out_channels, depth.div_ceil(FEW_BLOCKS)]
        };
        let parts_across = depth.div_ceil(part_across);
        let d_weights = Disjoint::new(d_weights);
        self.each(out_channels.div_ceil(part) * parts_across, scratch, |tile, scratch| {
            let rows = tile_range(tile / parts_across, part, out_channels);
            let across = tile_range(tile % parts_across, part_across, depth);
            for places in tile_ranges(self.block, self.places) {
                let columns = self.columns(offsets, images, (across.clone(), &places), scratch).transpose();
                let d_products = &d_products[rows.start * self.places + places.start..];
                let d_products = Matrix::rows(d_products.as_flattened(), stride);
                let sizes = (rows.len(), across.len(), places.len() * N);
                let (start, add) = (rows.start * depth + across.start, add || places.start > 0);
                // SAFETY: a tile has its own weights.
                unsafe { multiply_part(sizes, (&d_weights, start), depth, add, d_products, columns) };
            }
        });
    }

    /// Writes the gradient of the images, planes of `plane` lines:
    /// `d_images[place p, tap k] = Σ_o weights[o][k] · d_products[o][p]`, summed where taps meet.
    pub(super) fn images(
        &self,
        offsets: &Offsets,
        d_products: &[[f32; N]],
        weights: &[f32],
        (d_images, plane): (&mut [[f32; N]], usize),
        scratch: &mut [[f32; N]],
    ) {
        let (depth, stride) = (self.depth, self.places * N);
        let (channels, out_channels) = (depth / self.taps, weights.len() / depth);
        let d_products = |places: &Range<usize>| Matrix::rows(d_products[places.start..].as_flattened(), stride);
        if self.pointwise {
            let d_images = Disjoint::new(d_images.as_flattened_mut());
            return self.each_block(channels, scratch, |rows, places, _| {
                let sizes = (rows.len(), places.len() * N, out_channels);
                let start = rows.start * stride + places.start * N;
                let weights = Matrix::transposed(&weights[rows.start..], depth);
                // SAFETY: rows and places belong to one tile.
                unsafe { multiply_part(sizes, (&d_images, start), stride, false, weights, d_products(&places)) };
            });
        }
        let part = channels.div_ceil(FEW_BLOCKS);
        let d_images = Disjoint::new(d_images);
        self.each(channels.div_ceil(part), scratch, |tile, scratch| {
            let channels = tile_range(tile, part, channels);
            let taps = channels.start * self.taps..channels.end * self.taps;
            let weights = Matrix::transposed(&weights[taps.start..], depth);
            // SAFETY: channels belong to one tile.
            let d_images = unsafe { d_images.part(channels.start * plane..channels.end * plane) };
            d_images.fill([0.0; N]);
            for places in tile_ranges(self.block, self.places) {
                let columns = &mut scratch[..taps.len() * places.len()];
                let sizes = (taps.len(), places.len() * N, out_channels);
                let flat = columns.as_flattened_mut();
                multiply(sizes, flat, places.len() * N, false, weights, d_products(&places));
                offsets.fold(columns, places, taps.clone(), d_images, channels.start * plane);
            }
        });
    }
}
