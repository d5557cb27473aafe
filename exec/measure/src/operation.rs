//! `Operation`: controls a run while it trains: checkpoints, resuming, interrupts and the stall limit.

use std::mem::take;
use std::path::PathBuf;
use std::time::Duration;

use lockstep_exec::{ExecError, Flight, InjectedFault, Log, Order, Run, Snapshot};
use lockstep_experiment::trained::TrainedRun;
use lockstep_experiment::{Configuration, Experiment};
use lockstep_models::Program;
use lockstep_report::failure::STALLED;
use lockstep_report::log::print_line;
use lockstep_topology::InputError;

use crate::checkpoint::{Checkpoint, Folder, claims_behind};
use crate::flight::Record;
use crate::interrupt::{Interrupt, Signal};
use crate::metrics::Metrics;
use crate::run_failure::located;

/// Default stall limit: a wait without progress for this long ends a run.
pub const STALL_LIMIT: Duration = Duration::from_secs(60);

/// A stalled process gives the other processes this long to report what they know.
const OTHERS: Duration = Duration::from_secs(1);

/// How a run is controlled and observed.
#[derive(Debug)]
pub struct Operation {
    /// Whether the state is saved during the run; the same in all processes.
    pub saves: bool,
    /// Where it is saved; in rank 0's process alone.
    pub folder: Option<Folder>,
    /// The checkpoint that training resumes from, and its file; in all processes.
    pub resumed: Option<(Checkpoint, PathBuf)>,
    /// Whether the user has interrupted the run.
    pub interrupt: Interrupt,
    /// A wait without progress for this long ends the run.
    pub stall_limit: Duration,
    /// The folder of flight records.
    pub flight: PathBuf,
    /// Whether flight records were requested.
    pub signal: Signal,
    /// One line per step, in rank 0's process.
    pub metrics: Option<Metrics>,
    /// Whether an asynchronous device reports when each task ran, for a timeline that is wanted.
    pub timed: bool,
    /// The fault to inject.
    pub fault: Option<InjectedFault>,
}

impl Default for Operation {
    fn default() -> Operation {
        Operation {
            saves: false,
            folder: None,
            resumed: None,
            interrupt: Interrupt::default(),
            stall_limit: STALL_LIMIT,
            flight: PathBuf::from("."),
            signal: Signal::default(),
            metrics: None,
            timed: false,
            fault: None,
        }
    }
}

impl Operation {
    /// Refuses to resume another training; returns the settings that change, in words.
    ///
    /// # Errors
    /// The first flag that differs.
    pub fn check(&self, experiment: &Experiment, configuration: &Configuration) -> Result<Option<String>, InputError> {
        let Some((checkpoint, path)) = &self.resumed else { return Ok(None) };
        let shown = path.display().to_string();
        let run = TrainedRun { experiment, configuration, seed: experiment.seed };
        checkpoint.check(&shown, &run.identity())?;
        let changes = checkpoint.changes(&run.setting());
        let rate = experiment.optimizer.target_rate(configuration.job.gradient_samples());
        let changes = match changes.as_str() {
            "" => String::new(),
            changes => format!("; now {changes}, target rate {rate}"),
        };
        Ok(Some(format!("resuming from {shown}, after {} steps{changes}", checkpoint.steps)))
    }

    /// Steps of `program` already done when its run begins, with `samples` samples per epoch.
    pub fn first(&self, program: &Program, samples: usize) -> u64 {
        let batch = program.global_batch();
        self.resumed
            .as_ref()
            .map_or(0, |(checkpoint, _)| checkpoint.state.position.steps(batch, samples as u64 / batch))
    }

    /// Writes the flight records of this process's ranks (the job has `ranks`), and prints their path.
    pub(crate) fn record(&self, ranks: u32, flights: &[Flight]) {
        match Record::new(ranks, flights).save(&self.flight) {
            Ok(path) => {
                print_line(&format!("flight record: {}; lockstep exec inspect says what is in it", path.display()));
            }
            Err(error) => print_line(&error.to_string()),
        }
    }

    /// Ends this process, one of several in a stalled job: MPI itself would wait for ever. If it is the only process,
    /// the error is returned normally.
    pub(crate) fn end_stalled(&self, processes: u32, error: &ExecError) {
        if processes > 1 {
            print_line(&located(error));
            std::thread::sleep(OTHERS);
            std::process::exit(STALLED);
        }
    }

    /// Ends this process, whose ranks do not end.
    pub(crate) fn end_stuck(&self, error: &ExecError) {
        print_line(&located(error));
        std::process::exit(STALLED);
    }

    /// Rank 0's order for the step after which `steps` of `all` are done.
    pub(crate) fn order(&self, steps: u64, all: u64) -> Order {
        if self.interrupt.asked() {
            Order::SaveAndStop
        } else if steps == all || self.folder.as_ref().is_some_and(|folder| folder.is_due(steps)) {
            Order::Save
        } else {
            Order::Continue
        }
    }

    /// Saves a state of the run that began after `first` steps.
    pub(crate) fn keep(&self, run: TrainedRun<'_>, first: u64, snapshot: Snapshot<'_>) -> Result<(), InputError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let Snapshot { steps, state, log } = snapshot;
        let checkpoint =
            Checkpoint { identity: run.identity(), setting: run.setting(), steps, state, log: self.whole(first, log) };
        folder.keep(steps, |file, pins| checkpoint.write(&run.configuration.job.model, file, pins)).map(drop)
    }

    /// The log of the whole training; `log` is that of the run that began after `first` steps.
    fn whole(&self, first: u64, log: Log) -> Log {
        let Some((Checkpoint { log: before, .. }, _)) = &self.resumed else { return log };
        Log {
            evaluations: [before.evaluations.clone(), log.evaluations].concat(),
            restarts: [before.restarts.clone(), log.restarts].concat(),
            claims: claims_behind(&before.claims, first, &log.claims),
        }
    }

    /// Prepends the earlier log to that of a run.
    pub(crate) fn complete(&self, run: &mut Run) {
        let own = Log {
            evaluations: take(&mut run.evaluations),
            restarts: take(&mut run.restarts),
            claims: take(&mut run.claims),
        };
        Log { evaluations: run.evaluations, restarts: run.restarts, claims: run.claims } = self.whole(run.first, own);
    }
}
