//! The CPU as a rank's device: its kernels on buffers and tensors in host memory. What it is told is done when it answers.

use std::ops::Range;

use lockstep_models::{Averaging, Buffer, Copy, SgdStep};

use super::chain::{Chain, Work};
use super::tensors::Tensors;
use super::threads::tile_range;
use super::{Threads, average, correct, descend, layouts, move_reference, sgd_step};
use crate::arena::Arena;
use crate::device::buffers::move_rows;
use crate::device::step::Decays;
use crate::device::{
    Backward, Blueprint, Buffers, Clock, Compute, DeviceError, Forward, Groups, Loss, Place, Slope, Spot, Staging,
    Step, Storage, Updated, Values,
};

/// Elements of a step that one thread moves at once; half of a core's second cache holds their four tensors.
const TILE: usize = 1 << 14;

/// One rank's memory and kernels.
pub struct Cpu {
    chains: Vec<Chain>,
    buffers: Buffers,
    tensors: Tensors,
    labels: Vec<u32>,
    /// Places of the samples among all since training began.
    places: Vec<u64>,
    decays: Decays,
    /// The parameters that the rank updates.
    updated: Updated,
    threads: Threads,
}

impl Cpu {
    /// The device of a rank, whose kernels run on `threads`.
    pub fn new(of: Blueprint<'_>, threads: &Threads) -> Cpu {
        let mut chains: Vec<Chain> = (0..of.chains.len()).map(|index| Chain::new(&of, index, threads)).collect();
        layouts::lay(of.program, of.role, &mut chains);
        Cpu {
            chains,
            tensors: Tensors::new(of.plan.elements, of.input_elements(), of.arenas),
            labels: Vec::new(),
            places: Vec::new(),
            decays: Decays::of(&of.program.model),
            threads: threads.clone(),
            buffers: Buffers::of_worker(of.parameters, of.statistics, &of.declared, &of.updated),
            updated: of.updated,
        }
    }
}

impl Compute for Cpu {
    fn input(&mut self) -> Result<&mut [f32], DeviceError> {
        Ok(&mut self.tensors.input)
    }

    fn load(&mut self) -> Result<(), DeviceError> {
        self.tensors.begin();
        Ok(())
    }

    fn turn_to(&mut self, labels: &[u32], places: &[u64]) -> Result<(), DeviceError> {
        self.labels.clear();
        self.labels.extend_from_slice(labels);
        self.places.clear();
        self.places.extend_from_slice(places);
        Ok(())
    }

    fn forward(&mut self, pass: &Forward<'_>) -> Result<Option<Loss>, DeviceError> {
        let of = &mut self.chains[pass.chain];
        let mut workspace = std::mem::take(self.tensors.workspace());
        let reads: Vec<&Place> = pass.inputs.iter().collect();
        let (inputs, mut outputs) = self.tensors.views(&reads, &[&pass.output]);
        let found = match &mut of.work {
            Work::Loss(loss, _) => Some(loss.forward(inputs[0], &self.labels)),
            Work::Kernel(kernel) => {
                kernel.draw(pass.draw, &self.places);
                let (parameters, statistics) = self.buffers.of_chain(of.parameters.clone(), of.statistics.clone());
                kernel.swap_workspace(&mut workspace);
                kernel.forward(pass.mode, &inputs, parameters, statistics, outputs[0]);
                kernel.swap_workspace(&mut workspace);
                None
            }
        };
        *self.tensors.workspace() = workspace;
        Ok(found)
    }

    fn backward(&mut self, pass: &Backward<'_>) -> Result<(), DeviceError> {
        let of = &mut self.chains[pass.chain];
        let mut workspace = std::mem::take(self.tensors.workspace());
        let reads: Vec<&Place> = pass.inputs.iter().chain([&pass.output, &pass.d_output]).collect();
        let wanted = pass.d_inputs.iter().map(|d| d.as_ref().map_or(&Place::Nothing, |(place, _)| place));
        let writes: Vec<&Place> = wanted.collect();
        let (tensors, mut d_inputs) = self.tensors.views(&reads, &writes);
        let (inputs, y, d_output) =
            (&tensors[..pass.inputs.len()], tensors[pass.inputs.len()], tensors[pass.inputs.len() + 1]);
        match &mut of.work {
            Work::Loss(loss, weight) => {
                let adds = pass.d_inputs[0].as_ref().is_some_and(|(_, adds)| *adds);
                loss.backward(pass.scale * *weight, d_inputs[0], adds);
            }
            Work::Kernel(kernel) => {
                let wanted = d_inputs.into_iter().zip(pass.d_inputs);
                let with_flag =
                    |(slice, wanted): (_, &Option<(_, bool)>)| wanted.as_ref().map(|(_, adds)| (slice, *adds));
                let mut d_inputs: Vec<Option<(&mut [f32], bool)>> = wanted.map(with_flag).collect();
                let (w, g) = (self.buffers.arena(Buffer::Parameters), self.buffers.arena(Buffer::Gradients));
                // SAFETY: no message is in flight on parameters; exchanges of this gradient range start after this task,
                // by the program's order, and those of the previous step ended before its update.
                let (w, g) = unsafe { (w.slice(of.parameters.clone()), g.slice_mut(of.parameters.clone())) };
                kernel.swap_workspace(&mut workspace);
                kernel.backward(inputs, y, w, d_output, &mut d_inputs, pass.d_parameters.map(|adds| (g, adds)));
                kernel.swap_workspace(&mut workspace);
            }
        }
        *self.tensors.workspace() = workspace;
        Ok(())
    }

    fn judge(&mut self, chain: usize, logits: &Place, samples: usize) -> Result<Loss, DeviceError> {
        let Work::Loss(loss, _) = &mut self.chains[chain].work else { return Ok(Loss::default()) };
        let logits = self.tensors.tensor(logits);
        let each = logits.len() / self.labels.len();
        Ok(loss.forward(&logits[..samples * each], &self.labels[..samples]))
    }

    fn losses(&mut self, chain: usize) -> Result<Vec<f64>, DeviceError> {
        Ok(match &self.chains[chain].work {
            Work::Loss(loss, _) => loss.losses().to_vec(),
            Work::Kernel(_) => Vec::new(),
        })
    }

    fn step(&mut self, range: Range<usize>, step: &Step) -> Result<(), DeviceError> {
        let parts = match step {
            Step::Sgd(of) | Step::Descend(of) | Step::Correct { step: of, .. } => {
                self.decays.parts(range, of).collect()
            }
            Step::MoveReference { .. } | Step::Average { .. } => vec![(range, 0.0)],
        };
        let mut tiles = Vec::new();
        for (part, weight_decay) in parts {
            let within = (0..part.len().div_ceil(TILE)).map(|tile| tile_range(tile, TILE, part.len()));
            tiles.extend(within.map(|tile| (part.start + tile.start..part.start + tile.end, weight_decay)));
        }
        let (buffers, velocity, updated) = (&self.buffers, &self.buffers.velocity, &self.updated);
        self.threads.each(tiles.len(), |_, tile| {
            let (part, weight_decay) = (&tiles[tile].0, tiles[tile].1);
            // SAFETY: no two tiles overlap, and a rule's buffers are several. The exchange of the gradients has ended, by the
            // program's order. Exchanges touch none of a learner's weights and gradients, and the exchange of this range's
            // differences has ended before the average model or a reference model is moved, and begins after the correction
            // that waits for that.
            let read = |buffer| unsafe { buffers.arena(buffer).slice(part.clone()) };
            // SAFETY: as above.
            let write = |buffer| unsafe { buffers.arena(buffer).slice_mut(part.clone()) };
            let (weights, gradients, differences) = (Buffer::Parameters, Buffer::Gradients, Averaging::DIFFERENCES);
            match *step {
                Step::Sgd(step) => {
                    // SAFETY: as above.
                    let velocity = unsafe { velocity.slice_mut(updated.place(part)) };
                    sgd_step(&SgdStep { weight_decay, ..step }, write(weights), velocity, read(gradients));
                }
                Step::Descend(SgdStep { rate, .. }) => {
                    descend(Slope { rate, weight_decay }, write(weights), read(gradients));
                }
                Step::Correct { step: SgdStep { rate, .. }, alpha, consensus, learned } => {
                    let (slope, gradient) = (Slope { rate, weight_decay }, learned.then(|| read(gradients)));
                    correct(slope, alpha, write(weights), gradient, read(consensus), write(differences));
                }
                Step::MoveReference { alpha } => {
                    let (reference, average) = (write(Averaging::REFERENCE), read(Averaging::AVERAGE));
                    move_reference(alpha, reference, average, write(differences));
                }
                Step::Average { momentum } => {
                    let (model, previous) = (write(Averaging::AVERAGE), write(Averaging::PREVIOUS));
                    average(momentum, model, read(differences), previous);
                }
            }
        });
        Ok(())
    }

    fn copy(&mut self, of: &Copy, from: &Spot, to: &Spot) -> Result<(), DeviceError> {
        let (read, written) = of.extents();
        match (from, to) {
            (Spot::Buffer(from), Spot::Buffer(to)) => self.buffers.copy(of, *from, *to),
            (Spot::Buffer(from), Spot::Tensor(to)) => {
                // SAFETY: no message is in flight on what a copy writes, and nobody writes what it reads, by the program's order.
                let from = unsafe { self.buffers.arena(*from).slice(0..read as usize) };
                move_rows(of, from, self.tensors.tensor_mut(to));
            }
            (Spot::Tensor(from), Spot::Buffer(to)) => {
                // SAFETY: as above.
                let to = unsafe { self.buffers.arena(*to).slice_mut(0..written as usize) };
                move_rows(of, self.tensors.tensor(from), to);
            }
            (Spot::Tensor(from), Spot::Tensor(to)) => {
                let (from, mut to) = self.tensors.views(&[from], &[to]);
                move_rows(of, from[0], to[0]);
            }
        }
        Ok(())
    }
}

impl Storage for Cpu {
    fn read(&mut self, values: Values) -> Result<Vec<f32>, DeviceError> {
        Ok(self.buffers.read(values))
    }

    fn write(&mut self, values: Values, content: &[f32]) -> Result<(), DeviceError> {
        self.buffers.write(values, content);
        Ok(())
    }

    fn assign(&mut self, to: Buffer, from: Buffer) -> Result<(), DeviceError> {
        self.buffers.assign(to, from);
        Ok(())
    }

    fn tensor(&mut self, place: &Place) -> Result<Vec<f32>, DeviceError> {
        Ok(self.tensors.tensor(place).to_vec())
    }

    fn forget(&mut self, ranges: &[Range<usize>]) -> Result<(), DeviceError> {
        self.tensors.forget(ranges);
        Ok(())
    }

    fn release(&mut self) {
        self.tensors.end();
    }

    fn warm(&mut self, places: &[Place]) {
        let sum = |place: &Place| self.tensors.tensor(place).iter().step_by(16).sum::<f32>();
        std::hint::black_box(places.iter().map(sum).sum::<f32>());
    }

    fn scratch_bytes(&mut self) -> (usize, usize) {
        let workspace = self.tensors.workspace().bytes();
        let arena = size_of_val(self.tensors.begin().as_slice());
        self.tensors.end();
        (arena, workspace)
    }
}

impl Staging for Cpu {
    fn host(&mut self, buffer: Buffer) -> Result<&Arena, DeviceError> {
        Ok(self.buffers.arena(buffer))
    }
}

impl Groups for Cpu {}

impl Clock for Cpu {}
