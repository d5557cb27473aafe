//! Computes means over windows: of one plane, or of interleaved planes, each with the bits that it would get
//! alone.

use super::super::layout::{lines, lines_mut};
use super::super::threads::Disjoint;
use super::super::transpose::{apart, side_by_side};
use super::super::window::Window;
use super::{Kind, Pooling};
use crate::simd::{sums_side_by_side, wide};
use crate::workspace::Workspace;

/// An element to average: one number, or those of several images.
pub(super) trait Element: Copy {
    const ZERO: Self;
    fn plus(self, other: Self) -> Self;
    fn over(self, count: f32) -> Self;
}

impl Element for f32 {
    const ZERO: f32 = 0.0;

    #[inline(always)]
    fn plus(self, other: f32) -> f32 {
        self + other
    }

    #[inline(always)]
    fn over(self, count: f32) -> f32 {
        self / count
    }
}

impl<const N: usize> Element for [f32; N] {
    const ZERO: [f32; N] = [0.0; N];

    #[inline(always)]
    fn plus(mut self, other: [f32; N]) -> [f32; N] {
        self.iter_mut().zip(other).for_each(|(a, b)| *a += b);
        self
    }

    #[inline(always)]
    fn over(self, count: f32) -> [f32; N] {
        self.map(|sum| sum / count)
    }
}

impl Pooling {
    /// Calls `work` with the index of a group of N samples and of a channel, and scratch for an input and an
    /// output plane.
    fn each_group<const N: usize>(
        &self,
        samples: usize,
        workspace: &mut Workspace,
        work: impl Fn(usize, usize, &mut [[f32; N]], &mut [[f32; N]]) + Sync,
    ) {
        let (in_plane, out_plane) = (self.window.input_size(), self.window.output_size());
        let [scratch] = workspace.lines([self.threads.count() * (in_plane + out_plane)]);
        let scratch = Disjoint::new(scratch);
        self.threads.each(samples / N * self.channels, |worker, tile| {
            let start = worker * (in_plane + out_plane);
            // SAFETY: a worker's scratch is its own.
            let scratch = unsafe { scratch.part(start..start + in_plane + out_plane) };
            let (inner, outer) = scratch.split_at_mut(in_plane);
            wide!(work(tile / self.channels, tile % self.channels, inner, outer));
        });
    }

    /// From interleaved images to planes.
    pub(super) fn forward_side_by_side<const N: usize>(
        &self,
        input: &[f32],
        output: &mut [f32],
        workspace: &mut Workspace,
    ) {
        let (window, channels) = (self.window, self.channels);
        let (in_plane, out_plane) = (window.input_size(), window.output_size());
        let (input, samples) = (lines::<N>(input), output.len() / (channels * out_plane));
        let places: Vec<u32> = (0..out_plane as u32).collect();
        let output = Disjoint::new(output);
        self.each_group(samples, workspace, |group, channel, _, means: &mut [[f32; N]]| {
            let plane = &input[(group * channels + channel) * in_plane..][..in_plane];
            match self.kind {
                Kind::Global => {
                    let [sums] = sums_side_by_side(in_plane, |place, image| [plane[place][image]]);
                    means[0] = sums.over(in_plane as f32);
                }
                kind => average_forward(&window, kind == Kind::Padded, plane, means),
            }
            apart(means, &places, false, |image| {
                let start = ((group * N + image) * channels + channel) * out_plane;
                // SAFETY: a plane belongs to one tile.
                Some(unsafe { output.part(start..start + out_plane) })
            });
        });
    }

    /// From gradients of planes to those of interleaved images.
    pub(super) fn backward_side_by_side<const N: usize>(
        &self,
        d_output: &[f32],
        d_input: &mut [f32],
        accumulate: bool,
        workspace: &mut Workspace,
    ) {
        let (window, channels) = (self.window, self.channels);
        let (in_plane, out_plane) = (window.input_size(), window.output_size());
        let sample = channels * out_plane;
        let places: Vec<u32> = (0..out_plane as u32).collect();
        let d_input = Disjoint::new(lines_mut::<N>(d_input));
        self.each_group(d_output.len() / sample, workspace, |group, channel, d_plane, d_means| {
            let of_group = &d_output[group * N * sample..(group + 1) * N * sample];
            side_by_side(of_group, sample, channel * out_plane, &places, d_means);
            match self.kind {
                Kind::Global => d_plane.fill(d_means[0].over(in_plane as f32)),
                kind => average_backward(&window, kind == Kind::Padded, d_means, d_plane),
            }
            let start = (group * channels + channel) * in_plane;
            // SAFETY: a plane belongs to one tile.
            let d_input = unsafe { d_input.part(start..start + in_plane) };
            for (target, d) in d_input.iter_mut().zip(d_plane) {
                *target = if accumulate { target.plus(*d) } else { *d };
            }
        });
    }
}

/// The places of the window of output (y, x) that are inside the image: rows and columns.
#[inline(always)]
fn inside(window: &Window, y: usize, x: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let clip = |at: usize, stride: usize, kernel: usize, padding: usize, size: usize| {
        let end = (at * stride + kernel).saturating_sub(padding).min(size);
        (at * stride).saturating_sub(padding).min(end)..end
    };
    (
        clip(y, window.stride.0, window.kernel.0, window.padding.0, window.input.0),
        clip(x, window.stride.1, window.kernel.1, window.padding.1, window.input.1),
    )
}

/// What the sum under the window of output (y, x) is divided by: its places inside the image, or inside the padded one.
#[inline(always)]
fn counted(window: &Window, padded: bool, inside: usize, y: usize, x: usize) -> f32 {
    let clip = |at: usize, stride: usize, kernel: usize, padding: usize, size: usize| {
        (at * stride + kernel).min(size + 2 * padding).saturating_sub(at * stride)
    };
    let count = if padded {
        let Window { stride, kernel, padding, input, .. } = *window;
        clip(y, stride.0, kernel.0, padding.0, input.0) * clip(x, stride.1, kernel.1, padding.1, input.1)
    } else {
        inside
    };
    count.max(1) as f32
}

/// The mean over each window's places inside the image, or with the padding's places as zeros.
#[inline(always)]
pub(super) fn average_forward<T: Element>(window: &Window, padded: bool, plane: &[T], output: &mut [T]) {
    for (y, row) in output.chunks_exact_mut(window.output.1).enumerate() {
        for (x, out) in row.iter_mut().enumerate() {
            let (rows, columns) = inside(window, y, x);
            let count = counted(window, padded, rows.len() * columns.len(), y, x);
            let mut total = T::ZERO;
            for row in rows {
                let row = &plane[row * window.input.1..][columns.clone()];
                total = total.plus(row.iter().fold(T::ZERO, |sum, value| sum.plus(*value)));
            }
            *out = total.over(count);
        }
    }
}

/// The gradient of a plane from that of its means.
#[inline(always)]
pub(super) fn average_backward<T: Element>(window: &Window, padded: bool, d_output: &[T], d_plane: &mut [T]) {
    d_plane.fill(T::ZERO);
    for (y, row) in d_output.chunks_exact(window.output.1).enumerate() {
        for (x, d) in row.iter().enumerate() {
            let (rows, columns) = inside(window, y, x);
            let share = d.over(counted(window, padded, rows.len() * columns.len(), y, x));
            for row in rows {
                d_plane[row * window.input.1..][columns.clone()].iter_mut().for_each(|d| *d = d.plus(share));
            }
        }
    }
}
