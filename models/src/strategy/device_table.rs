//! Builds Torch's data-parallel table before its optimisation: a node's batch passes through its first device (Kumar et
//! al. 2018 §4.3, Fig. 3).
//!
//! The first rank of each node takes the samples of all its ranks and scatters them; scores are gathered there, this
//! one rank computes the loss over all of them, and its gradients are scattered. The rest is as in `ssgd`, which is the
//! optimised table (Fig. 4: every rank takes its own samples and its own loss).

use std::sync::Arc;

use lockstep_topology::InputError;

use super::{Plan, Shard, split, ssgd};
use crate::model::node_first;
use crate::{Axis, Graph, Job, Mesh, PassRanks, Piece, Sampling, Sharding};

/// As `ssgd`, but a node's samples, scores and losses go through its first rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FirstDeviceTable;

impl Plan for FirstDeviceTable {
    name_alone!(NAME);

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        graph(job)
    }
}

const NAME: &str = "first-device-table";

/// The graph of one step, and the model of each rank.
///
/// # Errors
/// Accumulation, dedicated servers, batches that overflow, scores that a loss shares with other layers.
fn graph(job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
    refuse(job)?;
    let nodes = Sampling::PerNode.pools(job.workers, job.node_sizes.as_deref());
    if nodes.iter().all(|ranks| *ranks == 1) {
        return Ok((ssgd::graph(job)?, None)); // a node of one device shares nothing
    }
    let mut worker = 0;
    let mut passes: Vec<Vec<Piece>> = Vec::new();
    for ranks in nodes {
        if ranks.checked_mul(job.batch_per_rank).is_none() {
            let message = format!("{ranks} ranks of a node take more than 2^32 samples at once: use a smaller batch");
            return Err(InputError::flag("batch_per_rank", job.batch_per_rank.to_string(), message));
        }
        passes.push(
            (worker..worker + ranks).map(|worker| Piece { worker, first: 0, count: job.batch_per_rank }).collect(),
        );
        worker += ranks;
    }
    let (model, layers) = node_first(&job.model)?;
    let whole = Arc::clone(&job.model);
    let mesh = Mesh::of_nodes(&passes.iter().map(|node| node.len() as u32).collect::<Vec<_>>())?;
    let (axis, ranks) = (Axis::Device, mesh.size(Axis::Device));
    let pass_ranks = PassRanks::FirstOfNode;
    let sharding = Sharding { whole, axis, ranks, layers, sample_parts: 1, passes, pass_ranks, variable_batch: false };
    let graph = split::graph(job, &model, (&sharding, None), mesh)?;
    Ok((graph, Some((Arc::new(model), Arc::new(sharding)))))
}

/// Refuses settings that the table does not take.
fn refuse(job: &Job) -> Result<(), InputError> {
    if job.accumulate > 1 {
        let message = format!("{NAME} scatters one batch a step: use 1, and a larger batch per rank");
        return Err(InputError::flag("accumulate", job.accumulate.to_string(), message));
    }
    if job.algorithm.servers() > 0 {
        let message = format!("does not serve {NAME}, whose nodes all train: use ring or parameter-server:1");
        return Err(InputError::flag("algorithm", job.algorithm.to_string(), message));
    }
    Ok(())
}
