//! ZeRO, stage 1: synchronous data-parallel SGD whose optimizer state is shared out (Rajbhandari et al. 2020 §5.1).
//!
//! A bucket's gradients are reduce-scattered, each rank updates the part of the parameters for which it keeps the momentum, and the parts
//! are gathered before the next step. Gathers come in forward order, so that the next step begins while they go on.

use petgraph::graph::NodeIndex;

use lockstep_topology::{Collective, InputError};

use super::buckets::{Cut, cuts};
use super::data_parallel::{Passes, passes};
use super::{Plan, Shard, ssgd};
use crate::graph::{Scope, Tensor, Work};
use crate::{Axis, AxisLayout, AxisSet, Dimension, Graph, Job, Layout, Mesh};

/// The axes of its meshes: parts lie along `device` where there is one, and are replicated along `data` (hybrid sharding, Zhao et al. 2023
/// §3.2.2); else along `data`.
pub(super) const AXES: AxisSet = DATA.or(DEVICE);
const DATA: AxisSet = AxisSet::of(&[Axis::Data]);
const DEVICE: AxisSet = AxisSet::of(&[Axis::Device]);

/// Stage 1: each rank keeps the optimizer's state of a part of the parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zero1;

impl Plan for Zero1 {
    name_alone!("zero-1");

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        Ok((graph(job)?, None))
    }

    fn axes(&self) -> AxisSet {
        AXES.or(AxisSet::of(&[Axis::Pipeline]))
    }
}

/// Along which axes parts lie, and along which they are replicated.
#[derive(Clone, Copy)]
pub(super) struct Sharing {
    along: AxisSet,
    /// None: each part is on one rank.
    replicas: AxisSet,
    pub(super) samples: Layout,
    /// One part of a bucket on each rank.
    pub(super) part: Layout,
}

impl Sharing {
    /// How the ranks of `mesh` share parameters; `None` where each keeps all of them.
    pub(super) fn of(mesh: &Mesh) -> Option<Sharing> {
        let [data, device] = [Axis::Data, Axis::Device].map(|axis| mesh.size(axis) > 1);
        let (along, replicas) = match (data, device) {
            (false, false) => return None,
            (true, false) => (DATA, AxisSet::default()),
            (false, true) => (DEVICE, AxisSet::default()),
            (true, true) => (DEVICE, DATA),
        };
        let samples = Layout::new(along.or(replicas), AxisLayout::Split(Dimension::Sample));
        Some(Sharing { along, replicas, samples, part: Layout::new(along, AxisLayout::Split(Dimension::Element)) })
    }

    fn change(self, collective: Collective, axes: AxisSet, cut: &Cut) -> Work {
        Work::Collective { collective, axes, range: cut.range.clone() }
    }

    /// Adds up the gradients of a bucket so that each rank has its part of the sum. The nodes that do so, one behind the other.
    pub(super) fn scatter(self, graph: &mut Graph, passes: &Passes, cut: &Cut, scope: Scope) -> Vec<NodeIndex> {
        let partial = Layout::new(self.along.or(self.replicas), AxisLayout::Partial);
        let scatter = graph.node(self.change(Collective::ReduceScatter, self.along, cut), scope);
        for from in cut.layers.iter().filter_map(|id| passes.weight[id.index()]) {
            graph.edge(from, scatter, Tensor::WeightGradient, partial);
        }
        if self.replicas.is_empty() {
            return vec![scatter];
        }
        let sum = graph.node(self.change(Collective::AllReduce, self.replicas, cut), scope);
        let parts = self.along.iter().fold(partial, |layout, axis| layout.with(axis, self.part.on(axis)));
        graph.edge(scatter, sum, Tensor::WeightGradient, parts);
        vec![scatter, sum]
    }

    /// Gathers the parts of a bucket.
    pub(super) fn gather(self, graph: &mut Graph, cut: &Cut, scope: Scope) -> NodeIndex {
        graph.node(self.change(Collective::AllGather, self.along, cut), scope)
    }
}

/// The graph of one step; one rank keeps all of the state.
///
/// # Errors
/// No workers.
pub(super) fn graph(job: &Job) -> Result<Graph, InputError> {
    let mesh = job.data_mesh()?;
    let Some(sharing) = Sharing::of(&mesh) else { return ssgd::graph(job) };
    let model = &job.model;
    let mut graph = Graph::new(model, mesh);
    let passes = passes(&mut graph, model, sharing.samples);
    let cuts = cuts(job)?;
    // Scatters before updates, which follow the whole backward pass: an exchange behind them in the queue would wait as well.
    let scatters: Vec<Vec<NodeIndex>> =
        cuts.iter().map(|cut| sharing.scatter(&mut graph, &passes, cut, Scope::Step)).collect();
    let update = |graph: &mut Graph, (cut, scatters): (&Cut, Vec<NodeIndex>)| {
        let update = graph.update(cut.range.clone(), Scope::Step);
        graph.edge(scatters[scatters.len() - 1], update, Tensor::WeightGradient, sharing.part);
        update
    };
    let updates: Vec<NodeIndex> = cuts.iter().zip(scatters).map(|cut| update(&mut graph, cut)).collect();
    for (cut, update) in cuts.iter().zip(updates).rev() {
        let gather = sharing.gather(&mut graph, cut, Scope::Step);
        graph.edge(update, gather, Tensor::Weight, sharing.part);
        for id in &cut.layers {
            passes.readers(*id).for_each(|node| graph.weights(gather, node, Layout::REPLICATED));
        }
    }
    Ok(graph)
}
