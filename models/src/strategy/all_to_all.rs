//! Builds layers whose activations are split by samples, and whose products are split by the features that they sum: an
//! all-to-all turns one split into the other before each product, and a reduce-scatter of the products leads back (the way of
//! DeepSpeed-Ulysses, Jacobs et al. 2023, §3, with products in the place of attention).

use std::fmt;

use lockstep_topology::InputError;

use super::split::{self, SplitLayers};
use super::{Plan, Shard};
use crate::model::{COLUMNS, Entry, Names, SAMPLES, Table};
use crate::{Axis, AxisLayout, AxisSet, Graph, Job};

/// Ranks along `tensor` keep columns of each weight, and a part of the samples of each activation. A product whose input
/// features do not divide keeps its whole weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllToAll {
    /// Whether ranks with the same part of each layer shard its optimizer state, as `zero-1` does.
    shares_state: bool,
}

impl Plan for AllToAll {
    fn parse(settings: &str) -> Result<AllToAll, String> {
        Ok(AllToAll { shares_state: split::parse("all-to-all", settings)? })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        split::write(f, "all-to-all", self.shares_state)
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        const ALL: Names = Names::Pattern("*");
        let table = Table::default()
            .weights(ALL, &[Entry::Always(COLUMNS)])
            .outputs(Names::Input, &[Entry::Always(AxisLayout::Replicated)])
            .outputs(ALL, &[Entry::Always(SAMPLES), Entry::Always(AxisLayout::Replicated)])
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
