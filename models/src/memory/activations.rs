//! Lists the temporary tensors of a micro-batch: which tasks write and read each, in the order of the role's tasks.
//!
//! Tensors inside a fused chain are never stored. Outputs and their gradients share an arena; what a kernel keeps from
//! its forward to its backward pass (places of maxima, a dropout's mask, a loss's probabilities) has its own memory.

use std::ops::RangeInclusive;

use lockstep_topology::Dtype;

use crate::layer::InputUse;
use crate::{Area, Layer, LayerId, Model, Op, Phase, Program, Role};

use super::LINE_BYTES;

/// What a tensor of a layer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// The layer's output.
    Output,
    /// The gradient with respect to its output.
    Gradient,
    /// What its kernel keeps for the backward pass.
    Kept,
}

/// A tensor with its first and last use, as positions of tasks in their role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTensor {
    /// `conv1`, `conv1 gradient`, `pool1 places`.
    pub name: String,
    /// Its layer.
    pub layer: LayerId,
    /// What of the layer it holds.
    pub content: Content,
    /// Its elements.
    pub elements: u64,
    /// Their format.
    pub dtype: Dtype,
    /// The task that writes it first.
    pub first: usize,
    /// The task that uses it last.
    pub last: usize,
    /// The same of a second lifetime, where it is dropped and computed again.
    pub again: Option<(usize, usize)>,
}

impl PlannedTensor {
    /// The memory that it takes: whole cache lines, so that each tensor begins on one.
    pub fn bytes(&self) -> u64 {
        self.dtype.bytes(self.elements).next_multiple_of(LINE_BYTES)
    }
}

/// The chains of a role: their positions, and how many samples they take.
pub(super) struct Chains {
    /// The forward task of each, if the role runs it.
    pub(super) forward: Vec<Option<usize>>,
    /// The chain of each layer; the input has none.
    pub(super) of_layer: Vec<Option<usize>>,
    last_backward: Vec<Option<usize>>,
    samples: Vec<u32>,
    /// Samples in the output of each layer, where a micro-batch goes through all of them at once.
    at_once: Option<Vec<u32>>,
}

impl Chains {
    pub(super) fn of(program: &Program, role: &Role) -> Chains {
        let chains = program.chains.len();
        let [mut forward, mut last_backward] = [(); 2].map(|()| vec![None; chains]);
        let mut samples = vec![0; chains];
        for (position, task) in role.tasks.iter().enumerate() {
            let Op::Compute { chain, phase, samples: of_task, .. } = task.op else { continue };
            samples[chain] = of_task.max(samples[chain]);
            match phase {
                Phase::Forward | Phase::Evaluate => forward[chain] = Some(position),
                Phase::Recompute => {}
                _ => last_backward[chain] = Some(position),
            }
        }
        let mut of_layer = vec![None; program.model.layers().len()];
        for (chain, layers) in program.chains.iter().enumerate() {
            layers.iter().for_each(|id| of_layer[id.index()] = Some(chain));
        }
        let at_once = program.model.iter().map(|(id, _)| program.samples_at_once(role, id)).collect();
        Chains { forward, of_layer, last_backward, samples, at_once }
    }

    /// The last task of the layer, or that reads its output.
    pub(super) fn referred_until(&self, model: &Model, id: LayerId) -> usize {
        let of = |id: &LayerId| self.of_layer[id.index()].and_then(|chain| self.last_backward[chain]);
        of(&id).into_iter().chain(model.consumers(id).iter().filter_map(of)).max().unwrap_or(0)
    }

    /// Samples in the output of a layer, as [`Program::samples_in`].
    pub(super) fn samples_in(&self, model: &Model, id: LayerId) -> u64 {
        if let Some(samples) = &self.at_once {
            return samples[id.index()].into();
        }
        let of = |id: &LayerId| self.of_layer[id.index()].map(|chain| self.samples[chain]);
        let consumed = || model.consumers(id).iter().filter_map(of).max();
        u64::from(of(&id).or_else(consumed).unwrap_or(0))
    }
}

/// A tensor's lifetime, and the second one, where it is computed again.
type Lives = [Option<(usize, usize)>; 2];

/// The tasks that use a tensor.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    /// First and last position.
    span: Option<(usize, usize)>,
    /// The same from where it is written again on.
    again: Option<(usize, usize)>,
    /// Whether a task reads it, or writes an output.
    wanted: bool,
}

impl Uses {
    /// Adds a task after those so far.
    fn add(&mut self, position: usize, wanted: bool) {
        let life = if self.again.is_some() { &mut self.again } else { &mut self.span };
        *life = Some((life.map_or(position, |(first, _)| first), position));
        self.wanted |= wanted;
    }

    /// Adds a task that writes it again.
    fn add_again(&mut self, position: usize) {
        self.again.get_or_insert((position, position)).1 = position;
    }
}

/// The activations of one micro-batch and their gradients in `dtype`; input and parameters are not among them.
pub fn activations(program: &Program, role: &Role, dtype: Dtype) -> Vec<PlannedTensor> {
    let (model, chains) = (&program.model, Chains::of(program, role));
    let (outputs, gradients) = uses(program, role);
    let repeats: Vec<RangeInclusive<usize>> = repeats(role).collect();
    let mut tensors = Vec::new();
    for (layer, node) in model.iter().skip(1) {
        let mut push = |content: Content, what: &str, (elements, dtype): (u64, Dtype), [span, again]: Lives| {
            let name = format!("{}{what}", node.name);
            let [span, again] = [span, again].map(|life| life.map(|life| across_repetitions(&repeats, life)));
            let Some((first, last)) = span else { return };
            tensors.push(PlannedTensor { name, layer, content, elements, dtype, first, last, again });
        };
        let samples = chains.samples_in(model, layer);
        let of_gradient = (Content::Gradient, " gradient", gradients[layer.index()]);
        for (content, what, uses) in [(Content::Output, "", outputs[layer.index()]), of_gradient] {
            if uses.wanted && !node.layer.is_loss() {
                push(content, what, (samples * node.output.elements(), dtype), [uses.span, uses.again]);
            }
        }
        let Some(kept) = node.layer.rule().keeps(node.input_shapes[0], node.output) else { continue };
        let Some(chain) = chains.of_layer[layer.index()] else { continue };
        if let (Some(first), Some(last)) = (chains.forward[chain], chains.last_backward[chain]) {
            push(
                Content::Kept,
                &format!(" {}", kept.what),
                (samples * kept.elements, kept.dtype),
                [Some((first, last)), None],
            );
        }
    }
    tensors
}

/// Where outputs and gradients are used, by layer.
fn uses(program: &Program, role: &Role) -> (Vec<Uses>, Vec<Uses>) {
    let model = &program.model;
    let none = vec![Uses::default(); model.layers().len()];
    let (mut outputs, mut gradients) = (none.clone(), none);
    let mut is_backward = false;
    for (position, task) in role.tasks.iter().enumerate() {
        match &task.op {
            Op::Compute { chain, phase, .. } => {
                let layers = &program.chains[*chain];
                let (inputs, output) = (&model.node(layers[0]).inputs, layers[layers.len() - 1]);
                let reads = Reads::of(model, layers, *phase);
                inputs.iter().filter(|_| reads.input).for_each(|id| outputs[id.index()].add(position, true));
                match phase {
                    Phase::Recompute => outputs[output.index()].add_again(position),
                    _ if phase.makes_outputs() || reads.output => outputs[output.index()].add(position, true),
                    _ => {}
                }
                is_backward |= !phase.makes_outputs();
                if !phase.makes_outputs() {
                    gradients[output.index()].add(position, true);
                }
                if matches!(phase, Phase::BackwardData | Phase::Backward) {
                    inputs.iter().for_each(|id| gradients[id.index()].add(position, false));
                }
            }
            Op::Copy(copies) => {
                for (writes, area) in [(false, copies.first().from), (true, copies.first().to)] {
                    match area {
                        // Between the first backward pass and the last one an output is written again alone.
                        Area::Activation(id) if writes && is_backward => outputs[id.index()].add_again(position),
                        Area::Activation(id) => outputs[id.index()].add(position, true),
                        Area::Gradient(id) => gradients[id.index()].add(position, true),
                        Area::Buffer(_) => {}
                    }
                }
            }
            _ => {}
        }
    }
    (outputs, gradients)
}

/// The tasks inside each `Repeat`.
fn repeats(role: &Role) -> impl Iterator<Item = RangeInclusive<usize>> {
    role.tasks.iter().enumerate().filter_map(|(id, task)| match task.op {
        Op::Repeat { body, .. } => Some(id + 1..=id + body),
        _ => None,
    })
}

/// The span of a tensor extended over repetitions: one made before a `Repeat` lives until all of it has run, one that
/// is read after it (or filled bit by bit) from its first task on.
fn across_repetitions(repeats: &[RangeInclusive<usize>], (first, last): (usize, usize)) -> (usize, usize) {
    let (mut from, mut to) = (first, last);
    for inside in repeats {
        if inside.contains(&last) && first < *inside.start() {
            to = inside.end() + 1;
        }
        if inside.contains(&first) && last > *inside.end() {
            from = *inside.start();
        }
    }
    (from, to)
}

/// What a backward task of a chain reads besides the gradient of the chain's output, its parameters and what it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// The chain's inputs: for parameter gradients, and where the gradient is computed from them.
    pub input: bool,
    /// Its output: where a ReLU cut it off or the gradient is computed from it.
    pub output: bool,
}

impl Reads {
    /// What `phase` reads of a chain of `layers`; a forward pass reads its inputs and writes its output.
    pub fn of(model: &Model, layers: &[LayerId], phase: Phase) -> Reads {
        Reads::of_layers(layers.iter().map(|id| &model.node(*id).layer), phase)
    }

    /// The same of layers without a model.
    pub fn of_layers<'a>(mut layers: impl Iterator<Item = &'a Layer> + Clone, phase: Phase) -> Reads {
        if phase.makes_outputs() {
            return Reads { input: true, output: false };
        }
        // A flattened input is the same memory as its dense layer's.
        let head = layers.clone().find(|layer| !layer.rule().kind().is_view);
        let input = match head.map(|layer| layer.rule().kind().input_use) {
            Some(InputUse::Always) => true,
            Some(InputUse::ForParameters) => phase != Phase::BackwardData,
            Some(InputUse::Never) | None => false,
        };
        Reads { input, output: layers.any(|layer| layer.rule().kind().reads_output) }
    }
}
