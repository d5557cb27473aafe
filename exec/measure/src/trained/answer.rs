//! Summarises a trained sweep: for each arm the error after the last epoch, its mean over the seeds and that mean's
//! interval.

use lockstep_report::{ArmRow, EpochRow};

use crate::convergence::reach;

/// A row for each configuration of each arm, in the order of first occurrence in `rows`.
pub fn answer(rows: &[EpochRow]) -> Vec<ArmRow> {
    let ends: Vec<&EpochRow> = rows.iter().filter(|row| row.ends_run()).collect();
    let mut kinds: Vec<&EpochRow> = Vec::new();
    for row in &ends {
        if !kinds.iter().any(|kind| same(kind, row)) {
            kinds.push(row);
        }
    }
    kinds.into_iter().map(|kind| arm(kind, &ends)).collect()
}

fn same(one: &EpochRow, other: &EpochRow) -> bool {
    one.arm == other.arm && one.setting == other.setting
}

fn arm(kind: &EpochRow, ends: &[&EpochRow]) -> ArmRow {
    let runs: Vec<&EpochRow> = ends.iter().copied().filter(|row| same(kind, row)).collect();
    let whole = || runs.iter().filter(|row| row.diverged_step.is_none());
    let errors: Vec<f64> = whole().filter_map(|row| row.test_error_pct).collect();
    let seconds: Vec<f64> = whole().filter_map(|row| Some(row.step_time_s? * row.steps as f64)).collect();
    let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let (test_error_mean_pct, test_error_interval_pct) = (mean(&errors), reach(&errors));
    ArmRow {
        arm: kind.arm.clone(),
        ranks: kind.setting.ranks,
        global_batch: kind.setting.global_batch,
        learning_rate: kind.learning_rate,
        epochs: runs.iter().map(|row| row.epoch).max().unwrap_or(0),
        runs: runs.len() as u32,
        diverged: (runs.len() - whole().count()) as u32,
        test_error_mean_pct,
        test_error_interval_pct,
        error_mean_pct: test_error_mean_pct,
        error_interval_pct: test_error_interval_pct,
        seconds: mean(&seconds),
    }
}
