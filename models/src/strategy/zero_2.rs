//! Builds ZeRO, stage 2: as stage 1, and gradients free their memory for others once consumed (Rajbhandari et al. 2020
//! §5.2).
//!
//! A bucket is updated as soon as its gradients are made, during the reduce-scatters of later ones, so the memory plan
//! can place the gradients of early layers where those of late ones were. With several micro-batches each is
//! reduce-scattered, and a rank accumulates its parts.

use lockstep_topology::{ErrorPlace, InputError};

use super::buckets::{Ends, cuts};
use super::early::{Order, Uses};
use super::passes::passes;
use super::zero::Sharing;
use super::{Plan, Shard, ssgd, zero};
use crate::{AxisSet, Bucket, Graph, Job};

/// Stage 2: each rank keeps the optimizer state of a part of the parameters, and gradients until their update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zero2;

impl Plan for Zero2 {
    name_alone!("zero-2");

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        let mesh = job.data_mesh()?;
        let Some(sharing) = Sharing::of(&mesh) else { return Ok((ssgd::graph(job)?, None)) };
        check(job)?;
        let mut graph = Graph::new(&job.model, mesh);
        let passes = passes(&mut graph, job, sharing.samples)?;
        let (mut order, cuts) = (Order::of_passes(&graph), cuts(job)?);
        let buckets: Vec<Ends> = cuts.iter().map(|cut| Ends::of_whole(cut, &passes, sharing.axes())).collect();
        let uses = Uses::of(job, &passes, &cuts);
        let weights = uses.update_early((&mut graph, &mut order), sharing, job, &buckets);
        let gathers = sharing.gather_all(&mut graph, &buckets, &weights);
        order.insert(order.end(), gathers);
        Ok((order.applied_to(&graph), None))
    }

    fn axes(&self) -> AxisSet {
        zero::AXES
    }
}

/// Refuses settings that keep all gradients until the backward pass has ended.
pub(super) fn check(job: &Job) -> Result<(), InputError> {
    if job.bucket != Bucket::Tensor {
        return Ok(());
    }
    let (strategy, own) = (ErrorPlace::Flag("strategy"), &job.strategy);
    let message = format!(
        "exchanges of tensors wait for the whole backward pass, and {own} frees gradients during it: use layer or a size, or {strategy} \
         zero-1"
    );
    Err(InputError::flag("bucket", job.bucket.to_string(), message))
}
