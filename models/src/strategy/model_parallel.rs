//! Model parallelism: every layer with weights is split by rows along `tensor` (Iandola et al. 2016 §4), and samples along `data`, where
//! a mesh has that axis too (as Shoeybi et al. 2019 §3 combine them).

use lockstep_topology::InputError;

use super::split::SplitLayers;
use super::{Plan, Shard};
use crate::{Axis, AxisSet, Graph, Job};

/// Ranks along `tensor` have all samples of their group and exchange activations and their gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelParallel;

impl Plan for ModelParallel {
    name_alone!("model-parallel");

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        SplitLayers::all(job, false)?.graph(job)
    }

    fn axes(&self) -> AxisSet {
        AxisSet::of(&[Axis::Pipeline, Axis::Data, Axis::Tensor])
    }
}
