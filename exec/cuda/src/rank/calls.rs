//! Lists the library calls of a rank's passes before its memory is allocated.
//!
//! What a library needs for a call depends on sizes and on the alignment of addresses. Every block of device memory
//! begins at a multiple of 256, and the places of tensors within their block are known; so the libraries treat calls on
//! made-up blocks like the later ones.

use std::ops::Range;

use lockstep_exec::device::{Blueprint, Mode};
use lockstep_models::{LayerId, Op, Phase};

use super::{Chain, Work};
use crate::layers::{ChainKernel, ForwardPass, PassGradients};
use crate::{Activation, Command, View, ViewMut};

/// Made-up addresses of blocks, further apart than any block is long.
const INPUT: u64 = 1 << 48;
const ARENA: u64 = 2 << 48;
const PARAMETERS: u64 = 3 << 48;
const GRADIENTS: u64 = 4 << 48;
const STATISTICS: u64 = 5 << 48;
const SCRATCH: u64 = 6 << 48;

/// A fraction of the samples that a rank loads: `samples` of `loaded`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) samples: u64,
    pub(super) loaded: u64,
}

impl Share {
    /// All samples.
    pub(super) fn all(of: &Blueprint<'_>) -> Share {
        let loaded = of.loaded() as u64;
        Share { samples: loaded, loaded }
    }

    /// The fraction of `number` for these samples, rounded up.
    pub(super) fn of(self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.samples)).div_ceil(u128::from(self.loaded.max(1))) as u64
    }
}

/// The library calls of all passes of the rank's role, and of all forward passes.
pub(super) fn calls<A: Activation>(of: &Blueprint<'_>, chains: &[Chain<A>], share: Share) -> Vec<Command> {
    let mut written = Vec::new();
    for (index, chain) in chains.iter().enumerate() {
        let Work::Kernel(kernel) = &chain.work else { continue };
        let phases = of.role.tasks.iter().filter_map(|task| match task.op {
            Op::Compute { chain, phase, .. } if chain == index => Some(phase),
            _ => None,
        });
        let passes = Passes::new(of, index, chain, share);
        for phase in phases {
            match phase {
                phase if phase.makes_outputs() => passes.forward(kernel, &mut written),
                _ => passes.backward(kernel, phase, &mut written),
            }
        }
    }
    written.retain(|command| matches!(command, Command::Convolve(_) | Command::Multiply(_)));
    written
}

/// The tensors of a chain.
struct Passes<'a, A> {
    of: &'a Blueprint<'a>,
    chain: &'a Chain<A>,
    inputs: &'a [LayerId],
    output: LayerId,
    samples: u64,
}

impl<'a, A: Activation> Passes<'a, A> {
    fn new(of: &'a Blueprint<'a>, index: usize, chain: &'a Chain<A>, share: Share) -> Passes<'a, A> {
        let plan = &of.chains[index];
        let inputs = &of.program.model.node(plan.layers[0]).inputs;
        let samples = share.of(plan.samples as u64);
        Passes { of, chain, inputs, output: plan.layers[plan.layers.len() - 1], samples }
    }

    fn at(&self, id: LayerId, place: Option<&Range<usize>>) -> ViewMut<A> {
        let elements = self.samples * self.of.program.model.node(id).output.elements();
        let address = match place {
            _ if id == LayerId(0) => INPUT,
            Some(range) => ARENA + range.start as u64,
            None => ARENA,
        };
        ViewMut::new(address, elements)
    }

    /// A layer's output.
    fn tensor(&self, id: LayerId) -> ViewMut<A> {
        self.at(id, self.of.plan.outputs[id.index()].as_ref())
    }

    /// The gradient of the output, if it is needed.
    fn gradient(&self, id: LayerId) -> Option<ViewMut<A>> {
        self.of.plan.gradients[id.index()].as_ref().map(|range| self.at(id, Some(range)))
    }

    fn inputs(&self) -> Vec<View<A>> {
        self.inputs.iter().map(|id| self.tensor(*id).view()).collect()
    }

    fn forward(&self, kernel: &ChainKernel<A>, into: &mut Vec<Command>) {
        // To libraries training and evaluation are the same; in evaluation dropout draws nothing.
        let forward = ForwardPass {
            mode: Mode::Evaluate,
            inputs: &self.inputs(),
            parameters: own(PARAMETERS, &self.chain.parameters).view(),
            statistics: own(STATISTICS, &self.chain.statistics),
            output: self.tensor(self.output),
        };
        kernel.forward(&forward, SCRATCH, into);
    }

    /// Once as in the first micro-batch of a step, once as in those that accumulate.
    fn backward(&self, kernel: &ChainKernel<A>, phase: Phase, into: &mut Vec<Command>) {
        let output = self.tensor(self.output);
        let (parameters, inputs) = (&self.chain.parameters, self.inputs());
        for adds in [false, true] {
            let gradient = |id: &LayerId| self.gradient(*id).filter(|_| phase != Phase::BackwardWeight);
            let d_inputs: Vec<_> = self.inputs.iter().map(|id| gradient(id).map(|view| (view, adds))).collect();
            let gradient_of_own = || (own(GRADIENTS, &self.chain.gradients), adds);
            let gradients = PassGradients {
                inputs: &inputs,
                output: output.view(),
                parameters: own(PARAMETERS, parameters).view(),
                d_output: self.gradient(self.output).unwrap_or(output).view(),
                d_inputs: &d_inputs,
                d_parameters: (phase != Phase::BackwardData && !parameters.is_empty()).then(gradient_of_own),
            };
            kernel.backward(&gradients, SCRATCH, into);
        }
    }
}

/// A chain's part of a buffer.
fn own(base: u64, range: &Range<usize>) -> ViewMut<f32> {
    ViewMut::new(base, range.end as u64).part(range.start as u64..range.end as u64)
}
