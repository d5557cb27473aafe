//! Lists the layouts of a step's tensors, and what changes them: a strategy as a table of layouts.

use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::{Graph, Tensor};
use crate::{AxisSet, LayerId, Layout, Pass};

/// Tensors of one kind in one layout, and what becomes of them.
///
/// ```
/// # use std::sync::Arc;
/// # use lockstep_models::{Job, random_model};
/// let job = Job::new(Arc::new(random_model(7, false)), 4, 8);
/// let (graph, _) = job.graph().unwrap();
/// let table = graph.table();
/// let summed = table.iter().find(|row| row.change.is_some()).unwrap();
/// assert_eq!((summed.tensor, summed.layout.to_string().as_str()), ("weight gradient", "data: partial"));
/// let change = summed.change.as_ref().unwrap();
/// assert_eq!((change.by, change.to.to_string().as_str()), (Some("allreduce"), "replicated"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutRow {
    /// `activation`, `weight gradient` …
    pub tensor: &'static str,
    /// Their layout.
    pub layout: Layout,
    /// What changes it; `None` where layers and updates take the tensor as it is.
    pub change: Option<LayoutChange>,
    /// The layers whose tensors these are, in ascending order.
    pub layers: Vec<LayerId>,
    /// How many nodes of the graph change them.
    pub changes: u32,
    /// Why it changes: the passes of layers that read the layout afterwards, in ascending order of the layers; none where
    /// an update or the next change reads it.
    pub needed_by: Vec<(LayerId, Pass)>,
}

/// A change of a tensor's layout.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutChange {
    /// The collective; `None` where every rank already has what it takes.
    pub by: Option<&'static str>,
    /// Along which axes.
    pub axes: AxisSet,
    /// The layout afterwards.
    pub to: Layout,
}

impl Tensor {
    /// Its name in tables.
    fn kind(self) -> &'static str {
        match self {
            Tensor::Activation(_) => "activation",
            Tensor::ActivationGradient(_) => "activation gradient",
            Tensor::Weight => "weight",
            Tensor::GatheredWeight => "gathered weight",
            Tensor::WeightGradient => "weight gradient",
            Tensor::GradientSum => "sum of weight gradients",
            Tensor::SquareSum => "sum of squares of gradients",
            Tensor::Difference => "difference",
            Tensor::Average => "average model",
            Tensor::Reference => "reference model",
            Tensor::Consensus => "delivered model",
        }
    }
}

impl Graph {
    /// One row for each kind of tensor, layout and change, in order of first occurrence in a step.
    pub fn table(&self) -> Vec<LayoutRow> {
        let mut rows: Vec<LayoutRow> = Vec::new();
        for node in self.dag.node_indices() {
            let mut changed: Vec<usize> = Vec::new();
            let mut edges: Vec<_> = self.dag.edges_directed(node, Direction::Incoming).collect();
            edges.reverse(); // petgraph lists the newest edge first
            for edge in edges {
                let tensor = edge.weight().tensor;
                let of = |node: NodeIndex| match (tensor, &self.dag[node].work) {
                    (Tensor::Activation(id) | Tensor::ActivationGradient(id), _) => Some(id),
                    (_, work) => work.layer_pass().map(|(id, _)| id),
                };
                let (kind, layout, change) =
                    (tensor.kind(), edge.weight().layout, self.change_at(node, edge.weight().layout));
                let same = |row: &LayoutRow| (row.tensor, row.layout, &row.change) == (kind, layout, &change);
                let at = rows.iter().position(same).unwrap_or_else(|| {
                    let (layers, needed_by) = (Vec::new(), Vec::new());
                    rows.push(LayoutRow { tensor: kind, layout, change, layers, changes: 0, needed_by });
                    rows.len() - 1
                });
                rows[at].layers.extend(of(edge.source()).or_else(|| of(node)));
                if rows[at].change.is_some() && !changed.contains(&at) {
                    changed.push(at);
                    rows[at].changes += 1;
                    let readers = self.dag.neighbors(node);
                    rows[at].needed_by.extend(readers.filter_map(|reader| self.dag[reader].work.layer_pass()));
                }
            }
        }
        for row in &mut rows {
            row.layers.sort_unstable();
            row.layers.dedup();
            row.needed_by.sort_unstable();
            row.needed_by.dedup();
        }
        rows
    }

    /// What a node changes this layout of an input to, if it does.
    fn change_at(&self, node: NodeIndex, layout: Layout) -> Option<LayoutChange> {
        let (collective, axes) = self.dag[node].work.change().filter(|(_, axes)| !axes.is_empty())?;
        // Tensors of a bucket may have several layouts on the other axes, where each keeps its own.
        let follows =
            |to: &Layout| self.mesh.axes().iter().all(|axis| axes.contains(axis) || to.on(axis) == layout.on(axis));
        let to = self.dag.edges(node).map(|edge| edge.weight().layout).find(follows)?;
        Some(LayoutChange { by: collective.map(|collective| collective.name()), axes, to })
    }
}
