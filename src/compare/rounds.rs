//! Trains every configuration of a comparison in rounds, and repeats what a disturbance of the machine slowed down.

use std::mem::take;

use lockstep_data::Dataset;
use lockstep_experiment::{Configuration, Experiment};
use lockstep_measure::launch::Launch;
use lockstep_measure::operation::Operation;
use lockstep_measure::quiet::Quiet;
use lockstep_measure::training::{MeasuredTraining, Training};
use lockstep_models::{Assignment, Timeline};
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
