//! Runs the auto-tuner during training: segments of iterations, each with another number of learners, with a barrier
//! and a new program between them (Koliousis et al. 2019, §4.4).
//!
//! Learners, their average model and the position in the data are carried over; a new learner starts from the average
//! model, and α follows their number.

use lockstep_exec::State;
use lockstep_experiment::{Length, TransportKind};
use lockstep_models::{Trial, Tuner};
use lockstep_report::failure::Failure;
use lockstep_topology::{ErrorPlace, InputError};

use super::{MeasuredTraining, Part, Training};
use crate::devices::devices;
use crate::launch::Launch;
use crate::run_failure::run_failure;

/// Iterations per observation; the first ones, in which memory is new, do not count.
const SEGMENT: u32 = 20;

impl Training<'_> {
    /// Trains as [`Training::run`] does, while the tuner searches for the number of learners.
    ///
    /// # Errors
    /// As there; ranks of several processes, and a log that does not fit this run.
    pub(super) fn tuned(self, launch: &mut Launch) -> Result<Option<MeasuredTraining>, Failure> {
        let Training { experiment, configuration, seed, data, .. } = self;
        if experiment.transport == TransportKind::Mpi {
            let transport = ErrorPlace::Flag("transport");
            let message = format!(
                "learners cannot be added to processes that mpirun started: use {transport} threads, or a number"
            );
            return Err(experiment.locate(InputError::flag("learners", "auto", message)).into());
        }
        if experiment.replay.is_some() {
            let replay = ErrorPlace::Flag("replay");
            let message =
                format!("claims are of a run with one number of learners: give that number, or leave {replay} out");
            return Err(experiment.locate(InputError::flag("learners", "auto", message)).into());
        }
        let label = configuration.label();
        let log = experiment.tuning.iter().find(|run| run.configuration == label && run.seed == seed);
        let log: Option<&[Trial]> = log.map(|run| run.trials.as_slice());
        let most = self.most_here()?;
        let devices = f64::from(configuration.job.workers);
        let mut tuner = Tuner::new(&[most], true, experiment.tuner_threshold);
        let (mut state, mut losses): (Option<State>, Vec<f64>) = (None, Vec::new());
        loop {
            let tuned = experiment.with_learners(configuration, tuner.learners()[0])?;
            let tuned = Training { configuration: &tuned, ..self };
            let program = tuned.program()?;
            let all = tuned.steps(experiment.length, &program)?;
            let left = all.saturating_sub(match (experiment.length, &state) {
                (_, None) => 0,
                (Length::Steps(_), _) => losses.len() as u32,
                (Length::Epochs(_), Some(state)) => {
                    let per_epoch = data.len() as u64 / program.global_batch();
                    let of_epoch = state.position.samples.div_ceil(program.global_batch()).min(per_epoch);
                    (state.position.epoch * per_epoch + of_epoch) as u32
                }
            });
            let count = if tuner.converged() { left } else { SEGMENT.min(left) };
            let last = count == left;
            let held_out = self.held_out.filter(|_| last);
            // A run that has already ended takes one more step, to return its state.
            let part = Part { steps: count.max(1), first: losses.len() as u64, start: state.as_ref() };
            let Some(mut measured) = (Training { held_out, ..tuned }).segment(launch, part)? else { return Ok(None) };
            losses.append(&mut measured.run.losses);
            if !tuner.converged() {
                let here =
                    tuned.configuration.job.global_batch() as f64 / measured.run.timeline.step_time_s() / devices;
                let seen = match log.map(|log| log.get(tuner.trials().len())) {
                    None => here,
                    Some(Some(trial)) if trial.learners == tuner.learners() && trial.throughput.len() == 1 => {
                        trial.throughput[0]
                    }
                    Some(_) => {
                        let message = "does not follow the log: it is of another model, machine, threshold or length";
                        return Err(InputError::flag("replay_tuner", label, message).into());
                    }
                };
                tuner.observe(&[seen]);
            }
            if last {
                measured.run.losses = losses;
                measured.trials = tuner.trials().to_vec();
                measured.tuning = Some(format!("{label}: {}", tuner.trail()));
                return Ok(Some(measured));
            }
            state = Some(measured.run.state());
        }
    }

    /// The most learners per device of this machine: four per core, as far as memory holds them.
    fn most_here(&self) -> Result<u32, Failure> {
        let Training { experiment, configuration, .. } = self;
        let program = self.program()?;
        let threads = experiment.threads_per_rank as usize;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let ranks = (4 * cores / threads.max(1)) as u32;
        let most = ranks.min(devices(experiment)?.most_ranks(&program, threads).map_err(run_failure)?)
            / configuration.job.workers.max(1);
        Ok(most.clamp(1, Tuner::MOST))
    }
}
