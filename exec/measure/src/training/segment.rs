//! Runs one segment of a training: a number of steps on the ranks of a launch, with watchdog, progress and metrics.

use lockstep_exec::{
    Arenas, Evaluations, ExecError, Flight, InjectedFault, Observer, Order, Run, RunOptions, Snapshot, State,
};
use lockstep_experiment::{Experiment, Length};
use lockstep_report::failure::Failure;
use lockstep_report::log::timed;
use lockstep_report::progress::ProgressLine;
use lockstep_topology::{ErrorPlace, InputError};

use super::{MeasuredTraining, Training};
use crate::checkpoint::claims_from;
use crate::devices::devices;
use crate::launch::Launch;
use crate::metrics::training;
use crate::operation::Operation;
use crate::run_failure::run_failure;

/// Most steps at the start that are left out of statistics.
const WARM_UP: u32 = 5;

/// The part of a training in one call of [`Training::segment`].
pub(super) struct Part<'a> {
    /// Optimizer steps.
    pub(super) steps: u32,
    /// Steps done before, as progress counts them.
    pub(super) first: u64,
    /// The state left by an earlier segment.
    pub(super) start: Option<&'a State>,
    /// The process of each rank; `None`: equally many in each.
    pub(super) hosts: Option<&'a [u32]>,
}

/// Reports progress and saves checkpoints during a segment.
struct Follower<'a> {
    of: Training<'a>,
    progress: &'a ProgressLine,
    label: &'a str,
    /// Identity of the training, for metrics.
    training: &'a str,
    ranks: u32,
    processes: u32,
    global_batch: u64,
    /// Steps before this segment, as progress counts them.
    before: u64,
    /// Steps since training began, before this run and at its end.
    first: u64,
    all: u64,
}

impl Observer for Follower<'_> {
    fn stepped(&self, step: u32, loss: f64) {
        let done = self.before + u64::from(step) + 1;
        self.progress.step(done, loss);
        let of = (self.label, self.of.seed, self.training);
        self.of.operation.metrics.iter().for_each(|file| file.step(of, done, loss, self.global_batch));
    }

    fn saves(&self) -> bool {
        self.of.operation.saves
    }

    fn order(&self, steps: u64) -> Order {
        self.of.operation.order(steps, self.all)
    }

    fn keep(&self, snapshot: Snapshot<'_>) -> Result<(), InputError> {
        self.of.operation.keep(self.of.as_run(), self.first, snapshot)
    }

    fn asks(&self) -> bool {
        self.of.operation.signal.came()
    }

    fn record(&self, flights: &[Flight]) {
        self.of.operation.record(self.ranks, flights);
    }

    fn stalled(&self, error: &ExecError) {
        self.of.operation.end_stalled(self.processes, error);
    }

    fn stuck(&self, error: &ExecError) {
        self.of.operation.end_stuck(error);
    }

    fn fault(&self) -> Option<InjectedFault> {
        self.of.operation.fault
    }
}

impl Training<'_> {
    /// Runs a number of steps, from the beginning or from the state of an earlier segment.
    ///
    /// # Errors
    /// As [`Training::run`].
    pub(super) fn segment(self, launch: &mut Launch, part: Part<'_>) -> Result<Option<MeasuredTraining>, Failure> {
        let Training { experiment, configuration, seed, data, held_out, operation } = self;
        let Part { steps, first: before, start, hosts } = part;
        let program = self.program()?;
        let label = configuration.label();
        let counted = (before, before + u64::from(steps));
        let progress = ProgressLine::new(launch.prints(), &label, counted, program.global_batch());
        let last_epochs = if matches!(experiment.length, Length::Epochs(_)) { experiment.judged_epochs } else { 0 };
        let recompute_bn = experiment.recompute_bn;
        let first = operation.first(&program, data.len());
        let training = training(&self.as_run().identity());
        if let (None, Some(metrics)) = (&operation.resumed, &operation.metrics) {
            metrics.begin(&training, &label, before)?;
        }
        let observer = Follower {
            of: self,
            progress: &progress,
            label: &label,
            training: &training,
            ranks: program.ranks(),
            processes: launch.processes(),
            global_batch: program.global_batch(),
            before,
            first,
            all: first + u64::from(steps),
        };
        let replay = experiment.replay.as_deref().map(|claims| claims_from(claims, first));
        // A resumed training has its weights already.
        let begun = match (&operation.resumed, start, &experiment.initial) {
            (None, None, Some(values)) => {
                let begun = State::beginning(&program, seed, &**values);
                Some(launch.all(begun.map_err(|error| experiment.locate(error)))?)
            }
            _ => None,
        };
        let options = RunOptions {
            steps,
            warm_up: experiment.warmup_steps.unwrap_or(WARM_UP.min(steps / 4)).min(steps.saturating_sub(1)),
            seed,
            start: operation.resumed.as_ref().map(|(checkpoint, _)| &checkpoint.state).or(start).or(begun.as_ref()),
            devices: devices(experiment)?,
            threads_per_rank: experiment.threads_per_rank as usize,
            arenas: Arenas::default(),
            optimizer: experiment.optimizer.clone(),
            evaluations: held_out.map(|held_out| Evaluations {
                held_out,
                last_epochs,
                recompute_bn,
                target: experiment.target,
            }),
            stall_limit: operation.stall_limit,
            timed: operation.timed,
            replay: replay.as_deref(),
            observer: &observer,
        };
        let what = || format!("{label}: {steps} steps");
        let run = progress.beside(|| timed(what, || launch.run(&program, hosts, data, &options)));
        progress.end();
        let run = ended(run, operation, experiment)?;
        let configuration = configuration.clone();
        Ok(run.map(|run| MeasuredTraining {
            configuration,
            program,
            run,
            seed,
            trials: Vec::new(),
            most: Vec::new(),
            tuning: None,
        }))
    }
}

/// The run after it has ended, completed by what was done before it was resumed.
///
/// # Errors
/// Its failure, with its place in the experiment; a run that was stopped.
fn ended(
    run: Result<Option<Run>, ExecError>,
    operation: &Operation,
    experiment: &Experiment,
) -> Result<Option<Run>, Failure> {
    let mut run = run.map_err(|error| match error {
        ExecError::Input(error) => Failure::Input(experiment.locate(error)),
        other => run_failure(other),
    })?;
    if let Some(run) = &mut run {
        operation.complete(run);
        if run.stopped {
            let steps = run.first + run.losses.len() as u64;
            let resume = ErrorPlace::Flag("resume");
            let message = format!("ended after step {steps}, which is kept: resume with {resume}");
            return Err(Failure::Interrupted(message));
        }
    }
    Ok(run)
}
