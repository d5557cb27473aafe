//! Binds a chain of layers to one kernel or loss of a rank, with the tensors that it reads and writes.

use std::ops::Range;

use lockstep_models::memory::Reads;
use lockstep_models::{Buffer, GradientShare, Layer, LayerId, Model, Node, Phase, Program};
use lockstep_topology::Dtype;

use super::tensors::round_tiles;
use super::{CrossEntropy, Kernel, LinearCrossEntropy, Threads};
use crate::device::Blueprint;

/// What a chain computes.
pub(super) enum Work {
    Kernel(Kernel),
    /// A loss, and its weight in the sum of losses.
    Loss(CrossEntropy, f32),
    /// An output layer with its loss, and its weight.
    LinearLoss(LinearCrossEntropy, f32),
    /// Nothing: other ranks run it.
    Elsewhere,
}

/// One kernel or loss, its tensors, and the place of its parameters.
pub(super) struct Chain {
    pub(super) work: Work,
    pub(super) inputs: Vec<LayerId>,
    pub(super) output: LayerId,
    pub(super) parameters: Range<usize>,
    /// The place of their gradients.
    pub(super) gradients: Range<usize>,
    /// How these are made.
    pub(super) gradient_share: GradientShare,
    pub(super) statistics: Range<usize>,
    /// Where among its parameters the weights lie that its products read in bf16.
    rounded: Vec<Range<usize>>,
    /// Whether its kernel needs the labels of the samples.
    pub(super) reads_labels: bool,
    /// Whether gradients are in bf16.
    narrow_gradients: bool,
}

impl Chain {
    /// Chain number `index` of a blueprint.
    pub(super) fn new(of: &Blueprint<'_>, index: usize, threads: &Threads) -> Chain {
        let (plan, model): (_, &Model) = (&of.chains[index], &of.program.model);
        let head = model.node(plan.layers[0]);
        let work = if plan.samples == 0 {
            Work::Elsewhere
        } else if head.layer.is_loss() {
            let labels = head.labels().map_or(1, |labels| labels.elements() as usize);
            if let Some(loss) = linear_loss(head, threads) {
                Work::LinearLoss(loss, head.loss_weight)
            } else {
                let numbers = head.input_shapes[0].features() as usize;
                let loss = CrossEntropy::of_labels(&head.layer, numbers, plan.samples, labels);
                Work::Loss(loss, head.loss_weight)
            }
        } else {
            Work::Kernel(Kernel::new(&of.members(index), plan.samples, threads))
        };
        Chain {
            work,
            inputs: head.inputs.clone(),
            output: plan.layers[plan.layers.len() - 1],
            parameters: plan.parameters.clone(),
            gradients: plan.gradients.clone(),
            gradient_share: plan.gradient_share,
            statistics: plan.statistics.clone(),
            rounded: rounded_weights(of.program, &plan.layers),
            reads_labels: head.layer.rule().kind().reads_labels,
            narrow_gradients: of.program.dtype(Buffer::Gradients) == Dtype::Bf16,
        }
    }

    /// Elements of scratch in fp32 that a pass needs for its parameters and for their gradient, if it makes one.
    pub(super) fn scratch(&self, makes_gradient: bool) -> [usize; 2] {
        let weights = if self.rounded.is_empty() { 0 } else { self.parameters.len() };
        [weights, if makes_gradient && self.narrow_gradients { self.gradients.len() } else { 0 }]
    }

    /// Its parameters as its kernel reads them: `own`, or a copy in `scratch` in which weights of products are rounded.
    pub(super) fn weights<'a>(&self, own: &'a [f32], scratch: &'a mut [f32], threads: &Threads) -> &'a [f32] {
        if self.rounded.is_empty() {
            return own;
        }
        let mut start = 0;
        for weight in &self.rounded {
            scratch[start..weight.start].copy_from_slice(&own[start..weight.start]);
            round_tiles(&own[weight.clone()], &mut scratch[weight.clone()], threads);
            start = weight.end;
        }
        scratch[start..].copy_from_slice(&own[start..]);
        scratch
    }
}

/// Where among the parameters of a chain the weights lie that products read in bf16.
fn rounded_weights(program: &Program, layers: &[LayerId]) -> Vec<Range<usize>> {
    if program.precision.factor_dtype() != Dtype::Bf16 {
        return Vec::new();
    }
    let read = |id: &LayerId| program.model.parameters_read_by(*id);
    let first = layers.iter().flat_map(read).map(|parameter| parameter.range.start).min().unwrap_or(0);
    let multiplies = |id: &&LayerId| program.model.node(**id).product().is_some();
    let weights = layers.iter().filter(multiplies).filter_map(|id| read(id).first());
    weights.map(|weight| (weight.range.start - first) as usize..(weight.range.end - first) as usize).collect()
}

/// Elements of fp32 scratch of a pass over `samples` samples whose operands are stored in bf16, by piece: its inputs, its
/// output and their gradients, the weights, and their gradient.
pub(super) fn wide_elements(program: &Program, layers: &[LayerId], phase: Phase, samples: usize) -> Vec<usize> {
    if program.precision.activation_dtype() == Dtype::F32 {
        return Vec::new();
    }
    let model = &program.model;
    let (head, last) = (model.node(layers[0]), layers[layers.len() - 1]);
    let elements = |id: LayerId| match model.node(id).layer.is_loss() {
        true => 0,
        false => samples * model.node(id).output.elements() as usize,
    };
    let (forward, reads) = (phase.makes_outputs(), Reads::of(model, layers, phase));
    let mut pieces: Vec<usize> = head.inputs.iter().filter(|_| reads.input).map(|id| elements(*id)).collect();
    // The output forward; backward its gradient, and the output where it is read.
    pieces.push(elements(last));
    pieces.extend(reads.output.then(|| elements(last)));
    if matches!(phase, Phase::Backward | Phase::BackwardData) {
        let wanted = head.inputs.iter().filter(|id| **id != LayerId(0));
        pieces.extend(wanted.map(|id| elements(*id)));
    }
    let read = || layers.iter().flat_map(|id| model.parameters_read_by(*id));
    let parameters = || read().map(|of| of.elements() as usize).sum();
    if !rounded_weights(program, layers).is_empty() {
        pieces.push(parameters());
    }
    if !forward && phase != Phase::BackwardData && program.dtype(Buffer::Gradients) == Dtype::Bf16 {
        pieces.push(parameters());
    }
    pieces
}

/// The kernel of an output layer that is a loss; `None` of other layers.
pub(super) fn linear_loss(node: &Node, threads: &Threads) -> Option<LinearCrossEntropy> {
    let Layer::LinearCrossEntropy(layer) = &node.layer else { return None };
    let input = node.input_shapes[0];
    Some(LinearCrossEntropy::new(layer, input.features() as usize, input.places() as usize, threads))
}
