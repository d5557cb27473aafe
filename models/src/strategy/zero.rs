//! Builds ZeRO, stage 1: synchronous data-parallel SGD with the optimizer state sharded over ranks (Rajbhandari et al.
//! 2020 §5.1).
//!
//! A bucket's gradients are reduce-scattered, each rank updates the part of the parameters whose momentum it keeps, and
//! the parts are gathered before the next step. Gathers run in forward order, so the next step overlaps them.

use std::ops::Range;

use petgraph::graph::NodeIndex;

use lockstep_topology::{Collective, InputError};

use super::buckets::{Ends, Flow, cuts, through};
use super::passes::passes;
use super::{Plan, Shard, ssgd};
use crate::graph::{NodeWork, Scope, Tensor};
use crate::{Axis, AxisLayout, AxisSet, Dimension, Graph, Job, Layout, Mesh};

/// The axes of its meshes: state is sharded along `device` where there is one, and replicated along `data` (hybrid
/// sharding, Zhao et al. 2023 §3.2.2); else sharded along `data`.
pub(super) const AXES: AxisSet = AxisSet::of(&[Axis::Data, Axis::Device]);

const PART: AxisLayout = AxisLayout::Split(Dimension::Element);

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

/// The axes along which state is sharded, and along which it is replicated.
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
    /// How the ranks of `mesh` shard parameters; `None` where each keeps all of them.
    pub(super) fn of(mesh: &Mesh) -> Option<Sharing> {
        let along = [Axis::Device, Axis::Data].into_iter().find(|axis| mesh.size(*axis) > 1)?;
        let replicas: Vec<Axis> = AXES.iter().filter(|axis| *axis != along && mesh.axes().contains(*axis)).collect();
        let (along, replicas) = (AxisSet::of(&[along]), AxisSet::of(&replicas));
        let samples = Layout::new(along.or(replicas), AxisLayout::Split(Dimension::Sample));
        Some(Sharing { along, replicas, samples, part: Layout::new(along, PART) })
    }

    /// The axes along which ranks have different samples.
    pub(super) fn axes(self) -> AxisSet {
        self.along.or(self.replicas)
    }

    /// The number of exchanges that sum a bucket's gradients.
    pub(super) fn exchanges(self, mesh: &Mesh) -> usize {
        let along = [self.along, self.replicas];
        along.into_iter().filter(|axes| axes.iter().any(|axis| mesh.size(axis) > 1)).count()
    }

    fn change(self, collective: Collective, axes: AxisSet, range: &Range<u64>) -> NodeWork {
        NodeWork::Collective { collective, axes, range: range.clone() }
    }

    /// Sums the gradients of a bucket so that each rank has its part of the sum. Returns the nodes that do so, one
    /// after the other, and what they make.
    pub(super) fn scatter(self, graph: &mut Graph, bucket: &Ends, scope: Scope) -> (Vec<NodeIndex>, Flow) {
        let mut flow = bucket.made();
        let changes = [
            (Collective::ReduceScatter, self.along, PART),
            (Collective::AllReduce, self.along.iter().fold(bucket.partial, AxisSet::without), AxisLayout::Replicated),
        ];
        let mut nodes = Vec::new();
        for (collective, axes, to) in changes.into_iter().filter(|(_, axes, _)| !axes.is_empty()) {
            let node = graph.node(self.change(collective, axes, &bucket.range), scope);
            flow = through(graph, &flow, (node, Tensor::WeightGradient), (axes, to));
            nodes.push(node);
        }
        let (node, flow) = bucket.with_other_stage(graph, flow, scope);
        nodes.extend(node);
        (nodes, flow)
    }

    /// Gathers the parts of a bucket.
    pub(super) fn gather(self, graph: &mut Graph, range: &Range<u64>, scope: Scope) -> NodeIndex {
        graph.node(self.change(Collective::AllGather, self.along, range), scope)
    }

    /// Makes each rank update its parts of all buckets, in the order in which backward passes fill them, and gathers
    /// these for the next step.
    pub(super) fn share_state(self, graph: &mut Graph, buckets: &[Ends]) {
        let weights = self.update_parts(graph, buckets);
        self.gather_all(graph, buckets, &weights);
    }

    /// Sums the gradients of all buckets and makes each rank update its parts. Returns what the updates make, by bucket.
    pub(super) fn update_parts(self, graph: &mut Graph, buckets: &[Ends]) -> Vec<Flow> {
        // Scatters come before updates, which follow the whole backward pass: an exchange after them in the queue would
        // wait as well.
        let sums: Vec<Flow> = buckets.iter().map(|bucket| self.scatter(graph, bucket, Scope::Step).1).collect();
        let update = |graph: &mut Graph, (bucket, sum): (&Ends, &Flow)| {
            let update = graph.update(bucket.range.clone(), Scope::Step);
            through(graph, sum, (update, Tensor::WeightGradient), (AxisSet::default(), AxisLayout::Replicated))
        };
        buckets.iter().zip(&sums).map(|of| update(graph, of)).collect()
    }

    /// Gathers updated weights for the next step, in the order in which it reads them. Returns the nodes that do so.
    pub(super) fn gather_all(self, graph: &mut Graph, buckets: &[Ends], weights: &[Flow]) -> Vec<NodeIndex> {
        let gather = |(bucket, weights): (&Ends, &Flow)| {
            let gather = self.gather(graph, &bucket.range, Scope::Step);
            through(graph, weights, (gather, Tensor::Weight), (self.along, AxisLayout::Replicated));
            bucket.readers.iter().for_each(|(node, layout)| graph.weights(gather, *node, *layout));
            gather
        };
        buckets.iter().zip(weights).rev().map(gather).collect()
    }
}

/// The graph of one step; one rank keeps all of the state.
///
/// # Errors
/// No workers.
pub(super) fn graph(job: &Job) -> Result<Graph, InputError> {
    let mesh = job.data_mesh()?;
    let Some(sharing) = Sharing::of(&mesh) else { return ssgd::graph(job) };
    let mut graph = Graph::new(&job.model, mesh);
    let passes = passes(&mut graph, job, sharing.samples)?;
    let buckets: Vec<Ends> = cuts(job)?.iter().map(|cut| Ends::of_whole(cut, &passes, sharing.axes())).collect();
    sharing.share_state(&mut graph, &buckets);
    Ok(graph)
}
