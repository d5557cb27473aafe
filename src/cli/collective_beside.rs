//! Compares predicted times of collectives with those that nccl-tests measured.

use schemars::JsonSchema;
use serde::Serialize;

use lockstep_machines::nccl_log::MeasuredSize;
use lockstep_models::quantile;
use lockstep_report::{CollectiveRow, Row};

/// A size, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct BesideRow {
    /// What holds afterwards.
    collective: String,
    /// How it is done in the prediction.
    algorithm: String,
    /// The cluster's name.
    on: String,
    /// Members.
    ranks: u32,
    /// Size of the buffer, as measured.
    bytes: u64,
    /// Predicted microseconds.
    predicted_time_us: f64,
    /// Measured microseconds, out of place.
    time_us: f64,
    /// |ln(predicted / measured)|: 0 where they are equal, 0.69 where one is twice the other.
    log_error: f64,
}

impl Row for BesideRow {
    const SETTING: &'static [&'static str] = &["collective", "algorithm", "on", "ranks"];
}

/// Pairs predictions and measurements, size by size in the same order.
pub(super) fn beside(predicted: &[CollectiveRow], measured: &[MeasuredSize]) -> Vec<BesideRow> {
    let row = |(predicted, measured): (&CollectiveRow, &MeasuredSize)| BesideRow {
        collective: predicted.collective.clone(),
        algorithm: predicted.algorithm.clone(),
        on: predicted.on.clone(),
        ranks: predicted.ranks,
        bytes: measured.bytes.0,
        predicted_time_us: predicted.time_us,
        time_us: measured.time_us,
        log_error: (predicted.time_us / measured.time_us).ln().abs(),
    };
    predicted.iter().zip(measured).map(row).collect()
}

/// The median and the largest error, also as factors.
pub(super) fn note(rows: &[BesideRow]) -> String {
    let mut errors: Vec<f64> = rows.iter().map(|row| row.log_error).collect();
    errors.sort_by(f64::total_cmp);
    let (median, worst) = (quantile(&errors, 0.5), quantile(&errors, 1.0));
    format!(
        "|ln(predicted / measured)|: median {median:.3} (a factor of {:.3}), worst {worst:.3} (a factor of {:.3}), over {} sizes",
        median.exp(),
        worst.exp(),
        rows.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_topology::Bytes;

    #[test]
    fn errors_are_symmetric_for_too_fast_and_too_slow() {
        let predicted = |time_us| CollectiveRow { time_us, ..CollectiveRow::default() };
        let measured = MeasuredSize { bytes: Bytes(8), time_us: 10.0 };
        let rows = beside(&[5.0, 20.0, 10.0].map(predicted), &[measured; 3]);
        let errors: Vec<f64> = rows.iter().map(|row| row.log_error).collect();
        assert_eq!(errors, [2f64.ln(), 2f64.ln(), 0.0]);
        assert!(note(&rows).contains("median 0.693 (a factor of 2.000), worst 0.693"), "{}", note(&rows));
    }
}
