//! Trains every configuration of a comparison in rounds, and repeats what a disturbance of the machine slowed down.

use std::mem::take;

use lockstep_data::Dataset;
use lockstep_experiment::{Configuration, Experiment, Length};
use lockstep_measure::launch::Launch;
use lockstep_measure::operation::Operation;
use lockstep_measure::quiet::Quiet;
use lockstep_measure::training::{MeasuredTraining, Training};
use lockstep_models::{Assignment, Timeline};
use lockstep_report::PredictedRow;
use lockstep_report::failure::Failure;
use lockstep_topology::InputError;

use super::ROUNDS;

/// Attempts at a run of a configuration in a round until one is undisturbed.
const TRIALS: usize = 3;

/// What is trained, and on how many hosts.
pub(super) struct Rounds<'a> {
    pub(super) configurations: &'a [Configuration],
    /// The experiment of each configuration's runs.
    pub(super) runs: &'a [Experiment],
    pub(super) train: &'a Dataset,
    pub(super) operation: &'a Operation,
    pub(super) hosts: u32,
}

/// What the rounds measured, in the process that prints.
#[derive(Default)]
pub(super) struct Trained {
    /// By configuration: the training of the first round.
    pub(super) first: Vec<MeasuredTraining>,
    /// By configuration: a timeline per round.
    pub(super) timelines: Vec<Vec<Timeline>>,
    /// By configuration: rounds that stayed disturbed.
    pub(super) disturbed: Vec<u32>,
    /// Runs that were repeated after a disturbance.
    pub(super) repeated: usize,
    /// How many times as long as while calibrating a reference benchmark took beside the most disturbed run.
    pub(super) farthest: f64,
}

impl Rounds<'_> {
    /// Trains all configurations [`ROUNDS`] times, each once in every round.
    ///
    /// # Errors
    /// A run that fails, two runs of one seed with different weights.
    pub(super) fn train(
        &self,
        launch: &mut Launch,
        quiet: &mut Quiet,
        note: &mut impl FnMut(&str),
    ) -> Result<Trained, Failure> {
        let count = self.configurations.len();
        let timed: Vec<bool> = self.configurations.iter().map(first_come).collect::<Result<_, _>>()?;
        let mut done = Trained {
            timelines: vec![Vec::new(); count],
            disturbed: vec![0; count],
            farthest: 1.0,
            ..Trained::default()
        };
        let mut trials = 0;
        for round in 1..=ROUNDS {
            if launch.prints() {
                note(&format!("training, round {round} of {ROUNDS}"));
            }
            for (index, configuration) in self.configurations.iter().enumerate() {
                let experiment = &self.runs[index];
                let (data, operation) = (self.train, self.operation);
                let mut train_once = |launch: &mut Launch| {
                    trials += 1;
                    Training { experiment, configuration, seed: experiment.seed, data, held_out: None, operation }
                        .run(launch)
                };
                // The pace of one host says nothing about the others.
                let (measured, off) = match self.hosts {
                    1 => quiet.measure_together(TRIALS, launch, train_once)?,
                    _ => (train_once(launch)?, 1.0),
                };
                done.farthest = done.farthest.max(off);
                done.disturbed[index] += u32::from(Quiet::disturbed(off));
                let changed =
                    |of: &MeasuredTraining| round > 1 && done.first[index].run.weights_sha256 != of.run.weights_sha256;
                // The process that has the weights tells the others.
                launch.all(if !timed[index] && measured.as_ref().is_some_and(changed) {
                    let (label, seed) = (configuration.label(), experiment.seed);
                    Err(Failure::Run(format!("{label}: two runs of seed {seed} ended with different weights")))
                } else {
                    Ok(())
                })?;
                let Some(mut measured) = measured else { continue };
                done.timelines[index].push(take(&mut measured.run.timeline));
                if round == 1 {
                    done.first.push(measured);
                }
            }
        }
        done.repeated = trials - ROUNDS as usize * count;
        Ok(done)
    }
}

/// Whether timing decides which learner trains on which batch, so that equal seeds give other weights.
fn first_come(configuration: &Configuration) -> Result<bool, InputError> {
    let averaging = configuration.program()?.averaging;
    Ok(averaging.is_some_and(|averaging| averaging.assignment == Assignment::FirstCome))
}

/// Fewest steps of a run whose median is meaningful: three are left out.
const FEWEST: u32 = 12;

/// The experiment of one configuration's run: as many steps as take `seconds_per_run` by its prediction, at least 12 and
/// at most its `steps`. `agreed` makes the number known to the processes that have no prediction, which give 0.
pub(super) fn run_of(
    experiment: &Experiment,
    predicted: Option<&PredictedRow>,
    agreed: impl FnOnce(u32) -> u32,
) -> Experiment {
    let (Some(seconds), Length::Steps(most)) = (experiment.seconds_per_run, experiment.length) else {
        return experiment.clone();
    };
    let fitting = |row: &PredictedRow| ((seconds / row.step_time_s) as u32).clamp(FEWEST.min(most), most);
    Experiment { length: Length::Steps(agreed(predicted.map_or(0, fitting))), ..experiment.clone() }
}

/// `60`, or `12 to 60`.
pub(super) fn span(steps: impl Iterator<Item = u32> + Clone) -> String {
    let (least, most) = (steps.clone().min().unwrap_or(0), steps.max().unwrap_or(0));
    if least == most { most.to_string() } else { format!("{least} to {most}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_take_their_seconds_by_the_prediction() {
        let experiment = Experiment { seconds_per_run: Some(0.6), length: Length::Steps(60), ..Experiment::default() };
        let steps = |step_time_s: f64| {
            let row = PredictedRow { step_time_s, ..PredictedRow::default() };
            run_of(&experiment, Some(&row), |own| own).length.steps()
        };
        assert_eq!([0.001, 0.02, 1.0].map(steps), [Some(60), Some(30), Some(12)]);
        // A process without predictions takes the number of the one that has them.
        assert_eq!(run_of(&experiment, None, |own| own.max(30)).length, Length::Steps(30));
        let whole = Experiment { seconds_per_run: None, ..experiment };
        assert_eq!(run_of(&whole, None, |_| 1).length, Length::Steps(60));
        assert_eq!((span([60, 12].into_iter()), span([60].into_iter())), ("12 to 60".to_owned(), "60".to_owned()));
    }
}
