//! A replica: one copy of the model with its gradients, optimizer state, activations and kernels, run chain by chain.
//!
//! It knows nothing of ranks or time: the worker drives it task by task, evaluation and the one-rank reference drive it too.

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::{Area, Layer, LayerId, Model, Phase, SgdStep};
use lockstep_topology::InputError;

use crate::arena::Arena;
use crate::data::{Dataset, Sampler};
use crate::device::cpu::{ChainLayer, CrossEntropy, Draw, Kernel, Loss, Mode, Threads, add_into, sgd_step};
use crate::init;

/// What a chain computes.
enum Work {
    Kernel(Kernel),
    /// A loss, and what it counts in the sum of losses.
    Loss(CrossEntropy, f32),
}

/// One kernel or loss and where its tensors are.
struct Chain {
    work: Work,
    first: LayerId,
    inputs: Vec<LayerId>,
    output: LayerId,
    parameters: Range<usize>,
    statistics: Range<usize>,
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
    /// Output of each layer, empty inside chains; `[samples, elements]`.
    outputs: Vec<Vec<f32>>,
    /// Gradient of each layer's output, empty where none is wanted.
    d_outputs: Vec<Vec<f32>>,
    /// Whether a consumer has already written its part of the gradient in this micro-batch.
    written: Vec<bool>,
    labels: Vec<u32>,
    /// Place of the micro-batch's first sample among all since training began.
    place: u64,
}

impl Replica {
    /// A replica for micro-batches of `samples`, its parameters drawn with `seed`.
    pub fn new(model: &Arc<Model>, chains: &[Vec<LayerId>], samples: usize, seed: u64, threads: &Threads) -> Replica {
        Replica::with_samples(model, chains, &vec![samples; model.layers().len()], seed, threads)
    }

    /// As [`Replica::new`], with micro-batches of `samples[i]` in layer i.
    pub fn with_samples(
        model: &Arc<Model>,
        chains: &[Vec<LayerId>],
        samples: &[usize],
        seed: u64,
        threads: &Threads,
    ) -> Replica {
        let parameters = init::parameters(model, seed);
        let elements = parameters.len();
        let layers = model.layers().len();
        let (mut outputs, mut d_outputs) = (vec![Vec::new(); layers], vec![Vec::new(); layers]);
        let size = |id: LayerId| samples[id.index()] * model.node(id).output.elements() as usize;
        outputs[0] = vec![0.0; size(LayerId(0))];
        let built = chains
            .iter()
            .map(|layers| {
                let chain = chain(model, layers, samples[layers[0].index()], threads);
                outputs[chain.output.0 as usize] = vec![0.0; size(chain.output)];
                for input in chain.inputs.iter().filter(|id| wants_gradient(model, **id)) {
                    d_outputs[input.0 as usize] = vec![0.0; size(*input)];
                }
                chain
            })
            .collect();
        Replica {
            model: model.clone(),
            seed,
            samples: samples[0],
            chains: built,
            parameters: Arena::new(parameters),
            gradients: Arena::new(vec![0.0; elements]),
            velocity: vec![0.0; elements],
            statistics: init::statistics(model),
            outputs,
            d_outputs,
            written: vec![false; layers],
            labels: vec![0; samples[0]],
            place: 0,
        }
    }

    /// The tensor that a copy reads.
    pub(crate) fn tensor(&self, area: Area) -> &[f32] {
        match area {
            Area::Activation(id) => &self.outputs[id.index()],
            Area::Gradient(id) => &self.d_outputs[id.index()],
            Area::Buffer(_) => unreachable!("a buffer is no tensor of a replica"),
        }
    }

    /// The tensor that a copy writes.
    pub(crate) fn tensor_mut(&mut self, area: Area) -> &mut Vec<f32> {
        match area {
            Area::Activation(id) => &mut self.outputs[id.index()],
            Area::Gradient(id) => &mut self.d_outputs[id.index()],
            Area::Buffer(_) => unreachable!("a buffer is no tensor of a replica"),
        }
    }

    /// Notes what a copy has written: a gradient is there, or an activation for which there is none yet.
    pub(crate) fn copied(&mut self, to: Area) {
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

    /// Running statistics of batch normalisation.
    pub fn statistics(&self) -> &[f32] {
        &self.statistics
    }

    /// Replaces the running statistics, e.g. by their mean over ranks.
    pub fn set_statistics(&mut self, statistics: &[f32]) {
        self.statistics.copy_from_slice(statistics);
    }

    /// Reads what the task before this one would just have written, so that a chain can be timed alone as it runs in a step.
    pub fn warm_inputs(&self, chain: usize, phase: Phase) -> f32 {
        let of = &self.chains[chain];
        let read = |tensor: &[f32]| tensor.iter().step_by(16).sum::<f32>();
        match phase {
            Phase::Forward => of.inputs.iter().map(|id| read(&self.outputs[id.0 as usize])).sum(),
            _ => read(&self.d_outputs[of.output.0 as usize]),
        }
    }

    /// Reads the gradients of a range, as [`Replica::warm_inputs`] does for a chain.
    pub fn warm_gradients(&self, range: Range<usize>) -> f32 {
        // SAFETY: between tasks no message is in flight and nobody writes.
        unsafe { self.gradients.slice(range) }.iter().step_by(16).sum()
    }

    /// Takes the next micro-batch: the samples of `data` named by `indices`, the first of which is the `place`-th of all since
    /// training began, which is what dropout draws its numbers by.
    pub fn load(&mut self, data: &Dataset, indices: &[u32], place: u64) {
        data.gather(indices, &mut self.outputs[0], &mut self.labels);
        self.place = place;
        self.written.fill(false);
    }

    /// Runs a chain forward; gives the loss if the chain is the model's last. The other losses only make gradients.
    pub fn forward(&mut self, chain: usize, mode: Mode) -> Option<Loss> {
        let is_last = chain + 1 == self.chains.len();
        let of = &mut self.chains[chain];
        let kernel = match &mut of.work {
            Work::Kernel(kernel) => kernel,
            Work::Loss(loss, _) => {
                let found = loss.forward(&self.outputs[of.inputs[0].0 as usize], &self.labels);
                return is_last.then_some(found);
            }
        };
        kernel.draw(Draw { seed: self.seed, layer: of.first.0, first: self.place });
        let mut output = std::mem::take(&mut self.outputs[of.output.0 as usize]);
        let inputs: Vec<&[f32]> = of.inputs.iter().map(|id| self.outputs[id.0 as usize].as_slice()).collect();
        // SAFETY: no message is in flight on parameters, and updates run on this thread.
        let parameters = unsafe { self.parameters.slice(of.parameters.clone()) };
        kernel.forward(mode, &inputs, parameters, &mut self.statistics[of.statistics.clone()], &mut output);
        self.outputs[of.output.0 as usize] = output;
        None
    }

    /// Runs a chain backward. `scale` is 1 / global batch, applied once, at the loss. With `accumulate` the parameter
    /// gradient is added to that of earlier micro-batches.
    pub fn backward(&mut self, chain: usize, phase: Phase, scale: f32, accumulate: bool) {
        let of = &mut self.chains[chain];
        let kernel = match &mut of.work {
            Work::Kernel(kernel) => kernel,
            Work::Loss(loss, weight) => {
                let logits = of.inputs[0].0 as usize;
                loss.backward(scale * *weight, &mut self.d_outputs[logits], self.written[logits]);
                self.written[logits] = true;
                return;
            }
        };
        let data = phase != Phase::BackwardWeight;
        let output = of.output.0 as usize;
        let inputs: Vec<&[f32]> = of.inputs.iter().map(|id| self.outputs[id.0 as usize].as_slice()).collect();
        let d_output = std::mem::take(&mut self.d_outputs[output]);
        // An input that stands twice gets its second gradient through a buffer of its own.
        let mut taken: Vec<Option<Vec<f32>>> = Vec::new();
        let mut flags = Vec::new();
        for (i, id) in of.inputs.iter().enumerate().filter(|_| data) {
            let index = id.0 as usize;
            let repeated = of.inputs[..i].contains(id);
            let wanted = wants_gradient(&self.model, *id);
            taken.push(match (wanted, repeated) {
                (false, _) => None,
                (true, false) => Some(std::mem::take(&mut self.d_outputs[index])),
                (true, true) => Some(vec![0.0; self.outputs[index].len()]),
            });
            flags.push(self.written[index] && !repeated);
        }
        let mut d_inputs: Vec<Option<&mut [f32]>> = taken.iter_mut().map(|buffer| buffer.as_deref_mut()).collect();
        // SAFETY: no message is in flight on parameters; exchanges of this gradient range start after this task, by the
        // program's order, and those of the previous step ended before its update.
        let (parameters, d_parameters) =
            unsafe { (self.parameters.slice(of.parameters.clone()), self.gradients.slice_mut(of.parameters.clone())) };
        let y = &self.outputs[output];
        match phase {
            Phase::Backward => {
                kernel.backward(&inputs, y, parameters, &d_output, &mut d_inputs, &flags, d_parameters, accumulate);
            }
            Phase::BackwardWeight => {
                kernel.backward_weight(&inputs, y, &d_output, parameters, d_parameters, accumulate);
            }
            _ => kernel.backward_data(&inputs, y, parameters, &d_output, &mut d_inputs, &flags),
        }
        self.d_outputs[output] = d_output;
        for (id, buffer) in of.inputs.iter().zip(taken) {
            let index = id.0 as usize;
            match buffer {
                Some(buffer) if self.d_outputs[index].is_empty() => self.d_outputs[index] = buffer,
                Some(second) => add_into(&mut self.d_outputs[index], &second),
                None => continue,
            }
            self.written[index] = true;
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

    /// The first chain whose output is not finite everywhere, of those before the loss.
    pub(crate) fn first_not_finite(&self) -> Option<usize> {
        let finite = |chain: &Chain| self.outputs[chain.output.index()].iter().all(|value| value.is_finite());
        self.chains[..self.chains.len() - 1].iter().position(|chain| !finite(chain))
    }

    /// Replaces the running statistics by their mean over an epoch of `data` in the micro-batches of this replica, with its
    /// parameters as they are (Goyal et al. 2017, §5.2, Fig. 4: "BN statistics are recomputed prior to evaluating").
    ///
    /// # Errors
    /// Fewer samples than a micro-batch.
    pub fn recompute_statistics(&mut self, data: &Dataset) -> Result<(), InputError> {
        if self.statistics.is_empty() {
            return Ok(());
        }
        let sampler = Sampler::new(data.len(), self.samples as u32, 1, &[1], self.seed)?;
        let mut indices = Vec::new();
        for batch in 0..sampler.batches_per_epoch() {
            let place = sampler.micro_batch(batch, 0, 0, &mut indices);
            self.load(data, &indices, place);
            for chain in 0..self.chains.len() - 1 {
                self.forward(chain, Mode::Statistics { batch: batch as u32 });
            }
        }
        Ok(())
    }

    /// Mean loss and number of correct samples over a whole data set, with the running statistics.
    pub fn evaluate(&mut self, data: &Dataset) -> Evaluation {
        let mut evaluation = Evaluation { samples: data.len(), correct: 0, mean_loss: 0.0 };
        let mut sum = 0.0;
        let mut next = 0;
        while next < data.len() {
            // The last batch is filled up with the first samples again, which are not counted.
            let count = self.samples.min(data.len() - next);
            let indices: Vec<u32> = (0..self.samples).map(|i| ((next + i) % data.len()) as u32).collect();
            self.load(data, &indices, 0);
            for chain in 0..self.chains.len() - 1 {
                self.forward(chain, Mode::Evaluate);
            }
            let classes = self.model.classes() as usize;
            if let Some(Chain { work: Work::Loss(loss, _), inputs, .. }) = self.chains.last_mut() {
                let logits = &self.outputs[inputs[0].index()];
                let found = loss.forward(&logits[..count * classes], &self.labels[..count]);
                sum += found.sum;
                evaluation.correct += found.correct;
            }
            next += count;
        }
        evaluation.mean_loss = sum / data.len() as f64;
        evaluation
    }
}

/// How well a model does on held-out data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Samples looked at.
    pub samples: usize,
    /// Of them, those whose largest logit is the label's.
    pub correct: usize,
    /// Mean cross-entropy in nats.
    pub mean_loss: f64,
}

impl Evaluation {
    /// Share of correct samples, 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.samples.max(1) as f64
    }
}

/// Whether anyone wants the gradient of a layer's output: all but the samples themselves and what no parameter feeds.
fn wants_gradient(model: &Model, id: LayerId) -> bool {
    !matches!(model.node(id).layer, Layer::Input(_))
        && model.consumers(id).iter().any(|consumer| model.needs_input_gradient(*consumer))
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
        first: layers[0],
        inputs: head.inputs.clone(),
        output: last,
        parameters: span(nodes().flat_map(|node| node.parameters.iter().map(|p| p.range.clone())).collect()),
        statistics: span(nodes().filter_map(|node| node.statistics.clone()).collect()),
    }
}
