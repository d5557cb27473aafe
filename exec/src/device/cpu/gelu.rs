//! GELU by its tanh approximation, whose slope follows from its input.

use super::elementwise::merge;
use super::threads::{Disjoint, Threads, tile_range};
use super::{Forward, Gradients, Head};
use crate::simd::wide;
use crate::workspace::{Workspace, bytes};

/// Elements one tile covers.
const TILE: usize = 16 * 1024;

/// √(2/π), and the weight of the cube.
const SCALE: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

/// y = x/2 · (1 + tanh u) with u = √(2/π) · (x + 0.044715·x³).
pub(crate) struct Gelu {
    threads: Threads,
}

/// tanh u; the platform's, whose last bit may differ elsewhere.
#[inline(always)]
fn bend(x: f32) -> f32 {
    (SCALE * (x + CUBE * x * x * x)).tanh()
}

/// dy/dx = (1 + tanh u)/2 + x/2 · (1 − tanh² u) · du/dx.
#[inline(always)]
fn slope(x: f32) -> f32 {
    let bent = bend(x);
    0.5 * (1.0 + bent) + 0.5 * x * (1.0 - bent * bent) * (SCALE * (1.0 + 3.0 * CUBE * x * x))
}

impl Gelu {
    pub(crate) fn new(threads: &Threads) -> Gelu {
        Gelu { threads: threads.clone() }
    }
}

impl Head for Gelu {
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let (input, len) = (of.inputs[0], of.output.len());
        let output = Disjoint::new(of.output);
        self.threads.each(len.div_ceil(TILE), |_, tile| {
            let range = tile_range(tile, TILE, len);
            // SAFETY: each tile has its own range.
            let output = unsafe { output.part(range.clone()) };
            output.iter_mut().zip(&input[range]).for_each(|(y, x)| *y = 0.5 * *x * (1.0 + bend(*x)));
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let Some(d_input) = of.d_inputs.first_mut().and_then(|d_input| d_input.as_deref_mut()) else { return };
        let accumulate = of.accumulate_inputs.first().is_some_and(|accumulate| *accumulate);
        let (len, input) = (of.d_output.len(), of.inputs[0]);
        let [scratch] = workspace.parts([self.threads.count() * TILE]);
        let (scratch, d_input) = (Disjoint::new(scratch), Disjoint::new(d_input));
        self.threads.each(len.div_ceil(TILE), |worker, tile| {
            let range = tile_range(tile, TILE, len);
            // SAFETY: each tile has its own range, each worker its own scratch.
            let (d_input, scratch) =
                unsafe { (d_input.part(range.clone()), scratch.part(worker * TILE..worker * TILE + range.len())) };
            wide(
                #[inline(always)]
                || {
                    for ((d_x, d_y), x) in
                        scratch.iter_mut().zip(&of.d_output[range.clone()]).zip(&input[range.clone()])
                    {
                        *d_x = *d_y * slope(*x);
                    }
                },
            );
            merge(d_input, scratch, accumulate);
        });
    }

    fn workspace_bytes(&self, _: usize) -> usize {
        bytes(&[self.threads.count() * TILE])
    }
}
