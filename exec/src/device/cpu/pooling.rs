//! Maximum, average and global pooling, plane by plane.

use lockstep_models::{Pool2d, PoolKind, Shape};

use super::elementwise::merge;
use super::simd::{sum, wide};
use super::tail::{Tail, max_forward};
use super::threads::{Disjoint, Threads, tile_range};
use super::window::Window;
use super::workspace::Workspace;
use super::{Gradients, pair};

/// Input elements of one tile.
const TILE: usize = 16 * 1024;

/// Which pooling.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Max,
    Average,
    /// The mean of the whole plane.
    Global,
}

/// A pooling layer.
pub(crate) struct Pooling {
    kind: Kind,
    window: Window,
    threads: Threads,
    /// Per output element: the place of the maximum; empty for means.
    best: Vec<u32>,
}

/// The windows of a pooling layer.
pub(crate) fn pool_window(layer: &Pool2d, input: Shape, output: Shape) -> Window {
    Window {
        kernel: pair(layer.kernel),
        stride: pair(layer.stride),
        padding: pair(layer.padding),
        dilation: (1, 1),
        input: (input.height as usize, input.width as usize),
        output: (output.height as usize, output.width as usize),
    }
}

impl Pooling {
    pub(crate) fn new(layer: &Pool2d, input: Shape, output: Shape, threads: &Threads) -> Pooling {
        let window = pool_window(layer, input, output);
        let kind = match layer.kind {
            PoolKind::Max => Kind::Max,
            PoolKind::Average => Kind::Average,
        };
        Pooling { kind, window, threads: threads.clone(), best: Vec::new() }
    }

    pub(crate) fn global(input: Shape, threads: &Threads) -> Pooling {
        let size = (input.height as usize, input.width as usize);
        let (one, zero) = ((1, 1), (0, 0));
        let window = Window { kernel: size, stride: one, padding: zero, dilation: one, input: size, output: one };
        Pooling { kind: Kind::Global, window, threads: threads.clone(), best: Vec::new() }
    }

    /// Elements of a backward pass' workspace: per thread an input plane of gradients.
    pub(crate) fn workspace(&self) -> [usize; 1] {
        [self.threads.count() * self.window.input_size()]
    }

    /// Planes of one tile.
    fn planes(&self) -> usize {
        (TILE / self.window.input_size()).max(1)
    }

    pub(crate) fn forward(&mut self, input: &[f32], output: &mut [f32]) {
        let (window, kind, tile_planes) = (self.window, self.kind, self.planes());
        let (in_plane, out_plane) = (window.input_size(), window.output_size());
        let planes = output.len() / out_plane;
        self.best.resize(self.best.len().max(if kind == Kind::Max { output.len() } else { 0 }), 0);
        let (output, best) = (Disjoint::new(output), Disjoint::new(&mut self.best));
        self.threads.each(planes.div_ceil(tile_planes), |_, tile| {
            let range = tile_range(tile, tile_planes, planes);
            let outputs = range.start * out_plane..range.end * out_plane;
            // SAFETY: planes belong to one tile.
            let (output, best) =
                unsafe { (output.part(outputs.clone()), best.part(if kind == Kind::Max { outputs } else { 0..0 })) };
            let input = &input[range.start * in_plane..range.end * in_plane];
            wide(
                #[inline(always)]
                || {
                    for (index, plane) in input.chunks_exact(in_plane).enumerate() {
                        let part = index * out_plane..(index + 1) * out_plane;
                        match kind {
                            Kind::Max => max_forward(&window, plane, |x| x, &mut output[part.clone()], &mut best[part]),
                            Kind::Average => average_forward(&window, plane, &mut output[part]),
                            Kind::Global => output[index] = sum(plane, |x| x) / in_plane as f32,
                        }
                    }
                },
            );
        });
    }

    pub(crate) fn backward(&self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some(d_input) = of.d_inputs.first_mut().and_then(|d_input| d_input.as_deref_mut()) else { return };
        let accumulate = of.accumulate_inputs.first().is_some_and(|accumulate| *accumulate);
        let (window, kind, tile_planes) = (self.window, self.kind, self.planes());
        let (in_plane, out_plane) = (window.input_size(), window.output_size());
        let planes = of.d_output.len() / out_plane;
        let tail = Tail { relu: false, pool: Some(window) };
        let [scratch] = workspace.parts(self.workspace());
        let (scratch, best, d_input) = (Disjoint::new(scratch), &self.best, Disjoint::new(d_input));
        self.threads.each(planes.div_ceil(tile_planes), |worker, tile| {
            let range = tile_range(tile, tile_planes, planes);
            // SAFETY: a worker's scratch is its own, planes belong to one tile.
            let (d_plane, d_input) = unsafe {
                let d_input = d_input.part(range.start * in_plane..range.end * in_plane);
                (scratch.part(worker * in_plane..(worker + 1) * in_plane), d_input)
            };
            for (plane, d_input) in range.zip(d_input.chunks_exact_mut(in_plane)) {
                let part = plane * out_plane..(plane + 1) * out_plane;
                let d_output = &of.d_output[part.clone()];
                wide(
                    #[inline(always)]
                    || match kind {
                        Kind::Max => tail.backward(d_output, &[], &best[part], d_plane),
                        Kind::Average => average_backward(&window, d_output, d_plane),
                        Kind::Global => d_plane.fill(d_output[0] / in_plane as f32),
                    },
                );
                merge(d_input, d_plane, accumulate);
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

/// The mean over each window's places inside the image.
#[inline(always)]
fn average_forward(window: &Window, plane: &[f32], output: &mut [f32]) {
    for (y, row) in output.chunks_exact_mut(window.output.1).enumerate() {
        for (x, out) in row.iter_mut().enumerate() {
            let (rows, columns) = inside(window, y, x);
            let count = (rows.len() * columns.len()).max(1) as f32;
            let mut total = 0.0;
            for row in rows {
                total += plane[row * window.input.1..][columns.clone()].iter().sum::<f32>();
            }
            *out = total / count;
        }
    }
}

#[inline(always)]
fn average_backward(window: &Window, d_output: &[f32], d_plane: &mut [f32]) {
    d_plane.fill(0.0);
    for (y, row) in d_output.chunks_exact(window.output.1).enumerate() {
        for (x, d) in row.iter().enumerate() {
            let (rows, columns) = inside(window, y, x);
            let share = *d / (rows.len() * columns.len()).max(1) as f32;
            for row in rows {
                d_plane[row * window.input.1..][columns.clone()].iter_mut().for_each(|d| *d += share);
            }
        }
    }
}
