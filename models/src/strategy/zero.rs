//! ZeRO, stage 1: synchronous data-parallel SGD whose optimizer state is shared out (Rajbhandari et al. 2020 §5.1).
//!
//! A bucket's gradients are reduce-scattered, each rank updates the part of the parameters for which it keeps the momentum, and the parts
//! are gathered before the next step. Gathers come in forward order, so that the next step begins while they go on.

use petgraph::graph::NodeIndex;

use lockstep_topology::{Collective, InputError};

use super::buckets::{Cut, cuts};
use super::data_parallel::passes;
use super::{Plan, Shard, ssgd};
use crate::graph::{Scope, Tensor, Work};
use crate::{Axis, AxisLayout, AxisSet, Dimension, Graph, Job, Layout};

/// All ranks.
pub(super) const AXES: AxisSet = AxisSet::of(&[Axis::Data]);

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

/// The graph of one step; one rank keeps all of the state.
///
/// # Errors
/// No workers.
pub(super) fn graph(job: &Job) -> Result<Graph, InputError> {
    if job.sources() == 1 {
        return ssgd::graph(job);
    }
    let model = &job.model;
    let mut graph = Graph::new(model, job.data_mesh()?);
    let [samples, partial, part] =
        [AxisLayout::Split(Dimension::Sample), AxisLayout::Partial, AxisLayout::Split(Dimension::Element)]
            .map(|layout| Layout::new(AXES, layout));
    let passes = passes(&mut graph, model, samples);
    let change = |collective, range| Work::Collective { collective, axes: AXES, range };
    let cuts = cuts(job)?;
    // Scatters before updates, which follow the whole backward pass: an exchange behind them in the queue would wait as well.
    let scatter = |graph: &mut Graph, cut: &Cut| {
        let scatter = graph.node(change(Collective::ReduceScatter, cut.range.clone()), Scope::Step);
        for from in cut.layers.iter().filter_map(|id| passes.weight[id.index()]) {
            graph.edge(from, scatter, Tensor::WeightGradient, partial);
        }
        scatter
    };
    let scatters: Vec<NodeIndex> = cuts.iter().map(|cut| scatter(&mut graph, cut)).collect();
    let update = |graph: &mut Graph, (cut, scatter): (&Cut, NodeIndex)| {
        let update = graph.update(cut.range.clone(), Scope::Step);
        graph.edge(scatter, update, Tensor::WeightGradient, part);
        update
    };
    let updates: Vec<NodeIndex> = cuts.iter().zip(scatters).map(|cut| update(&mut graph, cut)).collect();
    for (cut, update) in cuts.iter().zip(updates).rev() {
        let gather = graph.node(change(Collective::AllGather, cut.range.clone()), Scope::Step);
        graph.edge(update, gather, Tensor::Weight, part);
        for id in &cut.layers {
            passes.readers(*id).for_each(|node| graph.weights(gather, node, Layout::REPLICATED));
        }
    }
    Ok(graph)
}
