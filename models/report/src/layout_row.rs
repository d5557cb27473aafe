//! Defines the rows of `models layouts`: the layouts of a strategy's tensors over the ranks.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// A row of `models layouts`: tensors of one kind in one layout, and the collective that changes it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LayoutTableRow {
    /// `activation`, `activation gradient`, `weight`, `weight gradient`, `difference`, `average model` or `reference model`.
    pub tensor: String,
    /// The first and the last layer whose tensors these are; none for those of the whole model.
    pub layers: Option<String>,
    /// How it lies on each axis on which ranks differ: `data: split(sample)`; `replicated` where they do not.
    pub layout: String,
    /// The collective that changes the layout, `slice` where each rank has its part already; none where it stays.
    pub collective: Option<String>,
    /// The layout afterwards.
    pub becomes: Option<String>,
    /// Why it changes: the first and the last of the layers that read the layout afterwards, and in which pass; `update`
    /// where updates or further exchanges do.
    pub needed_by: Option<String>,
    /// The axes along which ranks exchange.
    pub axes: Option<String>,
    /// How many groups of ranks exchange, each for itself.
    pub groups: Option<u32>,
    /// Ranks of each group.
    pub group_ranks: Option<u32>,
    /// How often a step changes it: buckets of gradients, or layers.
    pub changes: Option<u32>,
}

impl Row for LayoutTableRow {}
