//! The graph of one optimizer step: a node per layer pass or collective, an edge per tensor with its layout.
//!
//! A node is done by the whole group of workers, so the graph does not grow with ranks or accumulation. A strategy is a
//! choice of layouts; collectives stand exactly where a layout must change, and [`Graph::check`] refuses anything else:
//! it is the proof that a strategy computes the gradient of the global batch.

use std::fmt;
use std::ops::Range;

use lockstep_topology::Collective;
use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::{AveragingRule, LayerId, Pass};

/// How a tensor lies over the ranks of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Every rank holds all of it.
    Replicated,
    /// Every rank holds its own samples.
    BatchSplit,
    /// Every rank holds its own features of every sample, or its own rows of a weight.
    FeatureSplit,
    /// The tensor is the sum of what the ranks hold.
    PartialSum,
    /// Every rank holds a version of its own, and none stands for the others.
    Own,
    /// The first rank of each node holds the samples of all of the node's ranks, the others hold nothing.
    NodeFirst,
    /// The ranks of a device hold one version, and devices hold others.
    OnDevice,
    /// The tensor is the sum of what devices hold, each counted once; the ranks of a device hold the same.
    DeviceSum,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Replicated => "replicated",
            Layout::BatchSplit => "batch-split",
            Layout::FeatureSplit => "feature-split",
            Layout::PartialSum => "partial-sum",
            Layout::Own => "own",
            Layout::NodeFirst => "node-first",
            Layout::OnDevice => "on-device",
            Layout::DeviceSum => "device-sum",
        })
    }
}

/// What an edge carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tensor {
    /// A layer's output.
    Activation(LayerId),
    /// The gradient of a layer's output.
    ActivationGradient(LayerId),
    /// The weights of a layer, as updated in the previous step.
    Weight,
    /// The gradient of weights.
    WeightGradient,
    /// What a learner's weights differ by from the average model, or the sum of that over learners.
    Difference,
    /// The average model.
    Average,
    /// The reference model of a device.
    Reference,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Takes samples from the input pool.
    Load,
    /// A layer's pass.
    Layer(LayerId, Pass),
    /// A change of layout of an activation (forward) or of its gradient (backward): a gather's, or the input's.
    Relayout {
        /// The gather, or the input.
        layer: LayerId,
        /// Forward or backward-data.
        pass: Pass,
        /// What changes it; `None` where every rank has what it takes already.
        collective: Option<Collective>,
    },
    /// A change of layout over a range of the gradient arena.
    Collective {
        /// Which.
        collective: Collective,
        /// Elements of the gradient arena.
        range: Range<u64>,
    },
    /// An allreduce among the ranks of each device.
    SumOnDevice {
        /// Elements of the gradient arena.
        range: Range<u64>,
    },
    /// The optimizer on a range of the parameter arena.
    Update {
        /// Elements.
        range: Range<u64>,
    },
    /// A rule of model averaging on a range of the parameter arena.
    Averaging {
        /// Which.
        rule: AveragingRule,
        /// Elements.
        range: Range<u64>,
    },
}

/// How often a node runs in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Once per micro-batch; gradients accumulate.
    MicroBatch,
    /// Once for each partial pass through split layers, between the micro-batch's forward and backward part.
    Pass,
    /// Once per step, after the last micro-batch has delivered its input.
    Step,
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it does.
    pub work: Work,
    /// How often.
    pub scope: Scope,
}

/// A tensor on its way from one node to another, in the layout in which it was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// Which tensor.
    pub tensor: Tensor,
    /// How it lies.
    pub layout: Layout,
    /// From the previous step (or repetition) rather than from this one.
    pub previous_step: bool,
}

/// One optimizer step of a group of workers.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Nodes in an order in which they can run; edges by tensor.
    pub dag: DiGraph<Node, Edge>,
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
    /// Adds a node.
    pub fn node(&mut self, work: Work, scope: Scope) -> NodeIndex {
        self.dag.add_node(Node { work, scope })
    }

    /// Adds a tensor of this step.
    pub fn edge(&mut self, from: NodeIndex, to: NodeIndex, tensor: Tensor, layout: Layout) {
        self.dag.add_edge(from, to, Edge { tensor, layout, previous_step: false });
    }

    /// Adds the weights that the previous step's update left.
    pub fn weights(&mut self, update: NodeIndex, to: NodeIndex, layout: Layout) {
        self.dag.add_edge(update, to, Edge { tensor: Tensor::Weight, layout, previous_step: true });
    }

    /// Adds a tensor of the step before, or of the repetition before.
    pub fn from_before(&mut self, from: NodeIndex, to: NodeIndex, tensor: Tensor, layout: Layout) {
        self.dag.add_edge(from, to, Edge { tensor, layout, previous_step: true });
    }

    /// Proves the layouts: every node takes and gives what one rule allows, collectives change a layout and nothing else does.
    ///
    /// # Errors
    /// Names the node and the layouts that fit no rule.
    pub fn check(&self) -> Result<(), LayoutError> {
        for index in self.dag.node_indices() {
            let node = &self.dag[index];
            let layouts = |direction| {
                let mut found: Vec<(Tensor, Layout)> = Vec::new();
                for edge in self.dag.edges_directed(index, direction) {
                    let item = (edge.weight().tensor, edge.weight().layout);
                    if !found.contains(&item) {
                        found.push(item);
                    }
                }
                found.reverse(); // petgraph lists the newest edge first
                found
            };
            let (inputs, outputs) = (layouts(Direction::Incoming), layouts(Direction::Outgoing));
            if !allowed(&node.work, &inputs, &outputs) {
                let list = |items: &[(Tensor, Layout)]| {
                    items.iter().map(|(t, l)| format!("{t:?} {l}")).collect::<Vec<_>>().join(", ")
                };
                return Err(LayoutError(format!(
                    "{:?} takes [{}] and gives [{}]: no rule allows that; a collective must stand where layouts differ",
                    node.work,
                    list(&inputs),
                    list(&outputs)
                )));
            }
            for edge in self.dag.edges(index).filter(|edge| !edge.weight().previous_step) {
                if edge.target() <= index {
                    return Err(LayoutError(format!("{:?} depends on a later node", self.dag[edge.target()].work)));
                }
            }
        }
        Ok(())
    }
}

/// The rules: for each kind of node, which layouts of inputs give which layouts of outputs.
fn allowed(work: &Work, inputs: &[(Tensor, Layout)], outputs: &[(Tensor, Layout)]) -> bool {
    use Layout::{BatchSplit, DeviceSum, FeatureSplit, NodeFirst, OnDevice, Own, PartialSum, Replicated};
    let all = |items: &[(Tensor, Layout)], layout| items.iter().all(|(_, l)| *l == layout);
    let (weights, data): (Vec<_>, Vec<_>) = inputs.iter().partition(|(t, _)| *t == Tensor::Weight);
    let (gradients, activations): (Vec<_>, Vec<_>) =
        data.iter().copied().partition(|(t, _)| matches!(t, Tensor::ActivationGradient(_)));
    // Where samples are split, or every rank has everything, each rank computes as if it were alone.
    let alone = |layout| all(&data, layout) && all(&weights, Replicated) && all(outputs, layout);
    // A learner's weights are nobody else's, and so are its samples.
    let learner = all(&data, BatchSplit) && all(&weights, Own) && all(outputs, BatchSplit);
    // What has no weights may run on the first rank of each node alone: the others have no part of the result to give.
    let first = weights.is_empty() && all(&data, NodeFirst) && all(outputs, NodeFirst);
    let split_weights = !weights.is_empty() && all(&weights, FeatureSplit);
    match work {
        Work::Load => {
            inputs.is_empty() && [BatchSplit, Replicated, NodeFirst].into_iter().any(|layout| all(outputs, layout))
        }
        Work::Layer(_, Pass::BackwardWeight) => {
            // Σ over the batch of xᵀ·dy: split samples leave a partial sum, split features of dy leave split rows.
            // A gradient at weights that nobody shares is nobody else's.
            let own = !weights.is_empty() && all(&weights, Own);
            let whole_or_split = all(&activations, Replicated) || all(&activations, FeatureSplit);
            (all(&data, BatchSplit) && weights.is_empty() && all(outputs, PartialSum))
                || (all(&data, BatchSplit) && own && all(outputs, Own))
                || (all(&gradients, FeatureSplit) && whole_or_split && all(outputs, FeatureSplit))
                || alone(Replicated)
        }
        Work::Layer(_, Pass::BackwardData) => {
            // Split rows of W make of their own features of dy one part of dx each; without weights dx is linear in dy, so that
            // a partial sum stays one where every rank has the same x.
            let own = all(&data, FeatureSplit) && all(&weights, FeatureSplit) && all(outputs, FeatureSplit);
            let parts = split_weights && all(&gradients, FeatureSplit);
            let passed_on = weights.is_empty() && all(&gradients, PartialSum);
            alone(BatchSplit)
                || alone(Replicated)
                || learner
                || first
                || own
                || ((parts || passed_on) && all(&activations, Replicated) && all(outputs, PartialSum))
        }
        Work::Layer(..) => {
            // y = W·x: with split rows the whole x gives split features; channel by channel split features stay split.
            let rows = split_weights && all(&data, Replicated) && all(outputs, FeatureSplit);
            let own = all(&data, FeatureSplit) && all(&weights, FeatureSplit) && all(outputs, FeatureSplit);
            // A loss hands its gradient on as it lies.
            alone(BatchSplit) || alone(Replicated) || learner || first || rows || own
        }
        // The root of a node's group is its first rank.
        Work::Relayout { collective: Some(Collective::Gather { root: 0 }), .. } => {
            all(inputs, BatchSplit) && all(outputs, NodeFirst)
        }
        Work::Relayout { collective: Some(Collective::Scatter { root: 0 }), .. } => {
            all(inputs, NodeFirst) && all(outputs, BatchSplit)
        }
        Work::Relayout { pass: Pass::Forward, collective, .. } => {
            let split = all(inputs, BatchSplit) || all(inputs, FeatureSplit);
            *collective == Some(Collective::AllGather) && split && all(outputs, Replicated)
        }
        Work::Relayout { collective, .. } => match collective {
            Some(Collective::ReduceScatter) => {
                all(inputs, PartialSum) && (all(outputs, FeatureSplit) || all(outputs, BatchSplit))
            }
            // Everybody has all of it, and so its own features.
            None => all(inputs, Replicated) && all(outputs, FeatureSplit),
            _ => false,
        },
        Work::Collective { collective, .. } => match collective {
            Collective::AllReduce => all(inputs, PartialSum) && all(outputs, Replicated),
            Collective::AllReduceOfNodes => all(inputs, DeviceSum) && all(outputs, Replicated),
            Collective::ReduceScatter => all(inputs, PartialSum) && all(outputs, FeatureSplit),
            Collective::AllGather => all(inputs, FeatureSplit) && all(outputs, Replicated),
            _ => false,
        },
        Work::SumOnDevice { .. } => all(inputs, PartialSum) && all(outputs, DeviceSum),
        Work::Update { .. } => {
            let layout = outputs.first().map_or(Replicated, |(_, l)| *l);
            matches!(layout, Replicated | FeatureSplit) && all(inputs, layout) && all(outputs, layout)
        }
        Work::Averaging { rule, .. } => match rule {
            AveragingRule::Descend => all(inputs, Own) && all(outputs, Own),
            // Only the average model is common to all, or to a device its reference, and only differences from them may be
            // added up.
            AveragingRule::Correct => {
                inputs.iter().all(|(t, l)| match t {
                    Tensor::Average => *l == Replicated,
                    Tensor::Reference => *l == OnDevice,
                    _ => *l == Own,
                }) && outputs.iter().all(|(t, l)| *l == if *t == Tensor::Difference { PartialSum } else { Own })
            }
            // What a device hands on to the others is the difference of its reference, and no longer those of its learners.
            AveragingRule::Reference => {
                let layout = |tensor: &Tensor| match tensor {
                    Tensor::Average => Replicated,
                    Tensor::Difference => DeviceSum,
                    _ => OnDevice,
                };
                inputs.iter().chain(outputs).all(|(t, l)| *l == layout(t))
                    && [Tensor::Difference, Tensor::Average].iter().all(|t| inputs.iter().any(|(other, _)| other == t))
            }
            AveragingRule::Average => all(inputs, Replicated) && all(outputs, Replicated),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(gradient: Layout, collective: Option<Collective>) -> Graph {
        let mut graph = Graph::default();
        let load = graph.node(Work::Load, Scope::MicroBatch);
        let weight = graph.node(Work::Layer(LayerId(1), Pass::BackwardWeight), Scope::MicroBatch);
        graph.edge(load, weight, Tensor::Activation(LayerId(0)), Layout::BatchSplit);
        let mut last = weight;
        let mut layout = gradient;
        if let Some(collective) = collective {
            last = graph.node(Work::Collective { collective, range: 0..8 }, Scope::Step);
            graph.edge(weight, last, Tensor::WeightGradient, layout);
            layout = Layout::Replicated;
        }
        let update = graph.node(Work::Update { range: 0..8 }, Scope::Step);
        graph.edge(last, update, Tensor::WeightGradient, layout);
        graph
    }

    #[test]
    fn a_collective_stands_exactly_where_layouts_differ() {
        assert_eq!(step(Layout::PartialSum, Some(Collective::AllReduce)).check(), Ok(()));
        // Without the allreduce each rank would update with its own part.
        assert!(step(Layout::PartialSum, None).check().is_err());
        // Claiming that split samples give the whole gradient is refused.
        assert!(step(Layout::Replicated, None).check().is_err());
        // An allreduce of what is replicated already would count it k times.
        assert!(step(Layout::Replicated, Some(Collective::AllReduce)).check().is_err());
        assert!(step(Layout::PartialSum, Some(Collective::AllGather)).check().is_err());
    }
}
