//! Builds Megatron's pairs of layers with activations that stay split by samples around them (Korthikanti et al. 2022,
//! §4.2.2, who split sequences): what `megatron` sums on every rank is reduce-scattered here, and gathered before the next
//! pair, so that no rank keeps or computes what the others have as well.

use std::fmt;

use lockstep_topology::InputError;

use super::split::{self, SplitLayers};
use super::{Plan, Shard};
use crate::model::{COLUMNS, Entry, FEATURES, Names, SAMPLES, Table};
use crate::{Axis, AxisLayout, AxisSet, Graph, Job};

/// As [`Megatron`](super::Megatron) along `tensor`; layers outside of its pairs each work on a part of the samples. Batch
/// normalisation works on all of them, since a part has other statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequenceParallel {
    /// Whether ranks with the same part of each layer shard its optimizer state, as `zero-1` does.
    shares_state: bool,
}

impl Plan for SequenceParallel {
    fn parse(settings: &str) -> Result<SequenceParallel, String> {
        Ok(SequenceParallel { shares_state: split::parse("sequence-parallel", settings)? })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        split::write(f, "sequence-parallel", self.shares_state)
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        const ALL: Names = Names::Pattern("*");
        let table = Table::default()
            .weights(ALL, &[Entry::If(COLUMNS), Entry::Always(FEATURES)])
            .outputs(Names::Input, &[Entry::Always(AxisLayout::Replicated)])
            .outputs(ALL, &[Entry::If(FEATURES), Entry::Always(SAMPLES), Entry::Always(AxisLayout::Replicated)])
            .whole_gradients(ALL);
        SplitLayers::all(job, table, self.shares_state)?.graph(job)
    }

    fn axes(&self) -> AxisSet {
        split::axes(self.shares_state)
    }

    fn activation_axes(&self) -> AxisSet {
        AxisSet::of(&[Axis::Tensor])
    }
}
