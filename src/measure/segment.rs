//! One segment of a training: so many steps on the ranks of a launch, watched over, with progress and metrics.

use lockstep_exec::data::Dataset;
use lockstep_exec::{Arenas, Evaluations, ExecError, Flight, Options, Saving, State, Watch};

use super::Measured;
use crate::checkpoint::{claims_from, identity};
use crate::experiment::{Configuration, Experiment, Length};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::metrics::training;
use crate::operation::Operation;
use crate::progress::Progress;

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
    let show = |step: u32, loss: f64| {
        let done = before + u64::from(step) + 1;
        progress.step(done, loss);
        let of = (&*label, seed, &*training);
        operation.metrics.iter().for_each(|file| file.step(of, done, loss, program.global_batch()));
    };
    let (ranks, processes) = (program.ranks(), launch.processes());
    let asked = || operation.signal.came();
    let records = |flights: &[Flight]| operation.record(ranks, flights);
    let stalled = |error: &ExecError| operation.end_stalled(processes, error);
    let stuck = |error: &ExecError| operation.end_stuck(error);
    let all = first + u64::from(steps);
    let order = |done: u64| operation.order(done, all);
    let keep = |snapshot| operation.keep((experiment, configuration), seed, first, snapshot);
    let replay = experiment.replay.as_deref().map(|claims| claims_from(claims, first));
    let options = Options {
        steps,
        warm_up: WARM_UP.min(steps / 4),
        seed,
        start: operation.resumed.as_ref().map(|(checkpoint, _)| &checkpoint.state).or(start),
        saving: operation.saves.then_some(Saving { order: &order, keep: &keep }),
        devices: experiment.devices()?,
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
        watch: Some(Watch { asked: &asked, records: &records, stalled: &stalled, stuck: &stuck }),
        timed: operation.timed,
        fault: operation.fault,
        replay: replay.as_deref(),
        progress: Some(&show),
        ..Options::default()
    };
    let run = progress.beside(|| launch.run(&program, data, &options));
    progress.end();
    let mut run = run.map_err(|error| match error {
        ExecError::Input(error) => Failure::Input(experiment.locate(error)),
        other => other.into(),
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
