//! Builds forward and backward passes of a rank that computes whole layers on its own samples.

use petgraph::graph::NodeIndex;

use crate::graph::{NodeWork, Scope, Tensor};
use crate::{Graph, LayerId, Layout, Model, Pass};

/// The nodes of one micro-batch, by layer.
pub(super) struct Passes {
    pub(super) forward: Vec<NodeIndex>,
    /// Parameter gradients, of layers that have parameters.
    pub(super) weight: Vec<Option<NodeIndex>>,
    /// Input gradients, where they are needed.
    pub(super) data: Vec<Option<NodeIndex>>,
}

impl Passes {
    /// All nodes that read the parameters of a layer.
    pub(super) fn readers(&self, id: LayerId) -> impl Iterator<Item = NodeIndex> {
        [Some(self.forward[id.index()]), self.data[id.index()]].into_iter().flatten()
    }
}

/// Adds load, forward and backward passes over activations with the layout `samples`.
pub(super) fn passes(graph: &mut Graph, model: &Model, samples: Layout) -> Passes {
    let layers = model.layers().len();
    let all = || (0..layers as u32).map(LayerId);

    let load = graph.node(NodeWork::Load, Scope::MicroBatch);
    let mut forward = vec![load; layers];
    for id in all().skip(1) {
        let node = graph.node(NodeWork::Layer(id, Pass::Forward), Scope::MicroBatch);
        for input in &model.node(id).inputs {
            graph.edge(forward[input.0 as usize], node, Tensor::Activation(*input), samples);
        }
        forward[id.0 as usize] = node;
    }

    // A loss is its own upstream: its backward pass starts from its own forward pass.
    let mut upstream: Vec<Vec<NodeIndex>> = vec![Vec::new(); layers];
    let (mut weight, mut data): (Vec<Option<NodeIndex>>, Vec<Option<NodeIndex>>) =
        (vec![None; layers], vec![None; layers]);
    for id in all().filter(|id| model.node(*id).layer.is_loss()) {
        upstream[id.index()].push(forward[id.index()]);
    }
    for id in all().skip(1).collect::<Vec<_>>().into_iter().rev() {
        let i = id.0 as usize;
        let node = model.node(id);
        let mut passes = Vec::new();
        // Parameter gradients first: their exchange overlaps the data gradient.
        if !node.parameters.is_empty() {
            passes.push(Pass::BackwardWeight);
        }
        if model.needs_input_gradient(id) {
            passes.push(Pass::BackwardData);
        }
        for pass in passes {
            let this = graph.node(NodeWork::Layer(id, pass), Scope::MicroBatch);
            for from in upstream[i].clone() {
                graph.edge(from, this, Tensor::ActivationGradient(id), samples);
            }
            for input in &node.inputs {
                graph.edge(forward[input.0 as usize], this, Tensor::Activation(*input), samples);
            }
            match pass {
                Pass::BackwardWeight => weight[i] = Some(this),
                _ => {
                    data[i] = Some(this);
                    node.inputs.iter().for_each(|input| upstream[input.0 as usize].push(this));
                }
            }
        }
        debug_assert!(!node.layer.is_input());
    }
    Passes { forward, weight, data }
}
