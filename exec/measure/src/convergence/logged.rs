//! Reads runs with a target accuracy, as reported by `exec run --format json`.

use std::collections::BTreeMap;

use lockstep_report::{MeasuredRow, Setting, VERSION, column_names};
use lockstep_topology::{ErrorPlace, InputError, nearest};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Convergence, Point};

/// A report.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Logged {
    version: u32,
    rows: Vec<Map<String, Value>>,
    #[serde(default, rename = "notes")]
    _notes: Vec<String>,
}

/// The part of its rows that is read; the other columns are checked by name.
#[derive(Deserialize)]
struct Run {
    #[serde(flatten)]
    setting: Setting,
    data: String,
    target_accuracy: Option<f64>,
    #[serde(default)]
    target_epochs: Option<u32>,
    steps_to_target: Option<u32>,
}

/// The runs in `text`, the content of `file`.
pub(super) fn parse(file: &str, text: &str) -> Result<Convergence, InputError> {
    let wrong = |value: &str, message: &str| InputError::new(file, value, message);
    let json = format!("{} json", ErrorPlace::Flag("format"));
    let logged: Logged = serde_json::from_str(text).map_err(|error| {
        let place = ErrorPlace::line(file, error.line());
        InputError::new(place, "no report of exec run", format!("{error}: write one with exec run {json}"))
    })?;
    if u64::from(logged.version) != u64::from(VERSION) {
        let value = format!("version {}", logged.version);
        return Err(InputError::new(file, value, format!("is not {VERSION}: write it again with exec run {json}")));
    }
    let rows = logged.rows.into_iter().enumerate().map(|(number, row)| run(file, number, row));
    let rows = rows.collect::<Result<Vec<Run>, InputError>>()?;
    let Some(first) = rows.first() else {
        return Err(wrong("no rows", &format!("train first: exec run {json}")));
    };
    let Some(target) = first.target_accuracy else {
        let target = ErrorPlace::Flag("target_accuracy");
        return Err(wrong("no target", &format!("train with a target: exec run {target} 0.97 {json}")));
    };
    let same = |run: &Run| {
        run.target_accuracy == Some(target)
            && run.target_epochs == first.target_epochs
            && run.setting.model == first.setting.model
            && run.data == first.data
    };
    if !rows.iter().all(same) {
        return Err(wrong(
            "several models, data sets or targets",
            "keep the runs of one model, one data set and one target in a file",
        ));
    }
    let mut points: BTreeMap<(u64, String, u32), Point> = BTreeMap::new();
    for Run { setting, steps_to_target, .. } in &rows {
        let key = (setting.global_batch, setting.strategy.clone(), setting.learners);
        let (global_batch, strategy, learners) = (key.0, Some(key.1.clone()), Some(key.2));
        let fresh = || Point { global_batch, strategy, learners, samples: Vec::new(), missed: 0 };
        let point = points.entry(key).or_insert_with(fresh);
        match steps_to_target {
            Some(steps) => point.samples.push(f64::from(*steps) * global_batch as f64),
            None => point.missed += 1,
        }
    }
    let median = match first.target_epochs.filter(|epochs| *epochs > 1) {
        Some(epochs) => format!(", median of {epochs} epochs"),
        None => String::new(),
    };
    let points: Vec<Point> = points.into_values().collect();
    if points.iter().all(|point| point.samples.is_empty()) {
        return Err(wrong("no run reached its target", "train longer, or use a lower target"));
    }
    Ok(Convergence {
        model: first.setting.model.clone(),
        target: format!("{} % of the held-out samples of {}{median}", 100.0 * target, first.data),
        source: format!("{} runs in {file}", rows.len()),
        points,
    })
}

/// A row of the report, of which no column may be unknown.
fn run(file: &str, number: usize, row: Map<String, Value>) -> Result<Run, InputError> {
    let names = column_names::<MeasuredRow>();
    let wrong = |value: &str, message: String| InputError::new(file, value, format!("row {}: {message}", number + 1));
    if let Some(unknown) = row.keys().find(|column| !names.contains(column)) {
        let near = nearest(unknown, names.iter().map(String::as_str)).join(", ");
        let hint = if near.is_empty() { String::new() } else { format!("did you mean {near}? ") };
        return Err(wrong(unknown, format!("is no column of exec run; {hint}leave it out")));
    }
    let steps = row.get("steps").and_then(Value::as_u64);
    let run: Run = serde_json::from_value(Value::Object(row))
        .map_err(|error| wrong("no row of exec run", format!("{error}: write it again")))?;
    if let (Some(to_target), Some(steps)) = (run.steps_to_target, steps)
        && u64::from(to_target) > steps
    {
        let message = format!("is more than the run's {steps} steps: keep the report as it was printed");
        return Err(wrong(&format!("steps_to_target {to_target}"), message));
    }
    if run.setting.global_batch == 0 || run.target_accuracy.is_some_and(|of| !(of > 0.0 && of <= 1.0)) {
        let message = "needs a global batch of at least 1 and a target from 0 to 1: keep the report as it was printed";
        return Err(wrong("no row of exec run", message.to_owned()));
    }
    Ok(run)
}
