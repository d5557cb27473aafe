//! Runs `lockstep exec collective`: measures one collective.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lockstep_exec::{ASIDE, check_buffers, check_threads};
use lockstep_measure::collective::{MeasuredCollective, PreparedCollective, measure};
use lockstep_measure::host::Cores;
use lockstep_measure::launch::Launch;
use lockstep_measure::operation::STALL_LIMIT;
use lockstep_measure::quiet::{PATIENCE, Quiet};
use lockstep_models::profile::Profile;
use lockstep_models::quantile;
use lockstep_report::failure::Failure;
use lockstep_report::notes::Notes;
use lockstep_report::progress::Estimate;
use lockstep_report::{CollectiveRow, Format, Report};
use lockstep_sim::CollectiveRun;
use lockstep_topology::{Algorithm, ErrorPlace, Group, InputError, Library, Schedule};

use super::flags::{CollectiveFlags, positive};
use super::operation_flags::seconds;
use super::sim_collective::{at_algorithm, collective_run};
use lockstep_experiment::{Experiment, TransportKind};

/// Attempts at a size until one is at the pace of the profile.
const TRIALS: usize = 5;
/// The cure where buffers do not fit.
const CURE: &str = "use a smaller size or fewer ranks";

/// Flags of `exec collective`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep exec collective --collective allreduce --algorithm ring --ranks 2 --bytes 4KiB,1MiB,100MiB
  mpirun -n 4 lockstep exec collective --algorithm ring,halving-doubling --ranks 4 --transport mpi --bytes 16MiB
  mpirun -n 4 lockstep exec collective --algorithm library:mpi --ranks 4 --transport mpi --bytes 16MiB")]
pub(super) struct ExecCollective {
    #[command(flatten)]
    collective: CollectiveFlags,
    /// Timed repetitions; else as many as fit into a second, from 5 to 2,000
    #[arg(long, value_name = "N", value_parser = positive, allow_hyphen_values = true)]
    repetitions: Option<u32>,
    /// End the run when a repetition takes ten times so long [default: 60s]
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    stall_limit: Option<Duration>,
    /// Measure at the pace at which this profile was measured, which predicts it; repeated where the machine is disturbed
    #[arg(long, value_name = "PROFILE")]
    pace_of: Option<PathBuf>,
    /// With --pace-of, the total time to wait for a quiet machine and to repeat what was disturbed [default: 90s]
    #[arg(long, value_parser = seconds, value_name = "SECONDS", requires = "pace_of")]
    patience: Option<Duration>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl ExecCollective {
    pub(super) fn run(mut self) -> Result<(), Failure> {
        self.collective.collective(1)?;
        self.collective.default_algorithm(None)?;
        let flags = &self.collective;
        for algorithm in &flags.algorithms {
            self.check(algorithm)?;
        }
        flags.check_chunk()?;
        let limit = self.stall_limit.unwrap_or(STALL_LIMIT);
        let mut launch = Launch::new(&Experiment { transport: flags.transport, ..Experiment::default() }, limit)?;
        let meant = self.prepare(&mut launch)?;
        let mut quiet = launch.all(
            self.pace_of
                .as_ref()
                .map(|path| at_pace(path, flags.transport, self.patience.unwrap_or(PATIENCE)))
                .transpose(),
        )?;
        let mut farthest = 1.0f64;
        let mut rows = Vec::new();
        for (run, schedule) in meant {
            let collective = PreparedCollective::new(schedule);
            let contributors = collective.contributors();
            let shown = if launch.prints() { Estimate::new("measuring") } else { Estimate::silent() };
            let once =
                |launch: &mut Launch| measure(collective.clone(), self.repetitions, launch, limit * ASIDE, &shown);
            let (measured, off) = match &mut quiet {
                Some(quiet) => quiet.measure_together(TRIALS, &mut launch, once)?,
                None => (once(&mut launch)?, 1.0),
            };
            farthest = farthest.max(off);
            rows.extend(measured.map(|measured| row(&run, flags, contributors, measured)));
        }
        if !launch.prints() {
            return Ok(());
        }
        let wrong: u64 = rows.iter().filter_map(|row| row.wrong).sum();
        let notes = self.notes(farthest);
        let notes = notes.lines(rows.len());
        Report::new(rows, notes).print(self.format)?;
        if wrong > 0 {
            return Err(Failure::Run(format!(
                "{wrong} elements differ from the collective's definition: this is a bug"
            )));
        }
        Ok(())
    }

    /// Every run with its schedule, after checking that it fits.
    fn prepare(&self, launch: &mut Launch) -> Result<Vec<(CollectiveRun, Schedule)>, Failure> {
        let flags = &self.collective;
        let mut meant = Vec::new();
        for algorithm in &flags.algorithms {
            // Each switch is a rank.
            let ranks = flags.members().saturating_add(algorithm.switches());
            let here = launch.here(ranks).len() as u64;
            launch.all(check_threads(here, 1))?;
            launch
                .check_ranks(ranks)
                .map_err(|message| Failure::Input(InputError::flag("ranks", flags.members().to_string(), message)))?;
            // Here all ranks share one host; on several, each process is a node.
            let each = ranks / launch.processes();
            let nodes = if launch.processes() == 1 { vec![ranks] } else { vec![each; launch.processes() as usize] };
            let group = if algorithm.by_nodes() { Group::nodes(&nodes) } else { Group::flat(ranks) };
            for bytes in flags.sizes() {
                let run = collective_run(flags, algorithm, &group, bytes)?;
                let schedule = run.schedule().map_err(at_algorithm)?;
                let needed = PreparedCollective::bytes(&schedule);
                launch.all(check_buffers("bytes", &bytes.to_string(), here, needed, CURE))?;
                meant.push((run, schedule));
            }
        }
        Ok(meant)
    }

    /// What the rows do not say; the machine was at most `farthest` times off its pace.
    fn notes(&self, farthest: f64) -> Notes {
        let mut notes = Notes::default();
        let flags = &self.collective;
        let executed = flags.algorithms.iter().flat_map(|algorithm| algorithm.executed(flags.members()));
        executed.for_each(|note| notes.add(&note));
        if let Some(path) = self.pace_of.as_ref().filter(|_| Quiet::disturbed(farthest)) {
            let place = path.display();
            notes.add(&format!(
                "the machine's speed changed by up to {farthest:.1} times against {place}: calibrate and measure again"
            ));
        }
        notes
    }

    /// Refuses an algorithm of a library that cannot run here.
    fn check(&self, algorithm: &Algorithm) -> Result<(), InputError> {
        let refused = |message: &str| Err(InputError::flag("algorithm", algorithm.to_string(), message));
        match algorithm.library() {
            Some(Library::Devices) => {
                refused("sums buffers on GPUs, and these are on the host: use ring, or library:mpi")
            }
            Some(Library::Predicted) => refused("is predicted only: use ring, or library:mpi"),
            Some(_) if self.collective.transport != TransportKind::Mpi => {
                refused("calls MPI: add --transport mpi, or use an algorithm of lockstep's own, such as ring")
            }
            _ => Ok(()),
        }
    }
}

/// The row of a collective that `contributors` contribute to.
fn row(
    run: &CollectiveRun,
    flags: &CollectiveFlags,
    contributors: u32,
    mut measured: MeasuredCollective,
) -> CollectiveRow {
    measured.seconds.sort_by(f64::total_cmp);
    let time = quantile(&measured.seconds, 0.5);
    let algbw = run.bytes() as f64 / time;
    CollectiveRow {
        source: "measured".to_owned(),
        collective: run.collective.to_string(),
        algorithm: run.algorithm.to_string(),
        on: flags.transport.to_string(),
        ranks: flags.members(),
        bytes: run.bytes(),
        time_us: time * 1e6,
        time_p10_us: Some(quantile(&measured.seconds, 0.1) * 1e6),
        time_p90_us: Some(quantile(&measured.seconds, 0.9) * 1e6),
        algbw: algbw * 1e-9,
        busbw: algbw * run.collective.bus_factor(contributors) * 1e-9,
        wrong: Some(measured.wrong),
        ..CollectiveRow::default()
    }
}

/// Detects when this machine is at another pace than that of a profile.
fn at_pace(path: &Path, transport: TransportKind, patience: Duration) -> Result<Quiet, Failure> {
    let cores = if transport == TransportKind::Threads { Cores::find() } else { Cores::of_host() };
    let quiet = Quiet::new(cores, patience);
    let profile = Profile::load(path).map_err(|error| match error.place {
        ErrorPlace::Flag(_) => error.at(ErrorPlace::Flag("pace_of")),
        _ => error,
    })?;
    Ok(match profile.pulse_s {
        Some(pulse_s) => quiet.since(pulse_s),
        None => quiet,
    })
}
