//! Computes maximum, average and global pooling, plane by plane; means also of interleaved planes, with the
//! same bits.

mod means;

use lockstep_models::{Layer, Pool2d, PoolKind, Shape};

use super::elementwise::merge;
use super::layout::{Fit, Layout, for_side_by_side, most_side_by_side};
use super::maxima::max_forward;
use super::tail::Tail;
use super::threads::{Disjoint, Threads};
use super::window::Window;
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{sum, wide};
use crate::workspace::{Workspace, bytes};
use means::{average_backward, average_forward};

/// Input elements of one tile.
const TILE: usize = 16 * 1024;

/// The kind of pooling.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Max,
    Average,
    /// The same, with the padding counted.
    Padded,
    /// The mean of the whole plane.
    Global,
}

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (kind, window) = match of.layer {
        Layer::GlobalPool => {
            let (whole, one) = (of.input().image().sides(), (1, 1));
            (Kind::Global, Window::new([whole, one, (0, 0), one], of.input(), of.output))
        }
        Layer::Pool2d(layer) => {
            let kind = match (layer.kind, layer.count_padding) {
                (PoolKind::Max, _) => Kind::Max,
                (PoolKind::Average, false) => Kind::Average,
                (PoolKind::Average, true) => Kind::Padded,
            };
            (kind, pool_window(layer, of.input(), of.output))
        }
        _ => return None,
    };
    let (channels, threads, best) = (of.channels(), of.threads.clone(), Vec::new());
    Some(Box::new(Pooling { kind, channels, window, threads, layout: Layout::Planes, best }))
}

/// A pooling layer.
struct Pooling {
    kind: Kind,
    channels: usize,
    window: Window,
    threads: Threads,
    /// The layout of the input and its gradient; maxima require planes.
    pub(crate) layout: Layout,
    /// Per output element: the place of the maximum; empty for means.
    best: Vec<u32>,
}

/// The windows of a pooling layer.
pub(crate) fn pool_window(layer: &Pool2d, input: Shape, output: Shape) -> Window {
    Window::new([layer.kernel, layer.stride, layer.padding, (1, 1)], input, output)
}

impl Pooling {
    /// Whether it supports interleaved planes.
    pub(crate) fn takes_side_by_side(&self) -> bool {
        self.kind != Kind::Max
    }

    /// Elements of a pass's workspace: per thread an input plane of gradients, or a group of them with one of the output.
    pub(crate) fn workspace(&self) -> [usize; 1] {
        let (in_plane, out_plane) = (self.window.input_size(), self.window.output_size());
        [self.threads.count()
            * if self.takes_side_by_side() { most_side_by_side() * (in_plane + out_plane) } else { in_plane }]
    }

    /// Planes of one tile.
    fn planes(&self) -> usize {
        (TILE / self.window.input_size()).max(1)
    }
}

impl Head for Pooling {
    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace) {
        let (input, output) = (of.inputs[0], of.output);
        if let Layout::SideBySide(samples) = self.layout {
            return for_side_by_side!(samples, self.forward_side_by_side::<N>(input, output, workspace));
        }
        let (window, kind, tile_planes) = (self.window, self.kind, self.planes());
        let (in_plane, out_plane) = (window.input_size(), window.output_size());
        self.best.resize(self.best.len().max(if kind == Kind::Max { output.len() } else { 0 }), 0);
        let best = Disjoint::new(&mut self.best);
        self.threads.each_chunk(output, tile_planes * out_plane, |_, outputs, output| {
            let input = &input[outputs.start / out_plane * in_plane..outputs.end / out_plane * in_plane];
            // SAFETY: disjoint, as the chunks are.
            let best = unsafe { best.part(if kind == Kind::Max { outputs } else { 0..0 }) };
            wide!({
                for (index, plane) in input.chunks_exact(in_plane).enumerate() {
                    let part = index * out_plane..(index + 1) * out_plane;
                    match kind {
                        Kind::Max => max_forward(&window, plane, |x| x, &mut output[part.clone()], &mut best[part]),
                        Kind::Average => average_forward(&window, false, plane, &mut output[part]),
                        Kind::Padded => average_forward(&window, true, plane, &mut output[part]),
                        Kind::Global => output[index] = sum(plane, |x| x) / in_plane as f32,
                    }
                }
            });
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        if let Layout::SideBySide(samples) = self.layout {
            return for_side_by_side!(
                samples,
                self.backward_side_by_side::<N>(of.d_output, d_input, accumulate, workspace)
            );
        }
        let (window, kind, tile_planes) = (self.window, self.kind, self.planes());
        let (in_plane, out_plane) = (window.input_size(), window.output_size());
        let tail = Tail { relu: false, pool: Some(window) };
        let [scratch] = workspace.parts(self.workspace());
        let (scratch, best) = (Disjoint::new(scratch), &self.best);
        self.threads.each_chunk(d_input, tile_planes * in_plane, |worker, inputs, d_input| {
            // SAFETY: a worker's scratch is its own.
            let d_plane = unsafe { scratch.part(worker * in_plane..(worker + 1) * in_plane) };
            for (plane, d_input) in (inputs.start / in_plane..).zip(d_input.chunks_exact_mut(in_plane)) {
                let part = plane * out_plane..(plane + 1) * out_plane;
                let d_output = &of.d_output[part.clone()];
                wide!(match kind {
                    Kind::Max => tail.backward(d_output, &[], &best[part], d_plane),
                    Kind::Average => average_backward(&window, false, d_output, d_plane),
                    Kind::Padded => average_backward(&window, true, d_output, d_plane),
                    Kind::Global => d_plane.fill(d_output[0] / in_plane as f32),
                });
                merge(d_input, d_plane, accumulate);
            }
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&self.workspace())
    }

    fn fit(&self) -> Fit {
        if self.takes_side_by_side() { Fit::PlanesBehind } else { Fit::Planes }
    }

    fn lay(&mut self, input: Layout, output: Layout) {
        assert!(
            output == Layout::Planes && (self.takes_side_by_side() || input == Layout::Planes),
            "the output lies in planes"
        );
        self.layout = input;
    }
}
