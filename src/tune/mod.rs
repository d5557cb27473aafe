//! The auto-tuner at work: predictions or segments of a run with one learner a device, two, three, until throughput says stop.

mod measured;
mod predicted;

use lockstep_models::{Trial, Tuner};

pub use measured::measured;
pub use predicted::predicted;

/// More learners than any device has use for.
const MOST: u32 = 64;

/// `learners per device: 1: 100 images/s, 2: 150, 3: 152: settled at 3 (…)`.
fn trail(tuner: &Tuner, threshold: f64, most: u32) -> String {
    let trial = |trial: &Trial| format!("{}: {:.1}", trial.learners[0], trial.throughput[0]);
    let trials: Vec<String> = tuner.trials().iter().map(trial).collect();
    format!(
        "learners per device and images/s of each device: {}; settled at {} (threshold {} %, at most {most} fit)",
        trials.join(", "),
        tuner.learners()[0],
        threshold * 100.0
    )
}
