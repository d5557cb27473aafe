//! Implements a rank's CPU device: kernels on buffers and tensors in host memory. Every call is synchronous.

use std::ops::Range;

use lockstep_data::Untransformed;
use lockstep_models::{BoundFormula, Buffer, Copy, GradientShare};
use lockstep_topology::Dtype;

use super::chain::{Chain, Work};
use super::elementwise::merge;
use super::tensors::{Tensors, Views, Wanted, keep_gradient};
use super::update::update;
use super::{Threads, Workspace, layouts, only};
use crate::arena::Arena;
use crate::device::buffers::move_numbers;
use crate::device::decays::Decays;
use crate::device::input_memory::InputMemory;
use crate::device::{
    Backward, Blueprint, Buffers, Clock, Compute, DeviceError, Forward, Groups, Loss, Spot, Staging, Storage,
    TensorAddress, Values, declared_arenas,
};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// The place of a gradient that is not needed.
const NOTHING: TensorAddress = TensorAddress::Nothing;

/// Elements of a gradient that one thread adds at once.
const TILE: usize = 1 << 14;

/// The state of a micro-batch in flight.
struct Context {
    /// Kernels, with what they keep between passes.
    chains: Vec<Chain>,
    tensors: Tensors,
    labels: Vec<u32>,
    /// Places of the samples among all since training began.
    places: Vec<u64>,
}

impl Context {
    fn new(of: &Blueprint<'_>, threads: &Threads) -> Context {
        let mut chains: Vec<Chain> = (0..of.chains.len()).map(|index| Chain::new(of, index, threads)).collect();
        layouts::lay(of.program, of.role, of.chains.iter().map(|chain| chain.samples), &mut chains);
        let input = InputMemory::new(of.input_elements(), of.program.model.sample().dtype);
        let tensors = Tensors::new((of.plan.bytes, of.plan.dtype), input, of.arenas, threads);
        Context { chains, tensors, labels: Vec::new(), places: Vec::new() }
    }

    /// The state without a micro-batch.
    fn empty(of: &Blueprint<'_>, threads: &Threads) -> Context {
        let tensors = Tensors::new((0, of.plan.dtype), InputMemory::default(), of.arenas, threads);
        Context { chains: Vec::new(), tensors, labels: Vec::new(), places: Vec::new() }
    }
}

/// One rank's memory and kernels.
pub struct Cpu {
    buffers: Buffers,
    /// The current micro-batch, and its index among those in flight.
    at_hand: Context,
    context: usize,
    /// The others in flight; the current one's entry is empty.
    others: Vec<Context>,
    decays: Decays,
    threads: Threads,
}

impl Cpu {
    /// The device of a rank, whose kernels run on `threads`.
    pub fn new(of: Blueprint<'_>, threads: &Threads) -> Cpu {
        let declared = declared_arenas(of.declared_numbers());
        let others = (1..of.contexts()).map(|_| Context::new(&of, threads));
        Cpu {
            others: std::iter::once(Context::empty(&of, threads)).chain(others).collect(),
            at_hand: Context::new(&of, threads),
            context: 0,
            decays: Decays::of(&of.program.model),
            threads: threads.clone(),
            buffers: Buffers::of_worker(of.program, (of.parameters, of.statistics), declared, of.places),
        }
    }
}

impl Compute for Cpu {
    fn input(&mut self) -> Result<&mut [u8], DeviceError> {
        Ok(self.at_hand.tensors.input.bytes_mut())
    }

    fn load(&mut self) -> Result<(), DeviceError> {
        self.at_hand.tensors.begin();
        Ok(())
    }

    fn transform(&mut self, samples: &Untransformed<'_>) -> Result<(), DeviceError> {
        let elements = samples.shape.elements() as usize;
        let input = &mut self.at_hand.tensors.input.values_mut()[..samples.samples.len() * elements];
        self.threads.each_chunk(input, elements, |_, range, image| samples.make(range.start / elements, image));
        self.load()
    }

    fn turn_to(&mut self, labels: &[u32], places: &[u64]) -> Result<(), DeviceError> {
        self.at_hand.labels.clear();
        self.at_hand.labels.extend_from_slice(labels);
        self.at_hand.places.clear();
        self.at_hand.places.extend_from_slice(places);
        Ok(())
    }

    fn forward(&mut self, pass: &Forward<'_>) -> Result<Option<Loss>, DeviceError> {
        let of = &mut self.at_hand.chains[pass.chain];
        let mut workspace = std::mem::take(self.at_hand.tensors.workspace());
        let reads: Vec<&TensorAddress> = pass.inputs.iter().collect();
        let in_place = reads.contains(&&TensorAddress::InPlace);
        let wanted = Wanted { reads: &reads, writes: &[(&pass.output, in_place)], scratch: of.scratch(false) };
        let Views { reads: inputs, mut writes, scratch: [scratch, _], integers } = self.at_hand.tensors.views(&wanted);
        let (parameters, statistics) = self.buffers.of_chain(of.parameters.clone(), of.statistics.clone());
        let parameters = of.weights(parameters, scratch, &self.threads);
        let found = match &mut of.work {
            Work::Elsewhere => None,
            Work::Loss(loss, _) => Some(loss.forward(inputs[0], &self.at_hand.labels)),
            Work::LinearLoss(loss, _) => {
                loss.take_labels(&self.at_hand.labels);
                None
            }
            Work::Kernel(kernel) => {
                let places = self.at_hand.places.get(pass.draw.skipped as usize..).unwrap_or(&[]);
                kernel.draw(pass.draw, places);
                if of.reads_labels {
                    kernel.take_labels(&self.at_hand.labels);
                }
                if let Some((integers, dtype)) = integers.filter(|_| pass.inputs.contains(&TensorAddress::Input)) {
                    kernel.take_integers(integers, dtype);
                }
                kernel.swap_workspace(&mut workspace);
                kernel.forward(pass.mode, &inputs, parameters, statistics, writes[0]);
                kernel.swap_workspace(&mut workspace);
                None
            }
        };
        self.at_hand.tensors.keep(&wanted);
        *self.at_hand.tensors.workspace() = workspace;
        Ok(found)
    }

    fn backward(&mut self, pass: &Backward<'_>) -> Result<Option<Loss>, DeviceError> {
        let of = &mut self.at_hand.chains[pass.chain];
        let mut workspace = std::mem::take(self.at_hand.tensors.workspace());
        let reads: Vec<&TensorAddress> = pass.inputs.iter().chain([&pass.output, &pass.d_output]).collect();
        let wanted = pass.d_inputs.iter().map(|d| d.as_ref().map_or((&NOTHING, false), |(place, adds)| (place, *adds)));
        let writes: Vec<(&TensorAddress, bool)> = wanted.collect();
        let wanted = Wanted { reads: &reads, writes: &writes, scratch: of.scratch(pass.d_parameters.is_some()) };
        let Views { reads, writes: mut d_inputs, scratch: [scratch, made], .. } = self.at_hand.tensors.views(&wanted);
        let (inputs, y, d_output) =
            (&reads[..pass.inputs.len()], reads[pass.inputs.len()], reads[pass.inputs.len() + 1]);
        let w = self.buffers.of_layers();
        // SAFETY: no message is in flight on parameters that a layer reads.
        let w = of.weights(unsafe { w.slice(of.parameters.clone()) }, scratch, &self.threads);
        let found = match &mut of.work {
            Work::Elsewhere => None,
            Work::Loss(loss, weight) => {
                let adds = pass.d_inputs[0].as_ref().is_some_and(|(_, adds)| *adds);
                loss.backward(pass.scale * *weight, d_inputs[0], adds);
                None
            }
            Work::Kernel(_) | Work::LinearLoss(..) => {
                let wanted = d_inputs.into_iter().zip(pass.d_inputs);
                let with_flag =
                    |(slice, wanted): (_, &Option<(_, bool)>)| wanted.as_ref().map(|(_, adds)| (slice, *adds));
                let d_inputs = &mut wanted.map(with_flag).collect::<Vec<Option<(&mut [f32], bool)>>>();
                let tensors = Operands { inputs, y, w, d_output, d_inputs, made };
                of_parameters(of, (&self.buffers, &self.threads), pass, tensors, &mut workspace)
            }
        };
        self.at_hand.tensors.keep(&wanted);
        *self.at_hand.tensors.workspace() = workspace;
        Ok(found)
    }

    fn evaluate(&mut self, chain: usize, logits: &TensorAddress, samples: usize) -> Result<Loss, DeviceError> {
        let mut workspace = std::mem::take(self.at_hand.tensors.workspace());
        let of = &mut self.at_hand.chains[chain];
        let wanted = Wanted { reads: &[logits], writes: &[], scratch: of.scratch(false) };
        let Views { reads, scratch: [scratch, _], .. } = self.at_hand.tensors.views(&wanted);
        let input = reads[0];
        let all = self.at_hand.places.len().max(1);
        let (each, labels) = (input.len() / all, self.at_hand.labels.len() / all);
        let (input, labels) = (&input[..samples * each], &self.at_hand.labels[..samples * labels]);
        let (parameters, _) = self.buffers.of_chain(of.parameters.clone(), 0..0);
        let parameters = of.weights(parameters, scratch, &self.threads);
        let found = match &mut of.work {
            Work::Loss(loss, _) => loss.forward(input, labels),
            Work::LinearLoss(loss, _) => loss.loss(input, parameters, labels, &mut workspace),
            Work::Kernel(_) | Work::Elsewhere => Loss::default(),
        };
        *self.at_hand.tensors.workspace() = workspace;
        Ok(found)
    }

    fn losses(&mut self, chain: usize) -> Result<Vec<f64>, DeviceError> {
        Ok(match &self.at_hand.chains[chain].work {
            Work::Loss(loss, _) => loss.losses(),
            Work::LinearLoss(loss, _) => loss.losses(),
            Work::Kernel(_) | Work::Elsewhere => Vec::new(),
        })
    }

    fn apply(&mut self, range: Range<usize>, formula: &BoundFormula) -> Result<(), DeviceError> {
        match formula.decays() {
            true => {
                let parts = self.decays.parts(range, formula.decay_batch_norm);
                update(&self.buffers, parts, formula, &self.threads);
            }
            false => update(&self.buffers, std::iter::once((range, false)), formula, &self.threads),
        }
        Ok(())
    }

    fn copy(&mut self, of: &Copy, from: &Spot, to: &Spot) -> Result<(), DeviceError> {
        let (read, written) = of.extents();
        // By the program's order no message is in flight on what a copy writes, and nothing writes what it reads.
        match (from, to) {
            (Spot::Buffer(from), Spot::Buffer(to)) => self.buffers.copy(of, *from, *to),
            (Spot::Buffer(from), Spot::Tensor(to)) => {
                let arena = self.buffers.arena(*from);
                // SAFETY: as above. Integers are samples on their way to the input.
                let from = unsafe { arena.bytes(0..read as usize) };
                move_numbers(of, (from, arena.dtype()), self.at_hand.tensors.numbers_mut(to));
            }
            (Spot::Tensor(from), Spot::Buffer(to)) => {
                let arena = self.buffers.arena(*to);
                // SAFETY: as above.
                let to = unsafe { arena.bytes_mut(0..written as usize) };
                move_numbers(of, self.at_hand.tensors.numbers(from), (to, arena.dtype()));
            }
            (Spot::Tensor(from), Spot::Tensor(to)) => {
                let (from, to) = self.at_hand.tensors.pair(from, to);
                move_numbers(of, from, to);
            }
        }
        Ok(())
    }
}

/// What a backward pass reads and writes: inputs, output, parameters, the gradient of the output, those of the inputs with whether
/// they are added to, and scratch for a gradient of parameters that is kept in bf16.
struct Operands<'a, 'b> {
    inputs: &'a [&'a [f32]],
    y: &'a [f32],
    w: &'a [f32],
    d_output: &'a [f32],
    d_inputs: &'a mut [Option<(&'b mut [f32], bool)>],
    made: &'a mut [f32],
}

/// The backward pass of a chain that may have parameters; returns the loss of an output layer. A gradient that two chains make is
/// made in a buffer of its own where it is then added to that of earlier micro-batches, or rounded.
fn of_parameters(
    of: &mut Chain,
    (buffers, threads): (&Buffers, &Threads),
    pass: &Backward<'_>,
    tensors: Operands<'_, '_>,
    workspace: &mut Workspace,
) -> Option<Loss> {
    let Operands { inputs, y, w, d_output, d_inputs, made } = tensors;
    let (g, gradients) = (buffers.arena(Buffer::Gradients), of.gradients.clone());
    let narrow = g.dtype() != Dtype::F32;
    let (last, sum) = match of.gradient_share {
        GradientShare::Alone => (false, None),
        GradientShare::First(sum) => (false, sum),
        GradientShare::Last(sum) => (true, sum),
    };
    // SAFETY: tasks of the compute stream alone use the buffer.
    let sum = || sum.map(|sum| unsafe { buffers.arena(sum).slice_mut(0..gradients.len()) });
    let d_parameters: Option<(&mut [f32], bool)> = match (pass.d_parameters, sum()) {
        (None, _) => None,
        (Some(_), Some(sum)) => Some((sum, last)),
        (Some(_), None) if narrow => Some((&mut *made, false)),
        // SAFETY: exchanges of these gradients start after this task, by the program's order, and exchanges of
        // earlier contents of this memory ended before their update, which comes before this task.
        (Some(adds), None) => Some((unsafe { g.slice_mut(gradients.clone()) }, adds || last)),
    };
    let found = match &mut of.work {
        Work::Kernel(kernel) => {
            kernel.swap_workspace(workspace);
            kernel.backward(inputs, y, w, d_output, d_inputs, d_parameters);
            kernel.swap_workspace(workspace);
            None
        }
        Work::LinearLoss(loss, weight) => {
            Some(loss.backward(pass.scale * *weight, (inputs[0], w), only(d_inputs), d_parameters, workspace))
        }
        Work::Loss(..) | Work::Elsewhere => None,
    };
    let Some(adds) = pass.d_parameters else { return found };
    let (whole, adds): (&[f32], bool) = match sum() {
        Some(sum) if last => (sum, adds),
        None if narrow => (made, adds || last),
        Some(_) | None => return found,
    };
    match narrow {
        // SAFETY: as above.
        true => keep_gradient(whole, unsafe { g.slice_mut(gradients.clone()) }, adds, threads),
        false => {
            // SAFETY: as above.
            let kept = unsafe { g.slice_mut(gradients.clone()) };
            threads.each_chunk(kept, TILE, |_, range, part| merge(part, &whole[range], adds));
        }
    }
    found
}

impl Storage for Cpu {
    fn read(&mut self, values: Values) -> Result<Vec<f32>, DeviceError> {
        Ok(self.buffers.read(values))
    }

    fn read_part(&mut self, buffer: Buffer, range: Range<usize>) -> Result<Vec<f32>, DeviceError> {
        // SAFETY: values are read between tasks, when nothing is in flight.
        Ok(unsafe { self.buffers.arena(buffer).widened(range) }.into_owned())
    }

    fn free(&mut self, buffer: Buffer) {
        self.buffers.free(buffer);
    }

    fn lent(&self, values: Values) -> Option<&[f32]> {
        let Values::Buffer(buffer) = values else { return None };
        let arena = self.buffers.arena(buffer);
        // SAFETY: values are lent between tasks, when nothing is in flight, and tasks need the device exclusively.
        (arena.dtype() == Dtype::F32).then(|| unsafe { arena.slice(0..arena.len()) })
    }

    fn write(&mut self, values: Values, content: &[f32]) -> Result<(), DeviceError> {
        self.buffers.write(values, content);
        Ok(())
    }

    fn write_bytes(&mut self, buffer: Buffer, content: &[u8]) -> Result<(), DeviceError> {
        self.buffers.write_bytes(buffer, content);
        Ok(())
    }

    fn assign(&mut self, to: Buffer, from: Buffer) -> Result<(), DeviceError> {
        self.buffers.assign(to, from);
        Ok(())
    }

    fn tensor(&mut self, place: &TensorAddress) -> Result<Vec<f32>, DeviceError> {
        Ok(self.at_hand.tensors.tensor(place).into_owned())
    }

    fn forget(&mut self, ranges: &[Range<usize>]) -> Result<(), DeviceError> {
        self.at_hand.tensors.forget(ranges);
        Ok(())
    }

    fn turn_to_context(&mut self, context: usize) -> Result<(), DeviceError> {
        std::mem::swap(&mut self.at_hand, &mut self.others[self.context]);
        std::mem::swap(&mut self.at_hand, &mut self.others[context]);
        self.context = context;
        Ok(())
    }

    fn release(&mut self) {
        self.at_hand.tensors.end();
    }

    fn warm(&mut self, places: &[TensorAddress]) {
        let lines = |place: &TensorAddress| self.at_hand.tensors.numbers(place).0.iter().step_by(LINE_BYTES);
        std::hint::black_box(places.iter().flat_map(lines).map(|byte| u64::from(*byte)).sum::<u64>());
    }

    fn scratch_bytes(&mut self) -> (usize, usize) {
        let slab = self.at_hand.tensors.begin();
        let (arena, workspace) = (slab.bytes().len(), slab.workspace.bytes() + slab.wide.bytes());
        self.at_hand.tensors.end();
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
