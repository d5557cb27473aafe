//! Defines the graph of one optimizer step: a node per layer pass or collective, an edge per tensor with its layout.
//!
//! A node is executed by the whole group of workers, so the graph does not grow with ranks or accumulation. A strategy
//! is a choice of layouts. A collective occurs exactly where a layout must change; [`Graph::check`] refuses anything
//! else, which proves that a strategy computes the gradient of the global batch.

mod names;
mod rules;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use lockstep_topology::Collective;
use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::{
    Averaging, Axis, AxisLayout, AxisSet, Buffer, Elementwise, Formula, LayerId, Layout, Mesh, Model, Optimizer, Pass,
    Stream,
};
use rules::{Operands, Rule, TensorLayout};
pub use table::{LayoutChange, LayoutRow};

/// The tensor of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// A layer's output.
    Activation(LayerId),
    /// The gradient of a layer's output.
    ActivationGradient(LayerId),
    /// The weights of a layer, as updated in the previous step.
    Weight,
    /// Weights as layers read them where each rank keeps a part, gathered into their own buffer.
    GatheredWeight,
    /// The gradient of weights.
    WeightGradient,
    /// The sum of the gradients of weights over the micro-batches so far.
    GradientSum,
    /// The sum of the squares of all gradients.
    SquareSum,
    /// The difference of a learner's weights from the average model, or the sum of the differences of several learners.
    Difference,
    /// The average model.
    Average,
    /// The reference model of a device.
    Reference,
    /// The average model, or the reference model of a device, as the learners of a device get it: in the place of their
    /// differences.
    Consensus,
}

impl Tensor {
    /// Whether layers read it as their weights.
    pub(crate) fn is_weights(self) -> bool {
        matches!(self, Tensor::Weight | Tensor::GatheredWeight)
    }

    /// The buffer that holds it, where that is one of a program's.
    pub(crate) fn buffer(self) -> Option<Buffer> {
        match self {
            Tensor::Activation(_) | Tensor::ActivationGradient(_) => None,
            Tensor::Weight => Some(Buffer::Parameters),
            Tensor::GatheredWeight => Some(Buffer::Weights),
            Tensor::WeightGradient => Some(Buffer::Gradients),
            Tensor::GradientSum => Some(Buffer::SUMS),
            Tensor::SquareSum => Some(Buffer::Norm),
            Tensor::Difference | Tensor::Consensus => Some(Averaging::DIFFERENCES),
            Tensor::Average => Some(Averaging::AVERAGE),
            Tensor::Reference => Some(Averaging::REFERENCE),
        }
    }
}

/// What a node does.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeWork {
    /// Takes samples from the input pool.
    Load,
    /// A layer's pass.
    Layer(LayerId, Pass),
    /// A layer's forward pass again: its output was dropped.
    Recompute(LayerId),
    /// A change of layout of an activation (forward) or of its gradient (backward): a gather's, or the input's.
    Relayout {
        /// The gather, or the input.
        layer: LayerId,
        /// Forward or backward-data.
        pass: Pass,
        /// The collective that changes it; `None` where every rank already has what it needs.
        collective: Option<Collective>,
        /// Along which axes.
        axes: AxisSet,
        /// Whether a forward pass runs again.
        again: bool,
    },
    /// A change of layout over a range of the gradient arena.
    Collective {
        /// Which.
        collective: Collective,
        /// Along which axes.
        axes: AxisSet,
        /// Elements of the gradient arena.
        range: Range<u64>,
    },
    /// The squares of gradients of a range, added to the sum of those of other ranges.
    SquareSum {
        /// Elements of the gradients.
        range: Range<u64>,
        /// The axes along which it is a partial sum.
        axes: AxisSet,
    },
    /// Arithmetic on a range of buffers, element by element.
    Elementwise {
        /// Range and formula.
        of: Elementwise,
        /// The stream: what touches no parameters may run beside the compute stream.
        stream: Stream,
    },
}

/// How often a node runs in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Once per micro-batch; gradients accumulate.
    MicroBatch,
    /// Once for each partial pass through split layers, between the micro-batch's forward and backward part.
    Pass,
    /// Once per step, after the last micro-batch has produced its input.
    Step,
    /// Once per step, before its first micro-batch.
    StepStart,
}

impl NodeWork {
    /// The layer's pass that it is, for the first time or again.
    pub(crate) fn layer_pass(&self) -> Option<(LayerId, Pass)> {
        match self {
            NodeWork::Layer(id, pass) => Some((*id, *pass)),
            NodeWork::Recompute(id) => Some((*id, Pass::Forward)),
            _ => None,
        }
    }

    /// For a node that changes a layout: by which collective (`None` where every rank already has what it needs), and
    /// along which axes.
    fn change(&self) -> Option<(Option<&Collective>, AxisSet)> {
        match self {
            NodeWork::Relayout { collective, axes, .. } => Some((collective.as_ref(), *axes)),
            NodeWork::Collective { collective, axes, .. } => Some((Some(collective), *axes)),
            _ => None,
        }
    }
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphNode {
    /// What it does.
    pub work: NodeWork,
    /// How often.
    pub scope: Scope,
}

/// A tensor passed from one node to another, in the layout in which it was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// Which tensor.
    pub tensor: Tensor,
    /// Its layout.
    pub layout: Layout,
    /// From the previous step (or repetition) rather than from this one.
    pub previous_step: bool,
}

/// One optimizer step of a group of workers.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Nodes in an order in which they can run; edges by tensor.
    pub dag: DiGraph<GraphNode, Edge>,
    /// The workers, over whose axes tensors are laid out.
    pub mesh: Mesh,
    /// By layer: its name and its operands.
    layers: Arc<[(String, Operands)]>,
}

/// A layout that no rule allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutError(pub String);

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LayoutError {}

impl Graph {
    /// A graph without nodes for the layers of `model` on the workers of `mesh`.
    pub fn new(model: &Model, mesh: Mesh) -> Graph {
        let shared = model.tie().map(|tie| [tie.owner, tie.reader]);
        let shares = |id| shared.is_some_and(|shared| shared.contains(&id));
        let operands = |id, node| Operands { shares: shares(id), ..Operands::of(node) };
        let layers = model.iter().map(|(id, node)| (node.name.clone(), operands(id, node))).collect();
        Graph { layers, mesh, ..Graph::default() }
    }

    /// Adds a node.
    pub fn node(&mut self, work: NodeWork, scope: Scope) -> NodeIndex {
        self.dag.add_node(GraphNode { work, scope })
    }

    /// Adds a step of momentum SGD on a range of the parameters; a job gives it its own rule.
    pub fn update(&mut self, range: Range<u64>, scope: Scope) -> NodeIndex {
        self.arithmetic(Optimizer::update(1.0, false), range, scope)
    }

    /// Adds a formula on a range of buffers, between passes.
    pub fn arithmetic(&mut self, formula: Formula, range: Range<u64>, scope: Scope) -> NodeIndex {
        let of = Elementwise::new(formula, range);
        self.node(NodeWork::Elementwise { of, stream: Stream::Compute }, scope)
    }

    /// Adds a tensor of this step.
    pub fn edge(&mut self, from: NodeIndex, to: NodeIndex, tensor: Tensor, layout: Layout) {
        self.dag.add_edge(from, to, Edge { tensor, layout, previous_step: false });
    }

    /// Adds the weights after the previous step's update.
    pub fn weights(&mut self, update: NodeIndex, to: NodeIndex, layout: Layout) {
        self.dag.add_edge(update, to, Edge { tensor: Tensor::Weight, layout, previous_step: true });
    }

    /// Adds a tensor of the step before, or of the repetition before.
    pub fn from_before(&mut self, from: NodeIndex, to: NodeIndex, tensor: Tensor, layout: Layout) {
        self.dag.add_edge(from, to, Edge { tensor, layout, previous_step: true });
    }

    /// The same graph with its nodes in another order, in which each is named once.
    pub(crate) fn reordered(&self, order: &[NodeIndex]) -> Graph {
        let mut dag = DiGraph::with_capacity(order.len(), self.dag.edge_count());
        let mut place = vec![NodeIndex::end(); order.len()];
        order.iter().for_each(|node| place[node.index()] = dag.add_node(self.dag[*node].clone()));
        for edge in self.dag.edge_references() {
            dag.add_edge(place[edge.source().index()], place[edge.target().index()], *edge.weight());
        }
        Graph { dag, mesh: self.mesh.clone(), layers: Arc::clone(&self.layers) }
    }

    /// Proves the layouts: on every axis some rule allows each node's inputs and outputs, collectives change a layout
    /// along their axes, and nothing else does.
    ///
    /// # Errors
    /// Names the node, the axis, the placements that fit no rule, and the transition that is missing.
    pub fn check(&self) -> Result<(), LayoutError> {
        let of_edges = self.dag.edge_weights().map(|edge| edge.layout.axes());
        let of_nodes = self.dag.node_weights().filter_map(|node| node.work.change()).map(|(_, axes)| axes);
        // On other axes ranks hold and do the same.
        let axes = of_edges.chain(of_nodes).fold(AxisSet::default(), AxisSet::or);
        if let Some(axis) = axes.iter().find(|axis| !self.mesh.axes().contains(*axis)) {
            return Err(LayoutError(format!(
                "a layout differs on axis {axis}, which the mesh ({}) does not have",
                self.mesh
            )));
        }
        for index in self.dag.node_indices() {
            let work = &self.dag[index].work;
            let (inputs, outputs) =
                (self.tensors_at(index, Direction::Incoming), self.tensors_at(index, Direction::Outgoing));
            for axis in axes.iter() {
                let rule = Rule { work, axis, operands: self.operands(work) };
                let [inputs, outputs] = [&inputs, &outputs].map(|tensors| placed(tensors, axis));
                if !rule.allows(&inputs, &outputs) {
                    return Err(self.refusal(rule, &inputs, &outputs));
                }
            }
            for edge in self.dag.edges(index).filter(|edge| !edge.weight().previous_step) {
                if edge.target() <= index {
                    return Err(self.out_of_order(edge.target(), index, edge.weight().tensor));
                }
            }
        }
        self.check_weights()
    }

    /// Proves that the gradient of a layer's weights is split as the weights are: a bucket may hold tensors with
    /// different layouts.
    fn check_weights(&self) -> Result<(), LayoutError> {
        let of_layer = |node: NodeIndex| match self.dag[node].work {
            NodeWork::Layer(id, _) | NodeWork::Recompute(id) => Some(id),
            _ => None,
        };
        let mut gradients: HashMap<LayerId, Layout> = HashMap::new();
        for edge in self.dag.edge_references().filter(|edge| edge.weight().tensor == Tensor::WeightGradient) {
            of_layer(edge.source()).map(|id| gradients.insert(id, edge.weight().layout));
        }
        for edge in self.dag.edge_references().filter(|edge| edge.weight().tensor.is_weights()) {
            let Some(id) = of_layer(edge.target()) else { continue };
            let Some(gradient) = gradients.get(&id) else { continue };
            let weights = edge.weight().layout;
            let split = |layout: Layout, axis| match layout.on(axis) {
                AxisLayout::Split(dimension) => Some(dimension),
                _ => None,
            };
            let mut axes = self.mesh.axes().iter();
            if let Some(axis) = axes.find(|axis| split(weights, *axis) != split(*gradient, *axis)) {
                return Err(LayoutError(format!(
                    "on axis {axis} the weights of {} are {}, and their gradient is {}",
                    self.layer_name(id),
                    weights.on(axis),
                    gradient.on(axis)
                )));
            }
        }
        Ok(())
    }

    /// Nodes are in the order in which ranks run them, so one takes tensors of this step from earlier ones alone.
    fn out_of_order(&self, node: NodeIndex, from: NodeIndex, tensor: Tensor) -> LayoutError {
        let [node, from] = [node, from].map(|index| self.work_name(&self.dag[index].work));
        LayoutError(format!(
            "{node} takes the {} of {from}, which is added after it: nodes are added in the order in which they run; for a tensor \
             of the step before use from_before or weights",
            self.tensor_name(tensor)
        ))
    }

    fn refusal(&self, rule: Rule<'_>, inputs: &[TensorLayout], outputs: &[TensorLayout]) -> LayoutError {
        let list = |items: &[TensorLayout]| {
            items
                .iter()
                .map(|(of, layout)| format!("{} {layout}", self.tensor_name(*of)))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let cure = match rule.missing(inputs, outputs) {
            Some((transition, tensor)) => format!("{transition} of {} is missing", self.tensor_name(tensor)),
            None => "a collective is needed where layouts differ".to_owned(),
        };
        let (takes, gives, axis) = (list(inputs), list(outputs), rule.axis);
        let work = self.work_name(rule.work);
        LayoutError(format!("on axis {axis} {work} takes [{takes}] and gives [{gives}]: no rule allows that; {cure}"))
    }

    fn operands(&self, work: &NodeWork) -> Option<&Operands> {
        let (id, _) = work.layer_pass()?;
        self.layers.get(id.index()).map(|(_, operands)| operands)
    }

    /// The tensors at a node in one direction with their layouts, each pair once.
    fn tensors_at(&self, node: NodeIndex, direction: Direction) -> Vec<(Tensor, Layout)> {
        let edges = self.dag.edges_directed(node, direction).map(|edge| (edge.weight().tensor, edge.weight().layout));
        let mut tensors = distinct(edges);
        tensors.reverse(); // petgraph lists the newest edge first
        tensors
    }
}

fn placed(tensors: &[(Tensor, Layout)], axis: Axis) -> Vec<TensorLayout> {
    distinct(tensors.iter().map(|(tensor, layout)| (*tensor, layout.on(axis))))
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = Vec::new();
    for item in items {
        if !list.contains(&item) {
            list.push(item);
        }
    }
    list
}
