//! Builds synchronous data-parallel SGD: batch-split activations, replicated weights, partial-sum gradients, an
//! allreduce per bucket.
//!
//! A bucket's allreduce depends only on the backward passes of its own layers, so it overlaps the rest of the backward
//! pass (Goyal et al. 2017 §4).

use lockstep_topology::InputError;

use super::buckets::{Ends, cuts, update};
use super::passes::passes;
use super::{Plan, Shard};
use crate::graph::Scope;
use crate::{Axis, AxisLayout, AxisSet, Dimension, Graph, Job, Layout};

/// Axes along which ranks have different samples.
const AXES: AxisSet = AxisSet::of(&[Axis::Data, Axis::Device]);

/// Synchronous data-parallel SGD: samples are split, weights replicated, gradients allreduced (Goyal et al. 2017 §2 and
/// §4, Iandola et al. 2016 §6).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ssgd;

impl Plan for Ssgd {
    name_alone!("ssgd");

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        Ok((graph(job)?, None))
    }

    fn axes(&self) -> AxisSet {
        AXES.or(AxisSet::of(&[Axis::Pipeline]))
    }
}

/// The graph of one step.
///
/// # Errors
/// No workers.
pub(super) fn graph(job: &Job) -> Result<Graph, InputError> {
    let model = &job.model;
    let mesh = job.data_mesh()?;
    let axes = AxisSet::of(&mesh.outer_first().filter(|axis| AXES.contains(*axis)).collect::<Vec<_>>());
    let mut graph = Graph::new(model, mesh);
    let passes = passes(&mut graph, job, Layout::new(axes, AxisLayout::Split(Dimension::Sample)))?;
    for cut in cuts(job)? {
        update(&mut graph, &Ends::of_whole(&cut, &passes, axes), Scope::Step);
    }
    Ok(graph)
}
