//! ZeRO, stage 2: as stage 1, and gradients that have been used up leave their memory to others (Rajbhandari et al. 2020 §5.2).
//!
//! The layouts are those of stage 1. A bucket is updated as soon as its gradients are there, beside the reduce-scatters of later ones, so
//! the memory plan finds room for the gradients of early layers where those of late ones were.

use lockstep_topology::{ErrorPlace, InputError};

use super::{Plan, Shard, zero};
use crate::{AxisSet, Bucket, Graph, Job};

/// Stage 2: each rank keeps the optimizer's state of a part of the parameters, and gradients until they are updated with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Zero2;

impl Plan for Zero2 {
    name_alone!("zero-2");

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        if job.workers > 1 {
            check(job)?;
        }
        Ok((zero::graph(job)?, None))
    }

    fn axes(&self) -> AxisSet {
        zero::AXES
    }

    fn updates_early(&self) -> bool {
        true
    }
}

/// Refuses what keeps all gradients until the backward pass has ended.
pub(super) fn check(job: &Job) -> Result<(), InputError> {
    let (strategy, own) = (ErrorPlace::Flag("strategy"), &job.strategy);
    if job.accumulate > 1 {
        let message = format!(
            "{own} would scatter its gradients in every micro-batch: take one micro-batch, or {strategy} zero-1, which keeps them"
        );
        return Err(InputError::flag("accumulate", job.accumulate.to_string(), message));
    }
    if job.bucket == Bucket::Tensor {
        let message = format!(
            "exchanges of tensors wait for the whole backward pass, and {own} frees gradients during it: take layer or a size, or \
             {strategy} zero-1"
        );
        return Err(InputError::flag("bucket", job.bucket.to_string(), message));
    }
    Ok(())
}
