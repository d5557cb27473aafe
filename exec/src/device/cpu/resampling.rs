//! Computes layers that mix rows and columns of each channel with fixed weights: reflected borders, blurring, resizing.
//!
//! Each is a matrix of few numbers along rows, and another along columns; the gradient is the same with both transposed.
//! A thread processes a plane.

use lockstep_models::{ImageShape, Layer, Resize};

use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{put, wide};
use crate::workspace::{Workspace, bytes};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let (Some(input), Some(output)) = (of.input().as_image(), of.output.as_image()) else { return None };
    let threads = of.threads.clone();
    // For each side the inputs of an output's place and their weights.
    let sides = |side: &dyn Fn(Side) -> Vec<Vec<(usize, f32)>>| {
        [(input.height, output.height, true), (input.width, output.width, false)]
            .map(|(input, output, down)| Matrix::new(side(Side { input, output, down }), input as usize))
    };
    let [rows, columns] = match of.layer {
        Layer::Border(border) if border.reflect => sides(&|side| {
            let before = if side.down { border.before.0 } else { border.before.1 };
            side.each(|place| {
                border.source(place, before, side.input).map(|at| (at as usize, 1.0)).into_iter().collect()
            })
        }),
        Layer::Resize(_) => {
            sides(&|side| side.each(|place| vec![(Resize::source(place, side.input, side.output) as usize, 1.0)]))
        }
        Layer::BlurPool(blur) => sides(&|side| {
            let (stride, padding) =
                if side.down { (blur.stride.0, blur.padding.0) } else { (blur.stride.1, blur.padding.1) };
            side.each(|place| {
                let first = place as usize * stride as usize;
                let taps = blur.taps().into_iter().enumerate();
                let inside = |at: usize| at.checked_sub(padding as usize).filter(|at| *at < side.input as usize);
                taps.filter_map(|(tap, weight)| inside(first + tap).map(|at| (at, weight))).collect()
            })
        }),
        _ => return None,
    };
    let back = [rows.transposed(), columns.transposed()];
    Some(Box::new(Resampled { input, output, forth: [rows, columns], back, threads }))
}

/// One side of an image before and after the layer.
struct Side {
    input: u32,
    output: u32,
    /// Whether it is the height.
    down: bool,
}

impl Side {
    fn each(&self, terms: impl Fn(u32) -> Vec<(usize, f32)>) -> Vec<Vec<(usize, f32)>> {
        (0..self.output).map(terms).collect()
    }
}

/// A matrix of few numbers, row by row: columns and their numbers.
struct Matrix {
    rows: Vec<Vec<(usize, f32)>>,
    columns: usize,
}

impl Matrix {
    fn new(rows: Vec<Vec<(usize, f32)>>, columns: usize) -> Matrix {
        Matrix { rows, columns }
    }

    fn transposed(&self) -> Matrix {
        let mut rows = vec![Vec::new(); self.columns];
        for (row, terms) in self.rows.iter().enumerate() {
            terms.iter().for_each(|(column, number)| rows[*column].push((row, *number)));
        }
        Matrix::new(rows, self.rows.len())
    }
}

/// The layer.
struct Resampled {
    input: ImageShape,
    output: ImageShape,
    /// Along rows, along columns.
    forth: [Matrix; 2],
    back: [Matrix; 2],
    threads: Threads,
}

impl Resampled {
    /// `to` = rows · `from` · columnsᵀ for each plane, or added to it.
    fn apply(&self, matrices: &[Matrix; 2], from: &[f32], to: &mut [f32], accumulate: bool, workspace: &mut Workspace) {
        let [rows, columns] = matrices;
        let (wide, plane) = (columns.columns, rows.rows.len() * columns.rows.len());
        let source = rows.columns * wide;
        let [lines] = workspace.parts([self.threads.count() * self.line()]);
        let lines = Disjoint::new(lines);
        self.threads.each_chunk(to, plane, |worker, range, to| {
            let from = &from[range.start / plane * source..][..source];
            // SAFETY: a worker's line is its own.
            let line = &mut unsafe { lines.part(worker * self.line()..(worker + 1) * self.line()) }[..wide];
            wide!({
                for (terms, target) in rows.rows.iter().zip(to.chunks_exact_mut(columns.rows.len())) {
                    line.fill(0.0);
                    for (row, number) in terms {
                        let row = &from[row * wide..][..wide];
                        line.iter_mut().zip(row).for_each(|(sum, x)| *sum += number * x);
                    }
                    let sum = |terms: &Vec<(usize, f32)>| terms.iter().map(|(at, number)| number * line[*at]).sum();
                    put(target, accumulate, columns.rows.iter().map(sum));
                }
            });
        });
    }

    /// Elements of the longest row.
    fn line(&self) -> usize {
        self.input.width.max(self.output.width) as usize
    }
}

impl Head for Resampled {
    fn forward(&mut self, of: Forward<'_>, workspace: &mut Workspace) {
        self.apply(&self.forth, of.inputs[0], of.output, false, workspace);
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some((d_input, accumulate)) = only(of.d_inputs) else { return };
        self.apply(&self.back, of.d_output, d_input, accumulate, workspace);
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.threads.count() * self.line()])
    }
}
