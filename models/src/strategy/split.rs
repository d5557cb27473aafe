//! Builds the graph of a step in which layers are split as a table states: changes of layout between them, allreduces for
//! the weights that all ranks hold and whose samples differ, and, only along the other axes, for a rank's own part.

use std::sync::Arc;

use lockstep_topology::{Algorithm, ErrorPlace, InputError, Library};

use super::buckets::{Cut, Ends, cuts_of, layers_by_chunk, update};
use super::passes::passes_of_parts;
use super::zero::{self, Sharing};
use super::{Shard, ssgd};
use crate::graph::Scope;
use crate::model::{Table, shard};
use crate::{Axis, AxisSet, Dimension, Graph, Job, LayerId, Layout, Mesh, Model, PassRanks, Piece, Sharding};

/// Which layers are split, along which axis, and which samples run through them.
pub(super) struct SplitLayers {
    /// The ranks.
    pub(super) mesh: Mesh,
    /// The axis along which layers are split.
    pub(super) axis: Axis,
    /// Where the strategy wants their tensors.
    pub(super) table: Table,
    /// The samples of each pass through the layers that are split.
    pub(super) passes: Vec<Vec<Piece>>,
    /// Whether split layers are updated after each pass (Krizhevsky 2014 §4.2).
    pub(super) variable_batch: bool,
    /// Whether ranks with the same rows shard their optimizer state.
    pub(super) shares_state: bool,
}

impl SplitLayers {
    /// The graph of one step, and the model of each rank.
    ///
    /// # Errors
    /// A model that cannot be split, several micro-batches, dedicated servers, MPI's allreduce.
    pub(super) fn graph(self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        let SplitLayers { mesh, axis, table, passes, variable_batch, shares_state } = self;
        refuse(job, variable_batch)?;
        let ranks = mesh.size(axis);
        if ranks == 1 {
            // Each rank has every layer whole.
            return Ok((if shares_state { zero::graph(job) } else { ssgd::graph(job) }?, None));
        }
        let outside = mesh.axes().without(axis).without(Axis::Pipeline);
        let refused = |error: InputError| match error.place {
            ErrorPlace::Flag("ranks") if job.mesh.is_some() => error.at(ErrorPlace::Flag("mesh")),
            ErrorPlace::Flag("strategy") => InputError { value: job.strategy.to_string(), ..error },
            _ => error,
        };
        let several = passes.iter().any(|pass| pass.len() > 1);
        let of = |sample_parts: u32| {
            let (model, layers) = shard(&job.model, (axis, ranks), outside, &table, several, sample_parts)?;
            let (whole, passes, pass_ranks) = (Arc::clone(&job.model), passes.clone(), PassRanks::All);
            Ok((model, Sharding { whole, axis, ranks, layers, sample_parts, passes, pass_ranks, variable_batch }))
        };
        let (mut model, mut sharding) = of(1).map_err(refused)?;
        let samples = sharding.pass_samples();
        if sharding.in_all_passes() && !samples.is_multiple_of(ranks) && sharding.any_splits_samples() {
            let parts = sample_parts(&job.model, samples, (axis, ranks))?;
            (model, sharding) = of(parts).map_err(refused)?;
        }
        let sharing = if shares_state { Sharing::of(&mesh) } else { None };
        let graph = graph(job, &model, (&sharding, sharing), mesh)?;
        Ok((graph, Some((Arc::new(model), Arc::new(sharding)))))
    }
}

/// Parts into which ranks split the rows of each of too few samples.
///
/// # Errors
/// Samples without positions that the parts divide.
fn sample_parts(model: &Model, samples: u32, (axis, ranks): (Axis, u32)) -> Result<u32, InputError> {
    let positions = model.input().size(Dimension::Position);
    let is_sequence = model.input().has(Dimension::Position);
    let parts = Some(ranks / samples.max(1)).filter(|parts| is_sequence && parts * samples == ranks);
    let error = |cure: String| {
        let message = format!("does not divide among {ranks} ranks along {axis}: use {cure}");
        Err(InputError::flag("batch_per_rank", samples.to_string(), message))
    };
    match parts {
        None if is_sequence => error(format!("a multiple of {ranks}, or a number that divides {ranks}")),
        None => error(format!("a multiple of {ranks}")),
        Some(parts) if !positions.is_multiple_of(parts) => {
            error(format!("a multiple of {ranks}, or a sequence length that {parts} divides and not {positions}"))
        }
        Some(parts) => Ok(parts),
    }
}

/// All samples of all ranks.
pub(super) fn everything(ranks: u32, samples: u32) -> Vec<Piece> {
    (0..ranks).map(|worker| Piece { worker, first: 0, count: samples }).collect()
}

/// Refuses settings that strategies with split layers do not take.
fn refuse(job: &Job, varies: bool) -> Result<(), InputError> {
    let strategy = &job.strategy;
    if job.accumulate > 1 && varies {
        let message = format!(
            "{strategy} updates split layers with each pass, and not once in several micro-batches: use 1 and a larger batch per rank"
        );
        return Err(InputError::flag("accumulate", job.accumulate.to_string(), message));
    }
    let unserved = |of: &&Algorithm| of.servers() > 0 || of.library() == Some(Library::Transport);
    if let Some(algorithm) = job.algorithms().find(unserved) {
        let message = format!("does not serve {strategy}, whose ranks all exchange activations meanwhile: use ring");
        return Err(job.of_axis(InputError::flag("algorithm", algorithm.to_string(), message)));
    }
    Ok(())
}

/// The graph of one step of a rank's `model` on the ranks of `mesh`.
///
/// # Errors
/// As [`Job::stages`].
pub(super) fn graph(
    job: &Job,
    model: &Model,
    (sharding, sharing): (&Sharding, Option<Sharing>),
    mesh: Mesh,
) -> Result<Graph, InputError> {
    let mut graph = Graph::new(model, mesh);
    let passes = passes_of_parts(&mut graph, job, model, sharding)?;
    // Ranks of another stage have other layers.
    let all = graph.mesh.axes().without(Axis::Pipeline);
    // Where no other axis splits the samples, the gradient of a rank's own rows is whole.
    let others = all.without(sharding.axis);
    let along = AxisSet::of(&[sharding.axis]);
    let (chunks, tied) = layers_by_chunk(job, model)?;
    let each_pass = if sharding.variable_batch { Scope::Pass } else { Scope::Step };
    for (sums, scope, axes) in [(false, each_pass, others), (true, Scope::Step, all)] {
        let cuts = chunks.iter().rev().flat_map(|chunk| {
            let is_of = |id: &LayerId| sharding.sums_gradient(*id) == sums;
            let layers: Vec<LayerId> = chunk.iter().copied().filter(is_of).collect();
            cuts_of((model, tied), job.bucket, &layers)
        });
        let ends = |cut: Cut| Ends::of(&cut, &passes, axes, |id| Layout::new(along, sharding.weights(id)));
        let buckets: Vec<Ends> = cuts.map(ends).collect();
        match sharing {
            Some(sharing) => sharing.share_state(&mut graph, &buckets),
            None => buckets.iter().for_each(|bucket| update(&mut graph, bucket, scope)),
        }
    }
    Ok(graph)
}
