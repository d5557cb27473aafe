//! A replica: one copy of the model with its gradients, optimizer state, activations and kernels, run chain by chain.
//!
//! It knows nothing of ranks or time: the worker drives it task by task, evaluation and the one-rank reference drive it too.

mod activations;
mod evaluation;
mod layouts;

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::memory::Reads;
use lockstep_models::{Area, Buffer, LayerId, Model, Op, Phase, Program, Role, SgdStep};

use crate::arena::Arena;
use crate::data::Dataset;
use crate::device::cpu::{ChainLayer, CrossEntropy, Draw, Kernel, Loss, Mode, Threads, sgd_step};
use crate::init;
use crate::pool::Arenas;
use activations::{Activations, Slot};
pub use evaluation::Evaluation;

/// What a chain computes.
enum Work {
    Kernel(Kernel),
    /// A loss, and what it counts in the sum of losses.
    Loss(CrossEntropy, f32),
}

/// One kernel or loss and where its tensors are.
struct Chain {
    work: Work,
    layers: Vec<LayerId>,
    /// What its dropout layer draws by: the layer's number in the whole model, and the first of its numbers in a sample.
    draws: (u32, u64),
    /// Where its tasks stand in the role.
    positions: Vec<(Phase, usize)>,
    inputs: Vec<LayerId>,
    output: LayerId,
    /// The input that lies where the output goes.
    in_place: Option<usize>,
    parameters: Range<usize>,
    statistics: Range<usize>,
}

impl Chain {
    fn position(&self, phase: Phase) -> Option<usize> {
        self.positions.iter().find(|(of, _)| *of == phase).map(|(_, position)| *position)
    }
}

/// One copy of a model in training.
pub struct Replica {
    model: Arc<Model>,
    seed: u64,
    samples: usize,
    chains: Vec<Chain>,
    /// Learnable parameters.
    pub parameters: Arena,
    /// Their gradients, summed over the micro-batches of a step.
    pub gradients: Arena,
    velocity: Vec<f32>,
    statistics: Vec<f32>,
    /// Outputs of chains and their gradients.
    activations: Activations,
    /// Whether a consumer has already written its part of the gradient in this micro-batch.
    written: Vec<bool>,
    labels: Vec<u32>,
    /// Places of the samples among all since training began.
    places: Vec<u64>,
}

impl Replica {
    /// A replica for the micro-batches of a program's first role, its parameters drawn with `seed`.
    pub fn new(program: &Program, seed: u64, threads: &Threads) -> Replica {
        Replica::of_role(program, &program.roles[0], &Arenas::default(), seed, threads)
    }

    /// As [`Replica::new`], for the tasks of `role`, which may run in their order alone, its activations in `arenas`.
    pub fn of_role(program: &Program, role: &Role, arenas: &Arenas, seed: u64, threads: &Threads) -> Replica {
        let parameters = init::parameters(&program.model, seed);
        Replica::with_parameters(program, role, arenas, parameters, seed, threads)
    }

    /// As [`Replica::of_role`], with these parameters.
    pub(crate) fn with_parameters(
        program: &Program,
        role: &Role,
        arenas: &Arenas,
        parameters: Vec<f32>,
        seed: u64,
        threads: &Threads,
    ) -> Replica {
        let (model, samples) = (&program.model, program.batch_per_rank as usize);
        let elements = parameters.len();
        let activations = Activations::new(program, role, arenas);
        let chains = program.chains.iter().enumerate().map(|(index, layers)| {
            let tasks = role.tasks.iter().enumerate();
            let own = tasks.filter_map(|(position, task)| match task.op {
                Op::Compute { chain, phase, .. } if chain == index => Some((phase, position)),
                _ => None,
            });
            let samples = program.samples_in(role, layers[0]) as usize;
            let chain = chain(model, layers, samples, threads);
            Chain { positions: own.collect(), in_place: activations.in_place(&chain.inputs, chain.output), ..chain }
        });
        let mut chains: Vec<Chain> = chains.collect();
        layouts::lay(program, role, &mut chains);
        Replica {
            model: model.clone(),
            seed,
            samples,
            chains,
            activations,
            parameters: Arena::new(parameters),
            gradients: Arena::new(vec![0.0; elements]),
            velocity: vec![0.0; elements],
            statistics: init::statistics(model),
            written: vec![false; model.layers().len()],
            labels: vec![0; samples],
            places: Vec::new(),
        }
    }

    /// Bytes of the arena and of the workspace that the last micro-batch had.
    pub fn scratch_bytes(&mut self) -> (usize, usize) {
        let workspace = self.activations.workspace().bytes();
        let arena = size_of_val(self.activations.begin());
        self.activations.end();
        (arena, workspace)
    }

    /// The tensor that a copy reads.
    pub(crate) fn tensor(&self, area: Area) -> &[f32] {
        self.activations.tensor(area.into())
    }

    /// Gives `work` the first elements of a buffer, which may be one of those that the program declares, and a tensor to
    /// copy them to.
    pub(crate) fn receive(
        &mut self,
        from: Buffer,
        elements: usize,
        declared: &[Arena],
        to: Area,
        work: impl FnOnce(&[f32], &mut [f32]),
    ) {
        let arena = match from {
            Buffer::Parameters => &self.parameters,
            Buffer::Gradients => &self.gradients,
            Buffer::Declared(index) => &declared[index],
        };
        // SAFETY: nobody writes what a copy reads, by the program's order.
        work(unsafe { arena.slice(0..elements) }, self.activations.tensor_mut(to.into()));
        self.copied(to);
    }

    /// Gives `work` a tensor to read and another to copy it to.
    pub(crate) fn move_tensor(&mut self, from: Area, to: Area, work: impl FnOnce(&[f32], &mut [f32])) {
        let (read, mut written) = self.activations.views(&[from.into()], &[to.into()]);
        work(read[0], written[0]);
        self.copied(to);
    }

    /// Notes what a copy has written: a gradient is there, or an activation for which there is none yet.
    fn copied(&mut self, to: Area) {
        match to {
            Area::Activation(id) => self.written[id.index()] = false,
            Area::Gradient(id) => self.written[id.index()] = true,
            Area::Buffer(_) => {}
        }
    }

    /// The optimizer's momentum buffer.
    pub fn velocity(&self) -> &[f32] {
        &self.velocity
    }

    /// Replaces the momentum buffer, by that of an earlier run.
    pub(crate) fn set_velocity(&mut self, velocity: &[f32]) {
        self.velocity.copy_from_slice(velocity);
    }

    /// Running statistics of batch normalisation.
    pub fn statistics(&self) -> &[f32] {
        &self.statistics
    }

    /// Replaces the running statistics, e.g. by their mean over ranks.
    pub fn set_statistics(&mut self, statistics: &[f32]) {
        self.statistics.copy_from_slice(statistics);
    }

    /// Reads what the task before this one would just have written, so that a chain can be timed alone as it runs in a step.
    pub fn warm_inputs(&mut self, chain: usize, phase: Phase) -> f32 {
        let of = &self.chains[chain];
        let reads: Vec<Slot> = match phase {
            Phase::Forward => of.inputs.iter().map(|id| Slot::Output(*id)).collect(),
            _ => vec![Slot::Gradient(of.output)],
        };
        let (tensors, _) = self.activations.views(&reads, &[]);
        tensors.iter().map(|tensor| tensor.iter().step_by(16).sum::<f32>()).sum()
    }

    /// Reads the gradients of a range, as [`Replica::warm_inputs`] does for a chain.
    pub fn warm_gradients(&self, range: Range<usize>) -> f32 {
        // SAFETY: between tasks no message is in flight and nobody writes.
        unsafe { self.gradients.slice(range) }.iter().step_by(16).sum()
    }

    /// Takes the next micro-batch: the samples of `data` named by `indices`, the first of which is the `place`-th of all since
    /// training began, which is what dropout draws its numbers by.
    pub fn load(&mut self, data: &Dataset, indices: &[u32], place: u64) {
        self.labels.resize(indices.len(), 0);
        data.draw(indices, self.seed, place, &mut self.activations.input, &mut self.labels);
        self.activations.begin();
        self.places.clear();
        self.places.extend((place..).take(indices.len()));
        self.written.fill(false);
    }

    /// Turns to samples that other layers see than the first ones: their labels, and their places.
    pub(crate) fn turn_to(&mut self, labels: Vec<u32>, places: Vec<u64>) {
        (self.labels, self.places) = (labels, places);
    }

    /// Lets dropout layers draw as layers of a whole model do: by layer, that one's number and the first of its features here.
    pub(crate) fn draw_as(&mut self, layer_of: impl Fn(LayerId) -> (u32, u64)) {
        for chain in &mut self.chains {
            chain.draws = layer_of(chain.layers[0]);
        }
    }

    /// Runs a chain forward; gives the loss if the chain is the model's last. The other losses only make gradients.
    pub fn forward(&mut self, chain: usize, mode: Mode) -> Option<Loss> {
        let is_last = chain + 1 == self.chains.len();
        let of = &mut self.chains[chain];
        // An input that lies where the output goes is there already.
        let slot = |(index, id): (usize, &LayerId)| {
            if of.in_place == Some(index) { Slot::Nothing } else { Slot::Output(*id) }
        };
        let reads: Vec<Slot> = of.inputs.iter().enumerate().map(slot).collect();
        let mut workspace = std::mem::take(self.activations.workspace());
        let (inputs, mut outputs) = self.activations.views(&reads, &[Slot::Output(of.output)]);
        let found = match &mut of.work {
            Work::Loss(loss, _) => Some(loss.forward(inputs[0], &self.labels)),
            Work::Kernel(kernel) => {
                let (layer, offset) = of.draws;
                kernel.draw(Draw { seed: self.seed, layer, first: 0, offset }, &self.places);
                // SAFETY: no message is in flight on parameters, and updates run on this thread.
                let parameters = unsafe { self.parameters.slice(of.parameters.clone()) };
                let statistics = &mut self.statistics[of.statistics.clone()];
                kernel.swap_workspace(&mut workspace);
                kernel.forward(mode, &inputs, parameters, statistics, outputs[0]);
                kernel.swap_workspace(&mut workspace);
                None
            }
        };
        self.written[of.output.index()] = false;
        *self.activations.workspace() = workspace;
        self.activations.done(of.position(Phase::Forward));
        found.filter(|_| is_last)
    }

    /// The losses that the last forward pass of a loss's chain found, by sample; none of another chain.
    pub fn losses(&self, chain: usize) -> &[f64] {
        match &self.chains[chain].work {
            Work::Loss(loss, _) => loss.losses(),
            Work::Kernel(_) => &[],
        }
    }

    /// Runs a chain backward. `scale` is 1 / global batch, applied once, at the loss. With `accumulate` the parameter
    /// gradient is added to that of earlier micro-batches. After the last chain the arena is the next learner's.
    pub fn backward(&mut self, chain: usize, phase: Phase, scale: f32, accumulate: bool) {
        let of = &mut self.chains[chain];
        let data = phase != Phase::BackwardWeight;
        let needed = Reads::of(&self.model, &of.layers, phase);
        let held = |wanted: bool, slot: Slot| if wanted { slot } else { Slot::Nothing };
        let mut reads: Vec<Slot> = of.inputs.iter().map(|id| held(needed.input, Slot::Output(*id))).collect();
        reads.push(held(needed.output, Slot::Output(of.output)));
        reads.push(Slot::Gradient(of.output));
        let wanted: Vec<bool> = of.inputs.iter().map(|id| data && self.activations.wants_gradient(*id)).collect();
        let writes: Vec<Slot> =
            of.inputs.iter().zip(&wanted).map(|(id, wanted)| held(*wanted, Slot::Gradient(*id))).collect();
        let flags: Vec<bool> = of.inputs.iter().map(|id| self.written[id.index()]).collect();
        let mut workspace = std::mem::take(self.activations.workspace());
        let (tensors, mut d_inputs) = self.activations.views(&reads, &writes);
        let (inputs, y, d_output) =
            (&tensors[..of.inputs.len()], tensors[tensors.len() - 2], tensors[tensors.len() - 1]);
        match &mut of.work {
            Work::Loss(loss, weight) => loss.backward(scale * *weight, d_inputs[0], flags[0]),
            Work::Kernel(kernel) => {
                let mut d_inputs: Vec<Option<&mut [f32]>> =
                    d_inputs.into_iter().zip(&wanted).map(|(slice, wanted)| wanted.then_some(slice)).collect();
                // SAFETY: no message is in flight on parameters; exchanges of this gradient range start after this task,
                // by the program's order, and those of the previous step ended before its update.
                let (w, g) = unsafe {
                    (self.parameters.slice(of.parameters.clone()), self.gradients.slice_mut(of.parameters.clone()))
                };
                kernel.swap_workspace(&mut workspace);
                match phase {
                    Phase::Backward => {
                        kernel.backward(inputs, y, w, d_output, &mut d_inputs, &flags, g, accumulate);
                    }
                    Phase::BackwardWeight => kernel.backward_weight(inputs, y, d_output, w, g, accumulate),
                    _ => kernel.backward_data(inputs, y, w, d_output, &mut d_inputs, &flags),
                }
                kernel.swap_workspace(&mut workspace);
            }
        }
        for (id, _) in of.inputs.iter().zip(&wanted).filter(|(_, wanted)| **wanted) {
            self.written[id.index()] = true;
        }
        *self.activations.workspace() = workspace;
        self.activations.done(of.position(phase));
        if self.activations.is_last(chain, phase) {
            self.activations.end();
        }
    }

    /// One optimizer step on a range of the parameters.
    pub fn update(&mut self, range: Range<usize>, step: &SgdStep) {
        for parameter in self.model.layers().iter().flat_map(|node| &node.parameters) {
            let part = range.start.max(parameter.range.start as usize)..range.end.min(parameter.range.end as usize);
            if part.is_empty() {
                continue;
            }
            let decays = parameter.decay || step.decay_batch_norm;
            let step = SgdStep { weight_decay: if decays { step.weight_decay } else { 0.0 }, ..*step };
            // SAFETY: the exchange of this range has ended, by the program's order; nothing else touches it now.
            let (weights, gradients) =
                unsafe { (self.parameters.slice_mut(part.clone()), self.gradients.slice(part.clone())) };
            sgd_step(&step, weights, &mut self.velocity[part], gradients);
        }
    }

    /// The first chain whose output for the micro-batch at hand is not finite everywhere, of those before the loss. Runs them
    /// again, for what nobody needs any more has been overwritten.
    pub(crate) fn first_not_finite(&mut self) -> Option<usize> {
        (0..self.chains.len() - 1).find(|chain| {
            self.forward(*chain, Mode::Train);
            let (output, _) = self.activations.views(&[Slot::Output(self.chains[*chain].output)], &[]);
            !output[0].iter().all(|value| value.is_finite())
        })
    }
}

fn chain(model: &Arc<Model>, layers: &[LayerId], samples: usize, threads: &Threads) -> Chain {
    let (head, last) = (model.node(layers[0]), layers[layers.len() - 1]);
    let members: Vec<ChainLayer<'_>> = layers
        .iter()
        .map(|id| ChainLayer { layer: &model.node(*id).layer, inputs: &model.node(*id).input_shapes })
        .collect();
    let work = if head.layer.is_loss() {
        Work::Loss(CrossEntropy::new(&head.layer, model.classes() as usize, samples), head.loss_weight)
    } else {
        Work::Kernel(Kernel::new(&members, samples, threads))
    };
    let span = |ranges: Vec<Range<u64>>| -> Range<usize> {
        match (ranges.first(), ranges.last()) {
            (Some(first), Some(last)) => first.start as usize..last.end as usize,
            _ => 0..0,
        }
    };
    let nodes = || layers.iter().map(|id| model.node(*id));
    Chain {
        work,
        layers: layers.to_vec(),
        draws: (layers[0].0, 0),
        positions: Vec::new(),
        inputs: head.inputs.clone(),
        output: last,
        in_place: None,
        parameters: span(nodes().flat_map(|node| node.parameters.iter().map(|p| p.range.clone())).collect()),
        statistics: span(nodes().filter_map(|node| node.statistics.clone()).collect()),
    }
}
