//! Builds Megatron's pairs of layers: splits the first by its output's features, the second by its input's, so that the
//! tensor between them stays on its rank (Shoeybi et al. 2019 §3).

use std::fmt;

use lockstep_topology::InputError;

use super::split::{self, SplitLayers};
use super::{Plan, Shard};
use crate::model::{COLUMNS, Entry, FEATURES, Names, Table};
use crate::{Axis, AxisLayout, AxisSet, Graph, Job};

/// Rows of a weight, then columns along `tensor`: each pair has one allreduce forward, of its output, and one backward,
/// of its input's gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Megatron {
    /// Whether ranks with the same part of each layer shard its optimizer state, as `zero-1` does: the distributed
    /// optimizer of Megatron-LM.
    shares_state: bool,
}

impl Plan for Megatron {
    fn parse(settings: &str) -> Result<Megatron, String> {
        Ok(Megatron { shares_state: split::parse("megatron", settings)? })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        split::write(f, "megatron", self.shares_state)
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

/// Columns of the weights behind a layer that is split by rows, else rows; what ranks have whole has whole gradients.
fn table() -> Table {
    const ALL: Names = Names::Pattern("*");
    Table::default()
        .weights(ALL, &[Entry::If(COLUMNS), Entry::Always(FEATURES)])
        .outputs(ALL, &[Entry::If(FEATURES), Entry::Always(AxisLayout::Replicated)])
        .whole_gradients(ALL)
}
