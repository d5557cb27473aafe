//! Runs one copy of the model, with its gradients, optimizer state and activations on a device, chain by chain.
//!
//! It knows which tensors a task reads and writes and where they are, but nothing of ranks or time. Workers, evaluation
//! and the one-rank reference drive it task by task.

mod evaluation;
mod generation;
mod samples;
mod timing;
mod values;

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::memory::{BufferAddresses, Plan, Reads};
use lockstep_models::{
    Area, Copy, Declared, Formula, LayerId, Model, Op, Optimizer, Origin, Phase, Program, Role, SgdStep, StepNumbers,
};

use crate::device::cpu::Threads;
use crate::device::{
    Backward, Blueprint, Cpus, DeviceError, Devices, Draw, Forward, Loss, Mode, RankDevice, Spot, TensorAddress,
};
use crate::init;
use crate::input::{Decoders, Feed};
use crate::pool::Arenas;

pub use evaluation::Evaluation;

/// A fused chain of layers in the graph.
struct Chain {
    layers: Vec<LayerId>,
    /// What its first layer computes of the whole model's, for its dropout's draws.
    origin: Origin,
    /// The positions of its tasks in the role.
    positions: Vec<(Phase, usize)>,
    inputs: Vec<LayerId>,
    output: LayerId,
    /// The input whose memory the output overwrites.
    in_place: Option<usize>,
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
    /// The places of the chains' outputs and their gradients.
    plan: Plan,
    /// By micro-batch in flight: whether a consumer has already written its part of each gradient.
    written: Vec<Vec<bool>>,
    /// The current one of them.
    context: usize,
    labels: Vec<u32>,
    /// The places of buffers.
    places: BufferAddresses,
    device: Box<dyn RankDevice>,
    feed: Feed,
}

/// What a replica is made from.
pub(crate) struct Making<'a> {
    /// The device's kind.
    pub devices: &'a dyn Devices,
    /// The rank, which determines its device where there are several.
    pub rank: u32,
    /// Where activations are kept.
    pub arenas: &'a Arenas,
    /// Elements of the declared buffers that the rank holds.
    pub declared: Vec<usize>,
    /// Seed of initial values and dropout.
    pub seed: u64,
    /// The threads of a CPU device.
    pub threads: &'a Threads,
    /// The threads that prepare batches.
    pub decoders: &'a Arc<Decoders>,
}

impl Replica {
    /// A replica on the CPU for the micro-batches of a program's first role, its parameters drawn with `seed`.
    pub fn new(program: &Program, seed: u64, threads: &Threads) -> Replica {
        Replica::of_role(program, &program.roles[0], &Arenas::default(), seed, threads)
    }

    /// As [`Replica::new`], for the tasks of `role`, which must run in their order, with its activations in `arenas`.
    pub fn of_role(program: &Program, role: &Role, arenas: &Arenas, seed: u64, threads: &Threads) -> Replica {
        Replica::on(&Cpus, program, role, arenas, seed, threads).expect("the CPU refuses nothing")
    }

    /// As [`Replica::of_role`], on one of `devices`: that of the role's first rank.
    ///
    /// # Errors
    /// Device errors.
    pub fn on(
        devices: &dyn Devices,
        program: &Program,
        role: &Role,
        arenas: &Arenas,
        seed: u64,
        threads: &Threads,
    ) -> Result<Replica, DeviceError> {
        // Of declared buffers, passes use the one alone in which gradients of tied weights are summed.
        let sum = program.sum_of_tied();
        let elements =
            |(index, buffer): (usize, &Declared)| if Some(index) == sum { buffer.elements as usize } else { 0 };
        let declared = program.buffers.iter().enumerate().map(elements).collect();
        let parameters = init::parameters(&program.model, seed);
        let decoders = &Arc::new(Decoders::new());
        let making = Making { devices, rank: role.ranks.first(), arenas, declared, seed, threads, decoders };
        Replica::with_parameters(program, role, parameters, making)
    }

    /// A replica with these parameters.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn with_parameters(
        program: &Program,
        role: &Role,
        parameters: Vec<f32>,
        making: Making<'_>,
    ) -> Result<Replica, DeviceError> {
        let model = &program.model;
        let plan = Plan::on_device(program, role, making.arenas.reuse, making.devices.activations(program.precision));
        let Making { devices, rank, arenas, declared, seed, threads, decoders } = making;
        let begin = (parameters, init::statistics(model));
        let blueprint = Blueprint::new(program, (role, rank), (&plan, arenas), declared, begin);
        let places = blueprint.places.clone();
        let device = devices.device(rank, blueprint, threads)?;
        let chain = |(index, layers): (usize, &Vec<LayerId>)| {
            let tasks = role.tasks.iter().enumerate();
            let own = tasks.filter_map(|(position, task)| match task.op {
                Op::Compute { chain, phase, .. } if chain == index => Some((phase, position)),
                _ => None,
            });
            let (inputs, output) = (model.node(layers[0]).inputs.clone(), layers[layers.len() - 1]);
            let place = |id: LayerId| plan.outputs[id.index()].as_ref();
            let in_place = inputs.iter().position(|id| place(*id).is_some() && place(*id) == place(output));
            Chain {
                layers: layers.clone(),
                origin: Origin::of_whole(layers[0]),
                positions: own.collect(),
                inputs,
                output,
                in_place,
            }
        };
        let samples = program.batch_per_rank as usize;
        Ok(Replica {
            model: model.clone(),
            places,
            seed,
            samples,
            chains: program.chains.iter().enumerate().map(chain).collect(),
            plan,
            written: vec![vec![false; model.layers().len()]; role.micro_batches_in_flight() as usize],
            context: 0,
            labels: Vec::new(),
            device,
            feed: Feed::new(decoders, program.transform_at),
        })
    }

    /// The threads that prepare its batches.
    pub(crate) fn decoders(&self) -> Arc<Decoders> {
        self.feed.decoders()
    }

    /// Its device.
    pub(crate) fn device(&mut self) -> &mut dyn RankDevice {
        &mut *self.device
    }

    /// Whether the device runs asynchronously: calls return before their work is done.
    pub(crate) fn is_asynchronous(&self) -> bool {
        self.device.is_asynchronous()
    }

    /// Bytes of the arena and of the workspace of the last micro-batch.
    pub fn scratch_bytes(&mut self) -> (usize, usize) {
        self.device.scratch_bytes()
    }

    /// Reads what the previous task would have just written, so that a task timed alone runs as it does in a step.
    pub fn warm_inputs(&mut self, chain: usize, phase: Phase) {
        let of = &self.chains[chain];
        let places: Vec<TensorAddress> = match phase {
            phase if phase.makes_outputs() => of.inputs.iter().map(|id| self.output(*id)).collect(),
            _ => vec![self.gradient(of.output)],
        };
        self.device.warm(&places);
    }

    /// Switches to another of the micro-batches in flight.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn turn_to_context(&mut self, context: usize) -> Result<(), DeviceError> {
        self.context = context;
        self.device.turn_to_context(context)
    }

    /// Makes layers draw and look up as the parts of layers of the whole model that they are.
    pub(crate) fn draw_as(&mut self, origin_of: impl Fn(LayerId) -> Origin) {
        for chain in &mut self.chains {
            chain.origin = origin_of(chain.layers[0]);
        }
    }

    /// The place of a layer's output.
    fn output(&self, id: LayerId) -> TensorAddress {
        match &self.plan.outputs[id.index()] {
            _ if id == LayerId(0) => TensorAddress::Input,
            Some(range) => TensorAddress::Arena(range.clone()),
            None => TensorAddress::Nothing,
        }
    }

    /// The place of the gradient of a layer's output.
    fn gradient(&self, id: LayerId) -> TensorAddress {
        self.plan.gradients[id.index()].clone().map_or(TensorAddress::Nothing, TensorAddress::Arena)
    }

    fn spot(&self, area: Area) -> Spot {
        match area {
            Area::Buffer(buffer) => Spot::Buffer(buffer),
            Area::Activation(id) => Spot::Tensor(self.output(id)),
            Area::Gradient(id) => Spot::Tensor(self.gradient(id)),
        }
    }

    /// Performs a copy.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn copy(&mut self, of: &Copy) -> Result<(), DeviceError> {
        let (from, to) = (self.spot(of.from), self.spot(of.to));
        self.device.copy(of, &from, &to)?;
        // The copy writes a gradient, or an activation that has no gradient yet.
        match of.to {
            Area::Activation(id) => self.written[self.context][id.index()] = false,
            Area::Gradient(id) => self.written[self.context][id.index()] = true,
            Area::Buffer(_) => {}
        }
        Ok(())
    }

    /// Runs a chain forward. Returns the loss if the chain is the model's last, unless the device is asynchronous or finds it in
    /// the backward pass; other losses only make gradients.
    ///
    /// # Errors
    /// Device errors.
    pub fn forward(&mut self, chain: usize, mode: Mode) -> Result<Option<Loss>, DeviceError> {
        let of = &self.chains[chain];
        let place = |(index, id): (usize, &LayerId)| {
            if of.in_place == Some(index) { TensorAddress::InPlace } else { self.output(*id) }
        };
        let inputs: Vec<TensorAddress> = of.inputs.iter().enumerate().map(place).collect();
        let Origin { layer, first, entry, row, sample } = of.origin;
        let draw = Draw { seed: self.seed, layer: layer.0, first: 0, offset: first, entry, row, skipped: sample };
        let pass = Forward { chain, mode, draw, inputs: &inputs, output: self.output(of.output) };
        let found = self.device.forward(&pass)?;
        self.written[self.context][of.output.index()] = false;
        let position = of.position(if mode == Mode::Recompute { Phase::Recompute } else { Phase::Forward });
        self.done(position)?;
        Ok(found.filter(|_| self.is_last(chain)))
    }

    /// Whether a chain is the model's last, whose loss is reported.
    pub(crate) fn is_last(&self, chain: usize) -> bool {
        chain + 1 == self.chains.len()
    }

    /// The losses by sample of the last forward pass of a loss chain; empty for other chains.
    ///
    /// # Errors
    /// Device errors.
    pub fn losses(&mut self, chain: usize) -> Result<Vec<f64>, DeviceError> {
        self.device.losses(chain)
    }

    /// Runs a chain backward. `scale` is 1 / global batch, applied once, at the loss. With `accumulate` the parameter
    /// gradient is added to that of earlier micro-batches. After the last chain the arena is free for the next learner.
    /// Returns the loss, once, if the chain is the model's last and its forward pass has not.
    ///
    /// # Errors
    /// Device errors.
    pub fn backward(
        &mut self,
        chain: usize,
        phase: Phase,
        scale: f32,
        accumulate: bool,
    ) -> Result<Option<Loss>, DeviceError> {
        let of = &self.chains[chain];
        let needed = Reads::of(&self.model, &of.layers, phase);
        let held = |wanted: bool, id: LayerId| if wanted { self.output(id) } else { TensorAddress::Nothing };
        let inputs: Vec<TensorAddress> = of.inputs.iter().map(|id| held(needed.input, *id)).collect();
        let gradient = |id: &LayerId| {
            let wanted = phase != Phase::BackwardWeight && self.plan.gradients[id.index()].is_some();
            wanted.then(|| (self.gradient(*id), self.written[self.context][id.index()]))
        };
        let d_inputs: Vec<Option<(TensorAddress, bool)>> = of.inputs.iter().map(gradient).collect();
        let found = self.device.backward(&Backward {
            chain,
            inputs: &inputs,
            output: held(needed.output, of.output),
            d_output: self.gradient(of.output),
            d_inputs: &d_inputs,
            d_parameters: (phase != Phase::BackwardData).then_some(accumulate),
            scale,
        })?;
        for (id, _) in of.inputs.iter().zip(&d_inputs).filter(|(_, wanted)| wanted.is_some()) {
            self.written[self.context][id.index()] = true;
        }
        let position = of.position(phase);
        self.done(position)?;
        if self.plan.last == Some((chain, phase)) {
            self.device.release();
        }
        // Where the passes to the input and to the weights are apart, both find it.
        Ok(found.filter(|_| self.is_last(chain) && phase != Phase::BackwardWeight))
    }

    /// To be called after the task at `position` of the role has run.
    fn done(&mut self, position: Option<usize>) -> Result<(), DeviceError> {
        position.map_or(Ok(()), |position| self.device.forget(&self.plan.dead[position]))
    }

    /// One step of momentum SGD on a range of the parameters.
    ///
    /// # Errors
    /// Device errors.
    pub fn update(&mut self, range: Range<usize>, step: &SgdStep) -> Result<(), DeviceError> {
        self.evaluate_formula(range, &Optimizer::update(1.0, false), &(*step).into())
    }

    /// Evaluates a formula on a range of its buffers, such as an optimizer's step.
    ///
    /// # Errors
    /// Device errors.
    pub fn evaluate_formula(
        &mut self,
        range: Range<usize>,
        formula: &Formula,
        numbers: &StepNumbers,
    ) -> Result<(), DeviceError> {
        self.apply(range, &formula.bind(numbers))
    }

    /// The first chain before the loss whose output for the current micro-batch is not finite everywhere. Runs the
    /// chains again, since outputs that are no longer needed have been overwritten. On an asynchronous device the
    /// parameters may no longer be finite either; then the chain cannot be found.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn first_not_finite(&mut self) -> Result<Option<usize>, DeviceError> {
        let finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        if self.is_asynchronous() && !finite(&self.parameters()?) {
            return Ok(None);
        }
        // A pipeline stage holds only some of the chains.
        if self.chains.iter().any(|chain| chain.position(Phase::Forward).is_none()) {
            return Ok(None);
        }
        for chain in 0..self.chains.len() - 1 {
            self.forward(chain, Mode::Train)?;
            let place = self.output(self.chains[chain].output);
            if !finite(&self.device.tensor(&place)?) {
                return Ok(Some(chain));
            }
        }
        Ok(None)
    }
}
