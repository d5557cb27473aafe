//! Clips gradients by their global norm (Pascanu et al. 2013, "On the difficulty of training recurrent neural networks",
//! Alg. 1): each rank sums the squares of its own elements, ranks add their sums, and updates multiply the gradient by the
//! coefficient that follows.
//!
//! Sums are exact (`SquareSum`), so it does not matter who holds what. Along an axis on which a strategy splits no
//! gradient, all ranks have all sums and exchange nothing; the stages of a pipeline have the gradients of their own layers.

use std::collections::BTreeSet;

use lockstep_topology::{Collective, InputError};
use petgraph::Direction;
use petgraph::graph::{EdgeReference, NodeIndex};
use petgraph::visit::EdgeRef;

use super::{Job, Shard};
use crate::graph::{Edge, GraphNode, NodeWork, Scope, Tensor};
use crate::{Axis, AxisLayout, AxisSet, Graph, Layout, PassRanks, SquareSum};

impl Job {
    /// The graph with gradients clipped, where the job clips them.
    ///
    /// # Errors
    /// A strategy whose ranks train models of their own, or update layers before all gradients are known.
    pub(crate) fn clipped(&self, graph: Graph, shard: Option<&Shard>) -> Result<Graph, InputError> {
        if !self.clips {
            return Ok(graph);
        }
        let refused = |why: &str| {
            let message = format!("gradients of {} are not clipped: {why}, or leave clip_norm out", self.layout_name());
            Err(InputError::flag("clip_norm", "", message))
        };
        if self.strategy.trains_apart() {
            return refused("each learner has its own; use ssgd or zero-1 to zero-3");
        }
        let by_node = shard.is_some_and(|(_, sharding)| sharding.pass_ranks == PassRanks::FirstOfNode);
        if by_node {
            return refused("the ranks of a node share gradients; use ssgd");
        }
        let updates: Vec<NodeIndex> = graph.dag.node_indices().filter(|node| is_update(&graph.dag[*node])).collect();
        if updates.iter().any(|node| graph.dag[*node].scope != Scope::Step) {
            return refused("layers are updated before the norm is known; use the strategy without variable-batch");
        }
        let stages =
            if graph.mesh.size(Axis::Pipeline) > 1 { AxisSet::of(&[Axis::Pipeline]) } else { AxisSet::default() };
        let axes = split_axes(&graph, &updates).or(stages);
        if self.servers() > 0 && !axes.is_empty() {
            return refused("dedicated servers have no place for sums of squares; use ring");
        }
        Ok(clipped(graph, &updates, axes))
    }
}

/// The axes along which ranks have parts of gradients.
fn split_axes(graph: &Graph, updates: &[NodeIndex]) -> AxisSet {
    let split = |layout: Layout| layout.axes_where(|on| matches!(on, AxisLayout::Split(_)));
    gradients(graph, updates).fold(AxisSet::default(), |axes, (_, _, layout)| axes.or(split(layout)))
}

fn is_update(node: &GraphNode) -> bool {
    matches!(&node.work, NodeWork::Elementwise { of, .. } if of.formula.is_update())
}

/// Inserts the sums of squares in the places of the updates, the sum over ranks before the first update, and the updates
/// behind it, followed by what takes the weights that they make.
fn clipped(mut graph: Graph, updates: &[NodeIndex], axes: AxisSet) -> Graph {
    let before: Vec<NodeIndex> = graph.dag.node_indices().collect();
    let mut sums = Vec::new();
    for update in updates {
        let NodeWork::Elementwise { of, .. } = &graph.dag[*update].work else { continue };
        let (range, made) = (of.range.clone(), gradients(&graph, &[*update]).collect::<Vec<_>>());
        let sum = graph.node(NodeWork::SquareSum { range, axes }, Scope::Step);
        made.into_iter().for_each(|(from, tensor, layout)| graph.edge(from, sum, tensor, layout));
        sums.push(sum);
    }
    let known = if axes.is_empty() {
        sums.clone()
    } else {
        let collective = Collective::AllReduce;
        let reduce = graph.node(NodeWork::Collective { collective, axes, range: 0..SquareSum::ELEMENTS }, Scope::Step);
        let partial = Layout::new(axes, AxisLayout::Partial);
        sums.iter().for_each(|sum| graph.edge(*sum, reduce, Tensor::SquareSum, partial));
        vec![reduce]
    };
    for update in updates {
        known.iter().for_each(|from| graph.edge(*from, *update, Tensor::SquareSum, Layout::REPLICATED));
    }
    let Some((first, last)) = updates.first().zip(updates.last()) else { return graph };
    let mut order: Vec<NodeIndex> = before.iter().copied().filter(|node| node < first).collect();
    let behind = behind(&graph, &before, updates);
    let between = before.iter().filter(|node| *first <= **node && *node <= last);
    for node in between.clone().filter(|node| !behind.contains(node)) {
        let at = updates.iter().position(|update| update == node);
        order.push(at.map_or(*node, |at| sums[at]));
    }
    order.extend(known.iter().filter(|node| !sums.contains(node)));
    order.extend(updates);
    order.extend(between.filter(|node| behind.contains(node)));
    order.extend(before.iter().filter(|node| *node > last));
    graph.reordered(&order)
}

/// The nodes among `all`, which are in order, that take what an update makes in the same step, or what such a node makes.
fn behind(graph: &Graph, all: &[NodeIndex], updates: &[NodeIndex]) -> BTreeSet<NodeIndex> {
    let mut behind = BTreeSet::new();
    for node in all {
        let mut edges = graph.dag.edges_directed(*node, Direction::Incoming);
        let takes = |edge: EdgeReference<'_, Edge>| {
            !edge.weight().previous_step && (updates.contains(&edge.source()) || behind.contains(&edge.source()))
        };
        if edges.any(takes) {
            behind.insert(*node);
        }
    }
    behind
}

/// The gradients that updates take: who makes them, and their layouts.
fn gradients<'g>(graph: &'g Graph, updates: &'g [NodeIndex]) -> impl Iterator<Item = (NodeIndex, Tensor, Layout)> + 'g {
    let edges = updates.iter().flat_map(|update| graph.dag.edges_directed(*update, Direction::Incoming));
    let of = |edge: EdgeReference<'g, Edge>| {
        let of = edge.weight();
        let is_gradient = matches!(of.tensor, Tensor::WeightGradient | Tensor::GradientSum);
        (is_gradient && !of.previous_step).then(|| (edge.source(), of.tensor, of.layout))
    };
    edges.filter_map(of)
}
