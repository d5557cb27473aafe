//! Runs the auto-tuner during training: segments of iterations, each with another number of learners, with a barrier
//! and a new program between them (Koliousis et al. 2019, §4.4).
//!
//! Learners, their average model and the position in the data are carried over; a new learner starts from the average
//! model, and α follows their number.

use std::ops::ControlFlow;

use lockstep_exec::State;
use lockstep_experiment::Length;
use lockstep_experiment::tuner_log::Logged;
use lockstep_models::{DeviceRates, Trial, Tuner};
use lockstep_report::failure::Failure;
use lockstep_topology::{ErrorPlace, InputError};

use super::{MeasuredTraining, Part, Training};
use crate::devices::devices;
use crate::launch::Launch;
use crate::run_failure::run_failure;

/// Iterations per observation; the first ones, in which memory is new, do not count.
const SEGMENT: u32 = 20;

impl Training<'_> {
    /// Trains as [`Training::run`] does, while the tuner searches for the number of learners. All processes of a job
    /// follow the observations of rank 0's, and continue from its state.
    ///
    /// # Errors
    /// As there; a log that does not fit this run.
    pub(super) fn tuned(self, launch: &mut Launch) -> Result<Option<MeasuredTraining>, Failure> {
        let Training { experiment, configuration, .. } = self;
        if experiment.replay.is_some() {
            let replay = ErrorPlace::Flag("replay");
            let message =
                format!("claims are of a run with one number of learners: give that number, or leave {replay} out");
            return Err(experiment.locate(InputError::flag("learners", "auto", message)).into());
        }
        let most = match self.log().map(|log| log.most.clone()) {
            Some(most) if most.len() == configuration.devices() as usize => most,
            _ => self.most_here(launch)?,
        };
        let mut tuner = Tuner::new(&most, experiment.tuner_threshold);
        let (mut state, mut losses, mut done): (Option<State>, Vec<f64>, u32) = (None, Vec::new(), 0);
        loop {
            let tuned = experiment.with_learners_of(configuration, &tuner.learners())?;
            let tuned = Training { configuration: &tuned, ..self };
            let left = tuned.left(done, state.as_ref())?;
            let count = if tuner.converged() { left } else { SEGMENT.min(left) };
            let last = count == left;
            let held_out = self.held_out.filter(|_| last);
            let hosts = tuned.hosts(launch)?;
            // A run that has already ended takes one more step, to return its state.
            let steps = count.max(1);
            let part = Part { steps, first: u64::from(done), start: state.as_ref(), hosts: Some(&hosts) };
            let mut measured = (Training { held_out, ..tuned }).segment(launch, part)?;
            done += steps;
            measured.iter_mut().for_each(|measured| losses.append(&mut measured.run.losses));
            if !tuner.converged() {
                tuner.observe(&tuned.seen(launch, &tuner, measured.as_ref())?);
            }
            if last {
                return Ok(measured.map(|mut measured| {
                    measured.run.losses = losses;
                    (measured.trials, measured.most) = (tuner.trials().to_vec(), tuner.most());
                    measured.tuning = Some(format!("{}: {}", configuration.label(), tuner.trail()));
                    measured
                }));
            }
            state = Some(tuned.carried(launch, measured.as_ref())?);
        }
    }

    /// Steps that are left after `done` steps and with the position of `state` in the data.
    fn left(&self, done: u32, state: Option<&State>) -> Result<u32, Failure> {
        let program = self.program()?;
        let all = self.steps(self.experiment.length, &program)?;
        Ok(all.saturating_sub(match (self.experiment.length, state) {
            (_, None) => 0,
            (Length::Steps(_), _) => done,
            (Length::Epochs(_), Some(state)) => {
                let per_epoch = self.data.len() as u64 / program.global_batch();
                let of_epoch = state.position.samples.div_ceil(program.global_batch()).min(per_epoch);
                (state.position.epoch * per_epoch + of_epoch) as u32
            }
        }))
    }

    /// The next observation: that of the log, or what rank 0's process measured.
    fn seen(&self, launch: &Launch, tuner: &Tuner, measured: Option<&MeasuredTraining>) -> Result<Vec<f64>, Failure> {
        if let ControlFlow::Break(logged) = self.logged(tuner) {
            return Ok(logged?);
        }
        let own = measured.map_or_else(Vec::new, |measured| self.rates(tuner, measured));
        let words: Vec<String> = own.iter().map(|figure| figure.to_bits().to_string()).collect();
        let first = launch.texts(&words.join(" ")).swap_remove(0);
        Ok(first.split_whitespace().filter_map(|word| word.parse().ok()).map(f64::from_bits).collect())
    }

    /// The observation of the log, if there is one.
    fn logged(&self, tuner: &Tuner) -> ControlFlow<Result<Vec<f64>, InputError>> {
        let Some(log) = self.log() else { return ControlFlow::Continue(()) };
        let apart = |trial: &&Trial| trial.throughput.len() == 1 || self.experiment.tunes_devices_apart();
        ControlFlow::Break(match log.trials.get(tuner.trials().len()) {
            Some(trial) if tuner.follows(trial) && apart(&trial) => Ok(trial.throughput.clone()),
            _ => {
                let message = "does not follow the log: it is of another model, machine, threshold or length";
                Err(InputError::flag("replay_tuner", log.configuration.clone(), message))
            }
        })
    }

    /// The log of this run; it is of the configuration of one learner on each device.
    fn log(&self) -> Option<&Logged> {
        let label = self.experiment.with_learners(self.configuration, 1).ok()?.label();
        self.experiment.tuning.iter().find(|run| run.configuration == label && run.seed == self.seed)
    }

    /// Images per second of a device, of each where they differ. What the first observation decides is kept.
    fn rates(&self, tuner: &Tuner, measured: &MeasuredTraining) -> Vec<f64> {
        let (learners, timeline) = (tuner.learners(), &measured.run.timeline);
        let rates = DeviceRates::of(&measured.program, timeline, self.experiment.tuner_threshold);
        let apart = match (tuner.together(), &rates) {
            (None, Some(rates)) => rates.differ && self.experiment.tunes_devices_apart(),
            (together, _) => together == Some(false),
        };
        match rates {
            Some(rates) if apart => rates.images_per_s,
            // A device of which nothing was seen takes no other learner.
            None if apart => vec![0.0; learners.len()],
            _ => vec![measured.program.global_batch() as f64 / timeline.step_time_s() / learners.len() as f64],
        }
    }

    /// The most learners of each device: four per core of its machine, as far as memory holds them.
    fn most_here(&self, launch: &Launch) -> Result<Vec<u32>, Failure> {
        let Training { experiment, configuration, .. } = self;
        let program = self.program()?;
        let threads = experiment.threads_per_rank as usize;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let ranks = (4 * cores / threads.max(1)) as u32;
        let places = self.hosts(launch)?;
        let hosts = launch.hosts();
        let host = |device: u32| hosts[places[device as usize] as usize];
        let own = hosts[launch.process() as usize];
        let devices_here = (0..configuration.devices()).filter(|device| host(*device) == own).count() as u32;
        let fit = devices(experiment).map_err(Failure::from).and_then(|devices| {
            let fit = devices.most_ranks(&program, threads).map_err(run_failure)?;
            Ok((ranks.min(fit) / devices_here.max(1)).clamp(1, Tuner::MOST))
        });
        let all = launch.texts(&launch.all(fit)?.to_string());
        let of_process = |process: u32| all[process as usize].parse().unwrap_or(1);
        Ok((0..configuration.devices()).map(|device| of_process(places[device as usize])).collect())
    }
}
