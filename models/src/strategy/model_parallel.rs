//! Builds model parallelism: splits every layer with weights by rows along `tensor` (Iandola et al. 2016 §4), and
//! samples along `data`, where a mesh has that axis too (as Shoeybi et al. 2019 §3 combine them).

use std::fmt;

use lockstep_topology::InputError;

use super::split::{self, SplitLayers};
use super::{Plan, Shard};
use crate::model::{Entry, FEATURES, Names, Table};
use crate::{Axis, AxisLayout, AxisSet, Graph, Job};

/// Ranks along `tensor` have all samples of their group and exchange activations and their gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelParallel {
    /// Whether ranks with the same part of each layer shard its optimizer state, as `zero-1` does: the distributed
    /// optimizer of Megatron-LM.
    shares_state: bool,
}

impl Plan for ModelParallel {
    fn parse(settings: &str) -> Result<ModelParallel, String> {
        Ok(ModelParallel { shares_state: split::parse("model-parallel", settings)? })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        split::write(f, "model-parallel", self.shares_state)
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        SplitLayers::all(job, table(), self.shares_state)?.graph(job)
    }

    fn axes(&self) -> AxisSet {
        split::axes(self.shares_state)
    }

    fn activation_axes(&self) -> AxisSet {
        AxisSet::of(&[Axis::Tensor])
    }
}

/// Rows of all weights.
fn table() -> Table {
    const ALL: Names = Names::Pattern("*");
    Table::default()
        .weights(ALL, &[Entry::Always(FEATURES)])
        .outputs(ALL, &[Entry::If(FEATURES), Entry::Always(AxisLayout::Replicated)])
}
