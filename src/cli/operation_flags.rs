//! Defines the flags of a run's operation: checkpoints, resuming, limits and records.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lockstep_exec::InjectedFault;
use lockstep_measure::checkpoint::{Every, Folder, latest};
use lockstep_measure::interrupt::{Interrupt, Signal};
use lockstep_measure::launch::Launch;
use lockstep_measure::metrics::Metrics;
use lockstep_measure::operation::{Operation, STALL_LIMIT};
use lockstep_measure::quiet::PATIENCE;
use lockstep_report::failure::Failure;
use lockstep_report::log;
use lockstep_topology::InputError;

use super::flags::parsed;
use lockstep_experiment::{Configuration, Experiment};

/// Flags of a run's operation.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Operation")]
pub(super) struct OperationFlags {
    /// Keep the state of training in this folder, the last two of them; also at Ctrl-C and at the end
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// How often: a number of steps or of seconds, e.g. 100 or 30s [default: 300s]
    #[arg(long, value_parser = parsed::<Every>, value_name = "N[steps|s]", requires = "checkpoint")]
    checkpoint_every: Option<Every>,
    /// Resume from the latest complete checkpoint in this folder, or from this file; all processes read it
    #[arg(long, value_name = "DIR|FILE")]
    resume: Option<PathBuf>,
    /// Append a line of JSON for each step to this file: step, loss on rank 0, images_per_s, elapsed_s
    #[arg(long, value_name = "FILE.jsonl")]
    metrics: Option<PathBuf>,
    /// End the run with a report of which ranks wait for which when nothing has progressed for this long [default: 60s]
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    stall_limit: Option<Duration>,
    /// Where a stall, or SIGUSR1, leaves what each rank did last, for exec inspect; made if it is missing [default: the present
    /// folder]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    flight: PathBuf,
    /// Let something go wrong, e.g. hang:1@3: on rank 1 in step 3
    #[arg(long, value_parser = parsed::<InjectedFault>, value_name = "FAULT", hide = true)]
    fault: Option<InjectedFault>,
}

/// Reads `60`, `60s` and `0.5s`.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.trim().trim_end_matches('s').trim().parse::<f64>().ok();
    let taken = number.filter(|seconds| (0.1..=1e6).contains(seconds)).map(Duration::from_secs_f64);
    taken.ok_or_else(|| format!("{text:?}: must be a number of seconds from 0.1 to 1000000, such as 60s"))
}

/// How long a measurement waits for a quiet machine and repeats.
#[derive(Debug, Args)]
pub(super) struct PatienceFlag {
    /// The total time to wait for a quiet machine and to repeat what other programs disturbed [default: 90s]
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    patience: Option<Duration>,
}

impl PatienceFlag {
    /// The total time to wait and repeat.
    pub(super) fn limit(&self) -> Duration {
        self.patience.unwrap_or(PATIENCE)
    }
}

impl OperationFlags {
    /// The output file, with its flag.
    pub(super) fn output(&self) -> (&'static str, Option<&Path>) {
        ("--metrics", self.metrics.as_deref())
    }

    /// Refuses runs that cannot be saved or resumed, before the processes join each other.
    ///
    /// # Errors
    /// Several configurations or seeds, or an auto-tuned number of learners.
    pub(super) fn check(&self, experiment: &Experiment, configurations: &[Configuration]) -> Result<(), InputError> {
        if self.flight.exists() && !self.flight.is_dir() {
            return Err(self.no_flight("is a file: name a folder"));
        }
        let asked = [("--checkpoint", &self.checkpoint), ("--resume", &self.resume)];
        for (flag, path) in asked.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
            let refused = |message: &str| Err(InputError::new(flag, path.display().to_string(), message));
            if configurations.len() != 1 || experiment.seeds > 1 {
                return refused("a checkpoint is of one run: use one configuration and one seed");
            }
            experiment.refuse_growth("a checkpoint")?;
            if experiment.tunes {
                return refused("a checkpoint is of a number of learners: give one instead of --learners auto");
            }
        }
        Ok(())
    }

    /// The refusal of the folder of flight records.
    fn no_flight(&self, message: &str) -> InputError {
        InputError::flag("flight", self.flight.display().to_string(), message)
    }

    /// A wait without progress for this long ends the run.
    pub(super) fn stall_limit(&self) -> Duration {
        self.stall_limit.unwrap_or(STALL_LIMIT)
    }

    /// The requested operation, in this process of `launch`.
    ///
    /// # Errors
    /// A folder that cannot be written or is in use, no intact checkpoint, or one of another training.
    pub(super) fn open(
        &self,
        experiment: &Experiment,
        configuration: &Configuration,
        launch: &Launch,
    ) -> Result<Operation, Failure> {
        let prints = launch.prints();
        let print = |text: &str| {
            if prints {
                log::print_line(text);
            }
        };
        std::fs::create_dir_all(&self.flight)
            .map_err(|error| self.no_flight(&format!("cannot be made: {error}; name a folder that can be written")))?;
        let mut operation = Operation {
            saves: self.checkpoint.is_some(),
            stall_limit: self.stall_limit(),
            flight: self.flight.clone(),
            signal: Signal::listen()?,
            fault: self.fault,
            ..Operation::default()
        };
        if let (Some(path), true) = (&self.metrics, prints) {
            operation.metrics = Some(Metrics::open(path)?);
        }
        if let Some(path) = &self.resume {
            operation.resumed = Some(latest(path, |error| print(&error.to_string()))?);
            let warning = operation.check(experiment, configuration)?;
            warning.iter().for_each(|warning| print(warning));
        }
        if let Some(path) = &self.checkpoint {
            operation.interrupt = Interrupt::listen(prints, launch.processes() > 1)?;
            if prints {
                let every = self.checkpoint_every.unwrap_or(Every::Time(Duration::from_secs(300)));
                let (folder, dead) = Folder::open(path, every)?;
                dead.iter().for_each(|dead| print(&format!("{dead} has ended without giving {} back", path.display())));
                operation.folder = Some(match &operation.resumed {
                    Some((_, from)) => folder.resumed_from(from),
                    None => folder,
                });
            }
        }
        Ok(operation)
    }
}
