//! One segment of a training: so many steps on the ranks of a launch, watched over, with progress and metrics.

use lockstep_exec::data::Dataset;
use lockstep_exec::{
    Arenas, Evaluations, ExecError, Flight, InjectedFault, Observer, Order, RunOptions, Snapshot, State,
};
use lockstep_experiment::{Configuration, Experiment, Length};
use lockstep_report::failure::Failure;
use lockstep_report::progress::Progress;
use lockstep_topology::InputError;

use super::Measured;
use crate::checkpoint::{claims_from, identity};
use crate::devices::devices;
use crate::launch::Launch;
use crate::metrics::training;
use crate::operation::Operation;
use crate::run_failure::run_failure;

/// Steps at the start that statistics leave out, where there are more.
const WARM_UP: u32 = 5;

/// What one call of [`segment`] does of a training.
pub(crate) struct Part<'a> {
    /// Optimizer steps.
    pub(crate) steps: u32,
    /// Steps that were done before, as progress counts them.
    pub(crate) first: u64,
    /// What an earlier segment left.
    pub(crate) start: Option<&'a State>,
}

/// Shows and keeps what happens in a segment.
struct Follower<'a> {
    configuration: &'a Configuration,
    experiment: &'a Experiment,
    seed: u64,
    operation: &'a Operation,
    progress: &'a Progress,
    label: &'a str,
    /// Identity of the training, for metrics.
    training: &'a str,
    ranks: u32,
    processes: u32,
    global_batch: u64,
    /// Steps before this segment, as progress counts them.
    before: u64,
    /// Steps before this run, and when it is over, since training began.
    first: u64,
    all: u64,
}

impl Observer for Follower<'_> {
    fn stepped(&self, step: u32, loss: f64) {
        let done = self.before + u64::from(step) + 1;
        self.progress.step(done, loss);
        let of = (self.label, self.seed, self.training);
        self.operation.metrics.iter().for_each(|file| file.step(of, done, loss, self.global_batch));
    }

    fn saves(&self) -> bool {
        self.operation.saves
    }

    fn order(&self, steps: u64) -> Order {
        self.operation.order(steps, self.all)
    }

    fn keep(&self, snapshot: Snapshot) -> Result<(), InputError> {
        self.operation.keep((self.experiment, self.configuration), self.seed, self.first, snapshot)
    }

    fn asks(&self) -> bool {
        self.operation.signal.came()
    }

    fn record(&self, flights: &[Flight]) {
        self.operation.record(self.ranks, flights);
    }

    fn stalled(&self, error: &ExecError) {
        self.operation.end_stalled(self.processes, error);
    }

    fn stuck(&self, error: &ExecError) {
        self.operation.end_stuck(error);
    }

    fn fault(&self) -> Option<InjectedFault> {
        self.operation.fault
    }
}

/// So many steps of a configuration's run, from the beginning or from what an earlier segment left.
///
/// # Errors
/// As [`measure`].
pub(crate) fn segment(
    configuration: &Configuration,
    experiment: &Experiment,
    seed: u64,
    (data, held_out): (&Dataset, Option<&Dataset>),
    operation: &Operation,
    launch: &mut Launch,
    Part { steps, first: before, start }: Part<'_>,
) -> Result<Option<Measured>, Failure> {
    let program = configuration.program().map_err(|error| experiment.locate(error))?;
    let label = configuration.label();
    let counted = (before, before + u64::from(steps));
    let progress = Progress::new(launch.speaks(), &label, counted, program.global_batch());
    let last_epochs = if matches!(experiment.length, Length::Epochs(_)) { experiment.judged_epochs } else { 0 };
    let recompute_bn = experiment.recompute_bn;
    let first = operation.first(&program, data.len());
    let training = training(&identity(experiment, configuration, seed));
    let observer = Follower {
        configuration,
        experiment,
        seed,
        operation,
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
    let options = RunOptions {
        steps,
        warm_up: experiment.warmup_steps.unwrap_or(WARM_UP.min(steps / 4)).min(steps.saturating_sub(1)),
        seed,
        start: operation.resumed.as_ref().map(|(checkpoint, _)| &checkpoint.state).or(start),
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
    let run = progress.beside(|| launch.run(&program, data, &options));
    progress.end();
    let mut run = run.map_err(|error| match error {
        ExecError::Input(error) => Failure::Input(experiment.locate(error)),
        other => run_failure(other),
    })?;
    if let Some(run) = &mut run {
        operation.complete(run);
        if run.stopped {
            let steps = run.first + run.losses.len() as u64;
            return Err(Failure::Interrupted(format!("ended after step {steps}, which is kept: go on with --resume")));
        }
    }
    let configuration = configuration.clone();
    Ok(run.map(|run| Measured { configuration, program, run, seed, trials: Vec::new(), tuning: None }))
}
