//! What entries of a profile are made of: measured figures with their intervals, and times of layers and of operations.

use serde::{Deserialize, Serialize};

/// A measured figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// The figure itself, a median.
    pub value: f64,
    /// Lower end of its 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// A figure that is known exactly.
    pub fn exact(value: f64) -> Interval {
        Interval { value, low: value, high: value }
    }
}

/// One phase of one chain of layers at one batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeEntry {
    /// The chain's layers and shapes, as [`chain_key`](crate::costs::chain_key) writes them.
    pub chain: String,
    /// `forward`, `backward-data`, `backward-weight` or `backward`.
    pub phase: String,
    /// Samples in the batch.
    pub samples: u32,
    /// Seconds on one core, alone.
    pub seconds: Interval,
    /// How many times longer it takes when every core runs it.
    pub slowdown: f64,
}

/// An operation on so many elements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// fp32 elements.
    pub elements: u64,
    /// Seconds on one core, alone.
    pub seconds: Interval,
    /// How many times longer it takes when every core does it.
    pub slowdown: f64,
}
