//! Finds the value of a published row on an axis: its figure, or what follows from it and the batch, or from it and
//! a second row.
//!
//! Hours of training become seconds of a step where samples, passes and batch are known; a multiple of the throughput
//! of a configuration for which the paper has a figure is itself a throughput. Nothing predicted enters.

use crate::figures::first;
use crate::paper::Paper;
use crate::quantity::Quantity;
use crate::row::CaseRow;
use lockstep_experiment::Experiment;
use lockstep_report::failure::Failure;

/// The published figure of `row` converted to `wanted` of the same configuration; `None` where it does not follow.
///
/// # Errors
/// A configuration that does not exist.
pub(super) fn published(paper: &Paper, row: &CaseRow, wanted: &Quantity) -> Result<Option<f64>, Failure> {
    let (Some(figure), Some(quantity)) = (row.published.map(|figure| figure * row.unit.factor), &row.quantity) else {
        return Ok(None);
    };
    let rate = |rate: Result<Option<f64>, Failure>, of: &dyn Fn(f64) -> f64| Ok(rate?.map(of));
    match (quantity, wanted) {
        (Quantity::BackwardTime, Quantity::BackwardTime) | (Quantity::TaskTime, Quantity::TaskTime) => Ok(Some(figure)),
        (Quantity::Computed(ours), Quantity::Computed(theirs)) => Ok((ours == theirs).then_some(figure)),
        (_, Quantity::Throughput) => images_per_s(paper, row),
        (_, Quantity::StepTime | Quantity::Time { .. }) => {
            let images = images_per_step_or_run(wanted, &row.at)?;
            rate(images_per_s(paper, row), &|images_per_s| images / images_per_s)
        }
        (_, Quantity::Speedup { over }) => times(paper, row, over),
        (_, Quantity::Slowdown { over }) => {
            let batches = batch(&row.at)? / batch(over)?;
            rate(times(paper, row, over), &|times| batches / times)
        }
        (_, Quantity::Efficiency { over }) => {
            let ranks = ranks(&row.at) / ranks(over);
            rate(times(paper, row, over), &|times| times / ranks)
        }
        _ => Ok(None),
    }
}

/// The images per second that follow from a row's figure.
fn images_per_s(paper: &Paper, row: &CaseRow) -> Result<Option<f64>, Failure> {
    let Some(figure) = row.published.map(|figure| figure * row.unit.factor) else { return Ok(None) };
    match &row.quantity {
        Some(Quantity::Throughput) => Ok(Some(figure)),
        Some(quantity @ (Quantity::StepTime | Quantity::Time { .. })) => {
            Ok(Some(images_per_step_or_run(quantity, &row.at)? / figure))
        }
        Some(Quantity::Speedup { over } | Quantity::Slowdown { over } | Quantity::Efficiency { over }) => {
            let Some(theirs) = absolute(paper, over) else { return Ok(None) };
            let theirs = images_per_s(paper, theirs)?;
            Ok(theirs.zip(own(row, figure)?).map(|(theirs, times)| theirs * times))
        }
        _ => Ok(None),
    }
}

/// Images of a step, or of all epochs.
fn images_per_step_or_run(of: &Quantity, at: &Experiment) -> Result<f64, Failure> {
    let batch = batch(at)?;
    // Whole batches: the remainder of an epoch is dropped, as in predictions.
    Ok(if let Quantity::Time { epochs, samples } = of { epochs * (samples / batch).floor() * batch } else { batch })
}

/// The multiple of the throughput of `over` that follows from a row's figure.
fn times(paper: &Paper, row: &CaseRow, over: &Experiment) -> Result<Option<f64>, Failure> {
    if let Some(
        Quantity::Speedup { over: own_over }
        | Quantity::Slowdown { over: own_over }
        | Quantity::Efficiency { over: own_over },
    ) = &row.quantity
        && **own_over == *over
    {
        return row.published.map_or(Ok(None), |figure| own(row, figure * row.unit.factor));
    }
    let Some(theirs) = absolute(paper, over) else { return Ok(None) };
    let theirs = images_per_s(paper, theirs)?;
    Ok(images_per_s(paper, row)?.zip(theirs).map(|(ours, theirs)| ours / theirs))
}

/// The row with a time or throughput of exactly this configuration.
fn absolute<'a>(paper: &'a Paper, of: &Experiment) -> Option<&'a CaseRow> {
    let absolute = |row: &&CaseRow| {
        matches!(row.quantity, Some(Quantity::Time { .. } | Quantity::StepTime | Quantity::Throughput)) && row.at == *of
    };
    paper.rows.iter().find(absolute)
}

/// The multiple of the throughput of its own `over` that follows from a row's figure.
fn own(row: &CaseRow, figure: f64) -> Result<Option<f64>, Failure> {
    Ok(match &row.quantity {
        Some(Quantity::Speedup { .. }) => Some(figure),
        Some(Quantity::Slowdown { over }) => Some(batch(&row.at)? / batch(over)? / figure),
        Some(Quantity::Efficiency { over }) => Some(figure * ranks(&row.at) / ranks(over)),
        _ => None,
    })
}

/// Samples of a step.
fn batch(of: &Experiment) -> Result<f64, Failure> {
    Ok(first(of)?.setting().global_batch as f64)
}

fn ranks(of: &Experiment) -> f64 {
    f64::from(of.ranks.first().copied().unwrap_or(1))
}
