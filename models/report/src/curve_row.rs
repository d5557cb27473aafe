//! Defines the rows of measured curves of collectives: a curve's errors, and a point of one.

use schemars::JsonSchema;
use serde::Serialize;

use super::Row;

/// How far predictions are from one measured curve.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CurveRow {
    /// Which machine: a file of `experiments/collectives`.
    pub system: String,
    /// Which curve of it.
    pub curve: String,
    /// What holds afterwards.
    pub collective: String,
    /// How it is done.
    pub algorithm: String,
    /// Points that count.
    pub points: u32,
    /// Median of |ln(predicted / measured)| over points that count.
    pub median_log_error: f64,
    /// The same over those of at least 16 MiB; none where there is no such point.
    pub median_log_error_from_16mib: Option<f64>,
    /// The largest.
    pub worst_log_error: f64,
    /// Bytes at which it is.
    pub worst_at_bytes: u64,
}

impl Row for CurveRow {
    const SETTING: &'static [&'static str] = &["system"];
}

/// A point of a measured curve.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CurvePointRow {
    /// Which machine: a file of `experiments/collectives`.
    pub system: String,
    /// Which curve of it.
    pub curve: String,
    /// Members.
    pub ranks: u32,
    /// Size of the whole buffer.
    pub bytes: u64,
    /// What NCCL takes, as it is predicted.
    pub choice: Option<String>,
    /// Measured microseconds.
    pub time_us: f64,
    /// Predicted microseconds.
    pub predicted_time_us: f64,
    /// |ln(predicted / measured)|.
    pub log_error: f64,
    /// Whether it counts.
    pub counted: bool,
}

impl Row for CurvePointRow {
    const SETTING: &'static [&'static str] = &["system", "curve"];
}
