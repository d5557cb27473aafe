//! Runs `lockstep exec links`: measures the paths between the hosts of a job, beside what a cluster file says of them.

use std::time::Duration;

use clap::Args;
use lockstep_experiment::{Experiment, TransportKind};
use lockstep_measure::calibrate::{MeasuredPath, paths};
use lockstep_measure::launch::Launch;
use lockstep_measure::operation::STALL_LIMIT;
use lockstep_models::quantile;
use lockstep_report::failure::Failure;
use lockstep_report::progress::Estimate;
use lockstep_report::{Format, Report};
use lockstep_topology::InputError;
use lockstep_topology::cluster::Cluster;

use super::link_rows::PathRow;
use super::operation_flags::seconds;

/// A path whose rate differs by more from the file's is named, in percent.
const RATE_DIFFERS_PCT: f64 = 10.0;

/// Flags of `exec links`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mpirun --hostfile hosts --map-by ppr:1:node lockstep exec links --cluster mine.toml
  sudo lockstep lab run lab0 -- lockstep exec links --cluster three.toml
      with a lockstep that was built with --features mpi; process k runs on the file's host k")]
pub(super) struct Links {
    /// Cluster file whose latencies and bandwidths are checked
    #[arg(long, value_name = "NAME|FILE")]
    cluster: String,
    /// End the run when a message takes ten times so long [default: 60s]
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    stall_limit: Option<Duration>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Links {
    pub(super) fn run(self) -> Result<(), Failure> {
        let cluster = Cluster::load(&self.cluster)?;
        let limit = self.stall_limit.unwrap_or(STALL_LIMIT);
        let asked = Experiment { transport: TransportKind::Mpi, ..Experiment::default() };
        let mut launch = Launch::new(&asked, limit)?;
        let hosts = launch.hosts();
        let checked = check_hosts(&self.cluster, &cluster, &hosts);
        launch.all(checked.map_err(Failure::Input))?;
        let names = launch.texts(&lockstep_measure::host::HostInfo::find().name);
        let shown = if launch.prints() { Estimate::new("measuring") } else { Estimate::silent() };
        let Some(measured) = paths(&mut launch, &shown)? else { return Ok(()) };
        let row = |path: &MeasuredPath| PathRow::of(path, &names, &cluster);
        let rows = measured.iter().map(row).collect::<Result<Vec<_>, InputError>>()?;
        let notes = notes(&rows);
        Report::new(rows, notes).print(self.format)
    }
}

/// Whether each process has a host of its own, and the file one for each.
fn check_hosts(name: &str, cluster: &Cluster, hosts: &[u32]) -> Result<(), InputError> {
    let refuse = |message: String| Err(InputError::flag("cluster", name, message));
    let own = |(process, host): (usize, &u32)| *host as usize == process;
    if hosts.len() < 2 || !hosts.iter().enumerate().all(own) {
        return refuse(format!(
            "needs two hosts or more with one process each, and there are {} processes on {}: mpirun --map-by ppr:1:node, or \
             srun --ntasks-per-node=1",
            hosts.len(),
            hosts.iter().enumerate().filter(|host| own(*host)).count()
        ));
    }
    if cluster.hosts().len() < hosts.len() {
        return refuse(format!(
            "has {} hosts for {} processes: start fewer, or describe all",
            cluster.hosts().len(),
            hosts.len()
        ));
    }
    Ok(())
}

/// The latency that a link should have in the file, and the paths whose rate the file does not give.
fn notes(rows: &[PathRow]) -> Vec<String> {
    let mut latencies: Vec<f64> = rows.iter().map(|row| row.link_latency_us).collect();
    latencies.sort_by(f64::total_cmp);
    let median = quantile(&latencies, 0.5);
    let mut notes = vec![format!(
        "a message of 4 bytes takes as long as with a latency of {median:.1} us on each link (median over {} paths; {:.1} to {:.1})",
        rows.len(),
        latencies[0],
        latencies[latencies.len() - 1]
    )];
    let (alike, other): (Vec<&PathRow>, Vec<&PathRow>) =
        rows.iter().partition(|row| row.rate_error_pct.abs() <= RATE_DIFFERS_PCT);
    notes.push(format!("{} of {} paths have the file's rate to {RATE_DIFFERS_PCT} %", alike.len(), rows.len()));
    notes.extend(other.iter().map(|row| {
        format!(
            "{} to {}: {:.1} Mbit/s measured, {:.1} by the file",
            row.from, row.to, row.rate_mbit_per_s, row.predicted_rate_mbit_per_s
        )
    }));
    notes
}
