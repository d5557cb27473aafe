//! Layers whose output elements depend on one element of each input: add, ReLU, flatten (a copy), and concat.

use super::Gradients;
use super::simd::wide;
use super::tail::{mask, relu};
use super::threads::{Disjoint, Threads, tile_range};
use super::workspace::Workspace;

/// Elements one tile covers.
const TILE: usize = 16 * 1024;

/// `target = gradient`, or `target += gradient` when `accumulate`.
#[inline]
pub(crate) fn merge(target: &mut [f32], gradient: &[f32], accumulate: bool) {
    if accumulate {
        super::add_into(target, gradient);
    } else {
        target.copy_from_slice(gradient);
    }
}

/// The sum of one or more inputs, rectified or not; ReLU is the rectified and flatten the plain sum of one.
pub(crate) struct Sum {
    relu: bool,
    threads: Threads,
}

impl Sum {
    pub(crate) fn new(relu: bool, threads: &Threads) -> Sum {
        Sum { relu, threads: threads.clone() }
    }

    /// Elements of a backward pass' workspace.
    pub(crate) fn workspace(&self) -> [usize; 1] {
        [self.threads.count() * TILE]
    }

    pub(crate) fn forward(&self, inputs: &[&[f32]], output: &mut [f32]) {
        let (len, in_place) = (output.len(), inputs.iter().any(|input| input.is_empty()));
        if in_place && inputs.len() == 1 && !self.relu {
            return;
        }
        let output = Disjoint::new(output);
        self.threads.each(len.div_ceil(TILE), |_, tile| {
            let range = tile_range(tile, TILE, len);
            // SAFETY: each tile has its own range.
            let output = unsafe { output.part(range.clone()) };
            let mut others = inputs.iter().filter(|input| !input.is_empty());
            if let (false, Some(first)) = (in_place, others.clone().next()) {
                output.copy_from_slice(&first[range.clone()]);
                others.next();
            }
            others.for_each(|input| super::add_into(output, &input[range.clone()]));
            if self.relu {
                wide(
                    #[inline(always)]
                    || output.iter_mut().for_each(|y| *y = relu(*y)),
                );
            }
        });
    }

    pub(crate) fn backward(&self, of: Gradients<'_, '_>, workspace: &mut Workspace) {
        let (len, relu) = (of.d_output.len(), self.relu);
        let [scratch] = workspace.parts(self.workspace());
        let scratch = Disjoint::new(scratch);
        for (d_input, accumulate) in of.d_inputs.iter_mut().zip(of.accumulate_inputs) {
            let Some(d_input) = d_input.as_deref_mut().map(Disjoint::new) else { continue };
            self.threads.each(len.div_ceil(TILE), |worker, tile| {
                let range = tile_range(tile, TILE, len);
                let d_output = &of.d_output[range.clone()];
                // SAFETY: each tile has its own range, each worker its own scratch.
                let (d_input, scratch) =
                    unsafe { (d_input.part(range.clone()), scratch.part(worker * TILE..worker * TILE + range.len())) };
                if relu {
                    wide(
                        #[inline(always)]
                        || mask(d_output, &of.output[range], scratch),
                    );
                    merge(d_input, scratch, *accumulate);
                } else {
                    merge(d_input, d_output, *accumulate);
                }
            });
        }
    }
}

/// Inputs side by side along channels.
pub(crate) struct Concat {
    /// Elements per sample of each input.
    sizes: Vec<usize>,
    threads: Threads,
}

impl Concat {
    pub(crate) fn new(sizes: Vec<usize>, threads: &Threads) -> Concat {
        Concat { sizes, threads: threads.clone() }
    }

    pub(crate) fn forward(&self, inputs: &[&[f32]], output: &mut [f32]) {
        let out: usize = self.sizes.iter().sum();
        let samples = output.len() / out;
        let output = Disjoint::new(output);
        self.threads.each(samples, |_, sample| {
            // SAFETY: one sample per tile.
            let mut rest = unsafe { output.part(sample * out..(sample + 1) * out) };
            for (input, size) in inputs.iter().zip(&self.sizes) {
                let (part, behind) = rest.split_at_mut(*size);
                part.copy_from_slice(&input[sample * size..(sample + 1) * size]);
                rest = behind;
            }
        });
    }

    pub(crate) fn backward(&self, of: Gradients<'_, '_>) {
        let out: usize = self.sizes.iter().sum();
        let mut start = 0;
        for ((d_input, accumulate), size) in of.d_inputs.iter_mut().zip(of.accumulate_inputs).zip(&self.sizes) {
            if let Some(d_input) = d_input.as_deref_mut() {
                let d_input = Disjoint::new(d_input);
                self.threads.each(of.d_output.len() / out, |_, sample| {
                    let from = sample * out + start;
                    // SAFETY: one sample per tile.
                    let d_input = unsafe { d_input.part(sample * size..(sample + 1) * size) };
                    merge(d_input, &of.d_output[from..from + size], *accumulate);
                });
            }
            start += size;
        }
    }
}
