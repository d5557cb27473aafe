//! Builds forward and backward passes: a node per layer, and where layers are split a node per change of layout between
//! them.

use lockstep_topology::{Collective, InputError};
use petgraph::graph::NodeIndex;

use super::again::Again;
use crate::graph::{NodeWork, Scope, Tensor};
use crate::model::NODE_FIRST;
use crate::tensor::transition;
use crate::{AxisSet, Graph, Job, LayerId, Layout, Model, Pass, PassRanks, Recompute, Sharding, Tie};

/// The nodes of one micro-batch, by layer.
pub(super) struct Passes {
    pub(super) forward: Vec<NodeIndex>,
    /// Parameter gradients, of layers that have parameters.
    pub(super) weight: Vec<Option<NodeIndex>>,
    /// Input gradients, where they are needed.
    pub(super) data: Vec<Option<NodeIndex>>,
    /// Forward passes that run again before backward passes.
    pub(super) again: Vec<Option<NodeIndex>>,
    tie: Option<Tie>,
}

impl Passes {
    /// The layers that read the parameters of a layer: itself, and one that is tied to it.
    pub(super) fn sharers(&self, id: LayerId) -> impl Iterator<Item = LayerId> + use<> {
        let tied = self.tie.filter(|tie| tie.owner == id).map(|tie| tie.reader);
        std::iter::once(id).chain(tied)
    }

    /// All nodes that read the parameters of a layer.
    pub(super) fn readers(&self, id: LayerId) -> impl Iterator<Item = NodeIndex> {
        self.sharers(id).flat_map(|id| self.own_readers(id))
    }

    /// The nodes of a layer that read parameters.
    pub(super) fn own_readers(&self, id: LayerId) -> impl Iterator<Item = NodeIndex> + use<> {
        [Some(self.forward[id.index()]), self.again[id.index()], self.data[id.index()]].into_iter().flatten()
    }

    /// The nodes of a layer that read parameters for backward passes.
    pub(super) fn backward_readers(&self, id: LayerId) -> impl Iterator<Item = NodeIndex> + use<> {
        [self.again[id.index()], self.data[id.index()]].into_iter().flatten()
    }

    /// All nodes that make a summand of the gradient of a layer's parameters.
    pub(super) fn makers(&self, id: LayerId) -> impl Iterator<Item = NodeIndex> {
        self.sharers(id).filter_map(|id| self.weight[id.index()])
    }
}

/// Adds load, forward and backward passes of whole layers over activations with the layout `samples`.
///
/// # Errors
/// As [`Again::of`].
pub(super) fn passes(graph: &mut Graph, job: &Job, samples: Layout) -> Result<Passes, InputError> {
    let model = &job.model;
    Ok(Builder::new(graph, model, Split::Samples(samples), Again::of(job, model)?).build())
}

/// Adds load, forward and backward passes of a rank's part of each layer.
///
/// # Errors
/// As [`Again::of`].
pub(super) fn passes_of_parts(
    graph: &mut Graph,
    job: &Job,
    model: &Model,
    sharding: &Sharding,
) -> Result<Passes, InputError> {
    let several = !sharding.in_all_passes() || sharding.pass_ranks == PassRanks::FirstOfNode;
    if several && job.recompute != Recompute::None {
        let (strategy, recompute) = (&job.strategy, job.recompute.to_string());
        let message = format!(
            "does not serve {strategy}, which runs layers in several passes: leave it out, or use a strategy with one, such as ssgd or megatron"
        );
        return Err(InputError::flag("recompute", recompute, message));
    }
    Ok(Builder::new(graph, model, Split::Layers(sharding), Again::of(job, model)?).build())
}

/// What is split.
#[derive(Clone, Copy)]
enum Split<'a> {
    /// Samples alone: all activations have this layout.
    Samples(Layout),
    /// Layers too.
    Layers(&'a Sharding),
}

struct Builder<'a> {
    graph: &'a mut Graph,
    model: &'a Model,
    split: Split<'a>,
    passes: Passes,
    /// By layer: the nodes that make the gradient of its output.
    upstream: Vec<Vec<NodeIndex>>,
    /// What runs again.
    again: Again,
    /// By layer: the node that made its output last.
    made: Vec<NodeIndex>,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a mut Graph, model: &'a Model, split: Split<'a>, of: Again) -> Builder<'a> {
        let layers = model.layers().len();
        let [weight, data, again] = [(); 3].map(|()| vec![None; layers]);
        let passes = Passes { forward: Vec::new(), weight, data, again, tie: model.tie() };
        Builder { graph, model, split, passes, upstream: vec![Vec::new(); layers], again: of, made: Vec::new() }
    }

    fn build(mut self) -> Passes {
        self.forward_passes();
        (1..self.model.layers().len() as u32).rev().for_each(|id| self.backward_passes(LayerId(id)));
        self.passes
    }

    fn scope(&self, id: LayerId) -> Scope {
        match self.split {
            Split::Layers(sharding) if sharding.in_passes(id) => Scope::Pass,
            _ => Scope::MicroBatch,
        }
    }

    /// The layouts of a layer's output and of the gradient of its output.
    fn layouts(&self, id: LayerId) -> [Layout; 2] {
        match self.split {
            Split::Samples(samples) => [samples; 2],
            Split::Layers(sharding) => [sharding.layers[id.index()].output, sharding.layers[id.index()].gradient],
        }
    }

    /// The change of layout that a layer is, if it computes nothing: of its input's output, or of the gradient of its own.
    fn relayout(&self, layer: LayerId, pass: Pass, again: bool) -> Option<NodeWork> {
        let Split::Layers(sharding) = self.split else { return None };
        let (from, to) = sharding.change(self.model, layer, pass)?;
        let stays = from == to;
        let collective = transition(from, to).flatten();
        let axes = if stays { AxisSet::default() } else { AxisSet::of(&[sharding.axis]) };
        Some(NodeWork::Relayout { layer, pass, collective, axes, again })
    }

    /// An edge for each input's output.
    fn take_inputs(&mut self, id: LayerId, node: NodeIndex) {
        for input in &self.model.node(id).inputs {
            let [output, _] = self.layouts(*input);
            self.graph.edge(self.made[input.index()], node, Tensor::Activation(*input), output);
        }
    }

    /// Runs a group's layers again, where they have not, after those of other groups whose outputs they read.
    fn run_again(&mut self, group: usize) {
        for id in std::mem::take(&mut self.again.groups[group]) {
            for input in &self.model.node(id).inputs {
                self.again.group_of[input.index()].into_iter().for_each(|other| self.run_again(other));
            }
            let work = self.relayout(id, Pass::Forward, true).unwrap_or(NodeWork::Recompute(id));
            let node = self.graph.node(work, self.scope(id));
            self.take_inputs(id, node);
            self.passes.again[id.index()] = Some(node);
            self.made[id.index()] = node;
        }
    }

    /// Loads samples; where the first rank of a node does so, it scatters them.
    fn load(&mut self) -> NodeIndex {
        let load = self.graph.node(NodeWork::Load, Scope::MicroBatch);
        let Split::Layers(Sharding { axis, pass_ranks: PassRanks::FirstOfNode, .. }) = self.split else { return load };
        let (layer, collective) = (LayerId(0), Some(Collective::Scatter { root: 0 }));
        let scatter =
            NodeWork::Relayout { layer, pass: Pass::Forward, collective, axes: AxisSet::of(&[*axis]), again: false };
        let scatter = self.graph.node(scatter, Scope::MicroBatch);
        self.graph.edge(load, scatter, Tensor::Activation(layer), NODE_FIRST);
        scatter
    }

    fn forward_passes(&mut self) {
        let input = self.load();
        self.passes.forward.push(input);
        self.made.push(input);
        for id in (1..self.model.layers().len() as u32).map(LayerId) {
            let work = self.relayout(id, Pass::Forward, false).unwrap_or(NodeWork::Layer(id, Pass::Forward));
            let node = self.graph.node(work, self.scope(id));
            self.take_inputs(id, node);
            self.passes.forward.push(node);
            self.made.push(node);
            if self.model.node(id).layer.is_loss() {
                // A loss is its own upstream: its backward pass starts from its own forward pass.
                self.upstream[id.index()].push(node);
            }
        }
    }

    fn backward_passes(&mut self, id: LayerId) {
        let node = self.model.node(id);
        let mut works = Vec::new();
        // Parameter gradients first: their exchange overlaps the data gradient.
        if !self.model.parameters_read_by(id).is_empty() {
            works.push((Pass::BackwardWeight, NodeWork::Layer(id, Pass::BackwardWeight)));
        }
        if self.model.needs_input_gradient(id) {
            let pass = Pass::BackwardData;
            works.push((pass, self.relayout(id, pass, false).unwrap_or(NodeWork::Layer(id, pass))));
        }
        if !works.is_empty() {
            std::mem::take(&mut self.again.before[id.index()]).into_iter().for_each(|group| self.run_again(group));
        }
        let [_, gradient] = self.layouts(id);
        for (pass, work) in works {
            let computes = matches!(work, NodeWork::Layer(..));
            let this = self.graph.node(work, self.scope(id));
            for from in self.upstream[id.index()].clone() {
                self.graph.edge(from, this, Tensor::ActivationGradient(id), gradient);
            }
            if computes {
                self.take_inputs(id, this);
            }
            if pass == Pass::BackwardWeight {
                self.passes.weight[id.index()] = Some(this);
            } else {
                self.passes.data[id.index()] = Some(this);
                node.inputs.iter().for_each(|input| self.upstream[input.index()].push(this));
            }
        }
    }
}
