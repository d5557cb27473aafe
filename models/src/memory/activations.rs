//! The tensors of a micro-batch that come and go: which tasks write and read each, in the order of the role's tasks.
//!
//! What lies inside a fused chain is never stored. A backward pass needs the chain's input where it makes parameter
//! gradients or normalises, its output where a ReLU cut it off or a slope follows from it, of a max pooling which place was
//! the largest, and of a dropout what it kept.

use crate::{Layer, LayerId, Model, Op, Phase, PoolKind, Program, Role};

use super::ELEMENT_BYTES;

/// A piece of memory with its first and last use, as positions of tasks in their role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// `conv1`, `conv1 gradient`, `pool1 places`.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The task that writes it first.
    pub first: usize,
    /// The task that uses it last.
    pub last: usize,
}

/// Where the tasks of a chain stand in their role.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    forward: Option<usize>,
    /// The first task that makes the gradient of the chain's inputs.
    data: Option<usize>,
    /// The last backward task.
    backward: Option<usize>,
    samples: u32,
}

/// The activations of one micro-batch and their gradients; input and parameters are not among them.
pub fn activations(program: &Program, role: &Role) -> Vec<Tensor> {
    let model = &program.model;
    let mut places = vec![Place::default(); program.chains.len()];
    for (position, task) in role.tasks.iter().enumerate() {
        let Op::Compute { chain, phase, samples } = task.op else { continue };
        let place = &mut places[chain];
        place.samples = samples;
        match phase {
            Phase::Forward => place.forward = Some(position),
            _ => place.backward = Some(position),
        }
        if matches!(phase, Phase::BackwardData | Phase::Backward) {
            place.data.get_or_insert(position);
        }
    }
    let mut chain_of = vec![None; model.layers().len()];
    for (chain, layers) in program.chains.iter().enumerate() {
        layers.iter().for_each(|id| chain_of[id.index()] = Some(chain));
    }
    let mut tensors = Vec::new();
    for (layers, place) in program.chains.iter().zip(&places) {
        let (Some(forward), Some(last)) = (place.forward, layers.last()) else { continue };
        let node = model.node(*last);
        let bytes = |elements: u64| u64::from(place.samples) * elements * ELEMENT_BYTES;
        let consumers = || model.consumers(*last).iter().filter_map(|id| chain_of[id.index()]);
        let mut uses = vec![forward];
        uses.extend(consumers().filter_map(|consumer| places[consumer].forward));
        let keeps_input = |chain: &usize| needs_input(model, &program.chains[*chain]);
        uses.extend(consumers().filter(keeps_input).filter_map(|consumer| places[consumer].backward));
        if needs_output(model, layers) {
            uses.extend(place.backward);
        }
        let end = uses.into_iter().max().unwrap_or(forward);
        // The loss gives a number and keeps its probabilities, which are as large as its input.
        let size = match node.layer {
            Layer::SoftmaxCrossEntropy | Layer::LogisticCrossEntropy => {
                node.input_shapes.iter().map(|shape| shape.elements()).sum()
            }
            _ => node.output.elements(),
        };
        tensors.push(Tensor { name: node.name.clone(), bytes: bytes(size), first: forward, last: end });
        for id in layers.iter().filter(|id| is_max_pool(&model.node(**id).layer)) {
            let pool = model.node(*id);
            if let Some(last) = place.backward {
                let (name, bytes) = (format!("{} places", pool.name), bytes(pool.output.elements()));
                tensors.push(Tensor { name, bytes, first: forward, last });
            }
        }
        if let (Layer::Dropout(_), Some(last)) = (&node.layer, place.backward) {
            // A byte an element.
            let (name, bytes) = (format!("{} mask", node.name), bytes(node.output.elements()) / ELEMENT_BYTES);
            tensors.push(Tensor { name, bytes, first: forward, last });
        }
        let written = consumers().filter_map(|consumer| places[consumer].data).min();
        if let (Some(first), Some(last)) = (written, place.backward) {
            let name = format!("{} gradient", node.name);
            tensors.push(Tensor { name, bytes: bytes(node.output.elements()), first, last: last.max(first) });
        }
    }
    tensors
}

fn is_max_pool(layer: &Layer) -> bool {
    matches!(layer, Layer::Pool2d(pool) if pool.kind == PoolKind::Max)
}

/// Whether a chain's backward pass reads what its forward pass read.
fn needs_input(model: &Model, layers: &[LayerId]) -> bool {
    let reads = |id: &LayerId| {
        let layer = &model.node(*id).layer;
        matches!(layer, Layer::Conv2d(_) | Layer::Dense(_) | Layer::BatchNorm(_))
            || matches!(layer, Layer::Scale(_) | Layer::LocalResponseNorm(_))
    };
    // A flattened input is the same memory as its dense layer's.
    layers.iter().find(|id| model.node(**id).layer != Layer::Flatten).is_some_and(reads)
}

/// Whether it reads what its forward pass wrote.
fn needs_output(model: &Model, layers: &[LayerId]) -> bool {
    let reads = |id: &LayerId| match model.node(*id).layer {
        Layer::Relu | Layer::Sigmoid | Layer::Tanh | Layer::LocalResponseNorm(_) => true,
        ref layer => layer.is_loss(),
    };
    layers.iter().any(reads)
}
