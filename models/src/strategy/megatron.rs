//! Megatron's pairs of layers: the first is split by its output's features, the second by its input's, so that what is between
//! them stays on its rank (Shoeybi et al. 2019 §3).

use lockstep_topology::InputError;

use super::split::SplitLayers;
use super::{Plan, Shard};
use crate::{Axis, AxisSet, Graph, Job};

/// Rows of a weight, then columns along `tensor`: each pair has one allreduce forward, of its output, and one backward, of its input's
/// gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Megatron;

impl Plan for Megatron {
    name_alone!("megatron");

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        SplitLayers::all(job, true)?.graph(job)
    }

    fn axes(&self) -> AxisSet {
        AxisSet::of(&[Axis::Pipeline, Axis::Data, Axis::Tensor])
    }
}
