//! Reads runs with a target accuracy, as reported by `exec run --format json`.

use std::collections::BTreeMap;

use lockstep_report::Setting;
use lockstep_topology::{ErrorPlace, InputError};
use serde::Deserialize;

use super::{Convergence, Point};

/// The part of a report that is read.
#[derive(Deserialize)]
struct Logged {
    rows: Vec<Run>,
}

/// The part of its rows that is read.
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
    let Some(first) = logged.rows.first() else {
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
    };
    if !logged.rows.iter().all(same) {
        return Err(wrong("several models or targets", "keep the runs of one model and one target in a file"));
    }
    let mut points: BTreeMap<(u64, String, u32), Point> = BTreeMap::new();
    for Run { setting, steps_to_target, .. } in &logged.rows {
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
        source: format!("{} runs in {file}", logged.rows.len()),
        points,
    })
}
