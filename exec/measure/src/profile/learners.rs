//! Times learners that share a GPU: replicas on threads, each running its own steps, submitting one step ahead.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lockstep_exec::ExecError;
use lockstep_exec::device::DeviceError;
use lockstep_models::profile::LearnersEntry;

use super::steps::{Rank, Stand, WARM_UP};
use crate::calibrate::interval;

/// Times of steps, in seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps {
    /// From the end of a step to that of the next.
    pub(super) steps: Vec<f64>,
    /// How long the computation of each step waited for its samples.
    pub(super) loads: Vec<f64>,
}

/// Runs `ranks` concurrently, with `steps` timed steps each.
///
/// # Errors
/// Device errors; all ranks must fit.
pub(super) fn steps(stand: &Stand<'_>, ranks: &[u32], steps: u32) -> Result<Steps, ExecError> {
    let (together, failed) = (Barrier::new(ranks.len()), AtomicBool::new(false));
    let learner = |number: u32| -> Result<Steps, ExecError> {
        let made = stand.rank(number).map_err(ExecError::from).and_then(|mut rank| rank.step().map(|()| rank));
        failed.fetch_or(made.is_err(), Ordering::SeqCst);
        together.wait();
        let mut rank = made?;
        // A rank that did not fit has returned its error, and the others' figures are useless.
        if failed.load(Ordering::SeqCst) { Ok(Steps::default()) } else { alone(&mut rank, steps) }
    };
    let learner = &learner;
    let all: Vec<Result<Steps, ExecError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.iter().map(|rank| scope.spawn(move || learner(*rank))).collect();
        let panicked = || {
            let reason = "that its thread has panicked: this is a bug".to_owned();
            Err(DeviceError::Lost { call: "a learner".to_owned(), reason }.into())
        };
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let mut together = Steps::default();
    for own in all {
        let own = own?;
        together.steps.extend(own.steps);
        together.loads.extend(own.loads);
    }
    Ok(together)
}

/// Runs one learner's steps: the next step is submitted before this one is done.
fn alone(rank: &mut Rank<'_>, steps: u32) -> Result<Steps, ExecError> {
    let mut found = Steps::default();
    let mut before: Option<Instant> = None;
    rank.hand_over()?;
    for step in 0..WARM_UP + steps {
        rank.hand_over()?;
        let results = rank.wait_for_iteration()?;
        if step >= WARM_UP {
            if let (Some(before), Some(end)) = (before, results.end) {
                found.steps.push(end.saturating_duration_since(before).as_secs_f64());
            }
            if let [before, after, ..] = results.times[..] {
                found.loads.push(after.saturating_duration_since(before).as_secs_f64());
            }
        }
        before = results.end;
    }
    rank.wait_for_iteration()?;
    Ok(found)
}

/// The profile entries of the measurements, each with its slowdown relative to one learner of the same model and batch.
pub(super) fn entries(all: &[(String, u32, u32, Steps)]) -> Vec<LearnersEntry> {
    let entry = |(model, samples, learners, steps): &(String, u32, u32, Steps)| {
        let own = interval(steps.steps.clone());
        let alone = all.iter().find(|(other, size, count, _)| (other, size, *count) == (model, samples, 1));
        let alone = alone.map_or(own.value, |(.., steps)| interval(steps.steps.clone()).value);
        let slowdown = if alone > 0.0 { (own.value / alone).max(1.0) } else { 1.0 };
        LearnersEntry { model: model.clone(), samples: *samples, learners: *learners, step: own, slowdown }
    };
    all.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learners_are_compared_with_one_of_the_same_model_and_batch() {
        let of = |model: &str, samples, learners, seconds: f64| {
            let steps = Steps { steps: vec![seconds; 7], loads: Vec::new() };
            (model.to_owned(), samples, learners, steps)
        };
        let all =
            [of("a", 16, 1, 2.0), of("a", 16, 2, 3.0), of("a", 32, 1, 4.0), of("a", 32, 4, 3.0), of("b", 8, 2, 1.0)];
        let slowdowns: Vec<f64> = entries(&all).iter().map(|entry| entry.slowdown).collect();
        // 3 / 2; a speed-up beside others is noise; without a learner alone nothing is known.
        assert_eq!(slowdowns, [1.0, 1.5, 1.0, 1.0, 1.0]);
    }
}
