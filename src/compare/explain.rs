//! Finds which kinds of tasks, and which tasks, account for most of the difference between predictions and measurements.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_models::profile::chain_key;
use lockstep_models::{Op, Program, WAIT};
use lockstep_report::aligned;

use super::Compared;

/// Kinds of tasks that are listed per configuration.
const KINDS: usize = 4;
/// Tasks that are listed per configuration.
const TASKS: usize = 3;
/// A task that makes more than this share of the differences of all tasks is named as their cause.
const MOST: f64 = 0.5;
/// Smaller differences, in shares of the step, have no single cause.
const LEAST: f64 = 0.02;

/// The lines about all configurations; `again` is the command that measures the profile again.
pub(super) fn text(all: &[Compared], again: &str) -> String {
    let mut text = String::from("largest differences, in ms per step and rank:\n");
    let by_task: Vec<Vec<(&str, Difference)>> =
        all.iter().map(|compared| differences(&compared.predicted_by_task(), &compared.measured_by_task())).collect();
    for (compared, tasks) in all.iter().zip(&by_task) {
        let kinds = differences(&compared.predicted_by_kind(), &compared.measured_by_kind());
        let kind = |(name, difference): &(&str, Difference)| {
            difference.cells(if *name == WAIT { "waiting for messages" } else { name })
        };
        let task = |(name, difference): &(&str, Difference)| difference.cells(&format!("  task {name}"));
        let rows: Vec<Vec<String>> =
            kinds.iter().take(KINDS).map(kind).chain(tasks.iter().take(TASKS).map(task)).collect();
        let label = compared.configuration.label();
        text.push_str(&aligned(&[&label, "predicted", "measured", "difference"], &rows));
        text.push('\n');
    }
    text.push_str(&cause(all, &by_task, again).unwrap_or_default());
    text
}

/// Predicted and measured seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Difference {
    predicted: f64,
    measured: f64,
}

impl Difference {
    /// How far apart they are, in seconds.
    fn seconds(self) -> f64 {
        (self.predicted - self.measured).abs()
    }

    /// The row of a table, in milliseconds.
    fn cells(self, name: &str) -> Vec<String> {
        let [predicted, measured] = [self.predicted, self.measured].map(|seconds| seconds * 1e3);
        let difference = format!("{:+.3}", predicted - measured);
        vec![name.to_owned(), format!("{predicted:.3}"), format!("{measured:.3}"), difference]
    }
}

/// The differences by name, the largest first.
fn differences<'a>(
    predicted: &BTreeMap<&'a str, f64>,
    measured: &BTreeMap<&'a str, f64>,
) -> Vec<(&'a str, Difference)> {
    let names: BTreeSet<&str> = predicted.keys().chain(measured.keys()).copied().collect();
    let of = |map: &BTreeMap<&str, f64>, name: &str| map.get(name).copied().unwrap_or(0.0);
    let mut all: Vec<(&str, Difference)> = names
        .into_iter()
        .map(|name| (name, Difference { predicted: of(predicted, name), measured: of(measured, name) }))
        .collect();
    all.sort_by(|a, b| b.1.seconds().total_cmp(&a.1.seconds()));
    all
}

/// The task that makes most of the differences of tasks in every configuration, its entry in the profile, and the cure.
fn cause(all: &[Compared], by_task: &[Vec<(&str, Difference)>], again: &str) -> Option<String> {
    let mut found: Option<(&str, &Program)> = None;
    let mut shares = Vec::new();
    for (compared, tasks) in all.iter().zip(by_task) {
        let (task, share) = largest(tasks, compared.prediction.timeline.step_time_s())?;
        if found.is_some_and(|(other, _)| other != task) {
            return None;
        }
        found = Some((task, &compared.program));
        shares.push(share);
    }
    let (task, program) = found?;
    let least = shares.into_iter().fold(1.0, f64::min);
    let entry = entry(program, task)?;
    Some(format!(
        "{task} makes at least {:.0} % of the tasks' differences in every configuration: check the profile's entry\n  {entry}\n\
         by measuring again: {again}\n",
        100.0 * least
    ))
}

/// The task with the largest difference, and its share of all, if it makes most of them and matters to the step.
fn largest<'a>(differences: &[(&'a str, Difference)], step_s: f64) -> Option<(&'a str, f64)> {
    let (task, first) = differences.first()?;
    let all: f64 = differences.iter().map(|(_, difference)| difference.seconds()).sum();
    let matters = first.seconds() > MOST * all && first.seconds() > LEAST * step_s;
    matters.then_some((*task, first.seconds() / all))
}

/// How `calibrate` names a task's operation: a phase of a chain of layers.
fn entry(program: &Program, task: &str) -> Option<String> {
    let named = program.roles.iter().flat_map(|role| &role.tasks).find(|other| other.name == task)?;
    match named.op {
        Op::Compute { chain, phase, .. } => Some(format!("{} {}", phase.name(), chain_key(program, chain))),
        _ => Some(named.op.kind().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_the_cause_if_it_makes_most_of_the_differences() {
        let predicted = BTreeMap::from([("a", 4.0), ("b", 1.0), ("c", 2.0)]);
        let measured = BTreeMap::from([("a", 1.0), ("b", 1.1), ("d", 0.5)]);
        let all = differences(&predicted, &measured);
        assert_eq!(all.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "c", "d", "b"]);
        let (task, share) = largest(&all, 10.0).expect("three of 5.6");
        assert!(task == "a" && (share - 3.0 / 5.6).abs() < 1e-9, "{task} {share}");
        // A difference of a hundredth of the step, and equal ones, have no cause.
        assert_eq!(largest(&all, 300.0), None);
        assert!(largest(&all[1..], 10.0).is_some_and(|(task, share)| task == "c" && (share - 2.0 / 2.6).abs() < 1e-9));
        let equal = differences(&BTreeMap::from([("a", 1.0), ("b", 1.0)]), &BTreeMap::new());
        assert_eq!(largest(&equal, 1.0), None);
    }
}
