//! Defines the rows of `models plan --mesh`: where ranks are, and what a step exchanges along which axes.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// A rank of a mesh.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RankRow {
    /// The rank.
    pub rank: u32,
    /// Its coordinates, outer axes first: `data=1,tensor=0`.
    pub coordinates: String,
    /// The stage of the pipeline whose layers it has; `null` without a pipeline.
    pub stage: Option<u32>,
    /// By axis, the number of the group along it that the rank is in: `data 0, tensor 1`.
    pub groups: String,
    /// The host that it is on; `null` in this and the next column without a cluster.
    pub host: Option<String>,
    /// Its device.
    pub device: Option<String>,
}

impl Row for RankRow {}

/// What a step exchanges along the same axes, of the same tensor, by the same collective.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TransitionRow {
    /// The buffer that is exchanged: `gradients`, `parameters`, or one that the program declares.
    pub buffer: String,
    /// The collective.
    pub collective: String,
    /// Its method.
    pub algorithm: String,
    /// The axes along which ranks exchange.
    pub axes: String,
    /// How many groups of ranks exchange, each for itself.
    pub groups: u32,
    /// Ranks of a group.
    pub group_ranks: u32,
    /// The most hosts that a group lies on; `null` without a cluster.
    pub group_hosts: Option<u32>,
    /// Exchanges of a step, of the rank with most of them.
    pub exchanges: u64,
    /// Bytes of the buffers that these exchanges carry.
    pub bytes: u64,
    /// The most bytes that a rank sends for them in a step.
    pub sent_bytes: u64,
}

impl Row for TransitionRow {}
