//! Runs `lockstep lab up`, `run`, `down`, `list`, `cut`, `slow` and `heal`.

use std::ffi::OsString;

use clap::Subcommand;
use lockstep_lab::{Change, LabName, change, down, known, run_each, run_mpi, survey, up};
use lockstep_measure::host::now_text;
use lockstep_report::failure::Failure;
use lockstep_report::log::stamp_with;
use lockstep_report::{Format, Report, print};
use lockstep_topology::Bandwidth;

use super::clusters::load;
use super::lab_rows::{LabRow, cable_rows};

/// What can be asked about labs.
#[derive(Debug, Subcommand)]
pub(super) enum Lab {
    /// Create a cluster's hosts, switches and links on this machine, as root
    #[command(after_help = "Example:
  sudo lockstep lab up ethernet-4 --scale 0.1
      four hosts on links of 1 Gbit/s, a tenth of the file's, in network namespaces of their own")]
    Up {
        /// Name of a cluster, or a .toml file
        cluster: String,
        /// What to call the lab
        #[arg(long, default_value = "lab0")]
        name: LabName,
        /// A factor for all rates, above 0 and at most 1
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Run a command on a lab's hosts: as one job of Open MPI, a rank a host, or with --each plainly
    #[command(after_help = "Example:
  sudo lockstep lab run lab0 --hosts 2 -- lockstep exec collective --ranks 2 --transport mpi --bytes 25MiB
      with a lockstep that was built with --features mpi; the exit code is that of the command")]
    Run {
        /// The lab
        name: LabName,
        /// Only the first N hosts [default: all]
        #[arg(long)]
        hosts: Option<usize>,
        /// Without MPI: the command on each host, lines of output behind the host's name
        #[arg(long)]
        each: bool,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Remove a lab with the processes inside, whatever there is of it
    #[command(after_help = "Example:
  sudo lockstep lab down lab0
      all of them with --all")]
    Down {
        /// The lab
        #[arg(required_unless_present = "all")]
        name: Option<LabName>,
        /// All labs of this machine, leftovers too
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// The labs of this machine, and what commands that were killed have left over
    #[command(after_help = "Example:
  lockstep lab list --format csv")]
    List {
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Cut a link while a job runs: nothing passes until it is healed
    #[command(after_help = "Example:
  sudo lockstep lab cut lab0 node2
      the one link of node2; ib.leaf0-ib.spine0 names one between switches")]
    Cut {
        /// The lab
        name: LabName,
        /// A host, or the two ends of a link: ONE-OTHER
        link: String,
    },
    /// Slow a link while a job runs, in both directions
    #[command(after_help = "Example:
  sudo lockstep lab slow lab0 node2 10Mbit/s")]
    Slow {
        /// The lab
        name: LabName,
        /// A host, or the two ends of a link: ONE-OTHER
        link: String,
        /// Its line rate from now on
        rate: Bandwidth,
    },
    /// Give a link its rate again, and plug it in
    #[command(after_help = "Example:
  sudo lockstep lab heal lab0 node2")]
    Heal {
        /// The lab
        name: LabName,
        /// A host, or the two ends of a link: ONE-OTHER
        link: String,
    },
}

impl Lab {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Lab::Up { cluster, name, scale, format } => {
                let lab = up(&load(&cluster)?, &name, scale)?;
                Report::new(cable_rows(&lab.plan), lab.plan.left_out).print(format)
            }
            Lab::Run { name, hosts, each, command } => {
                let lab = known(&name)?;
                stamp_with(now_text);
                let run = if each { run_each } else { run_mpi };
                run(&lab, hosts, &command)
            }
            Lab::Down { name, all: _ } => {
                let gone = down(name.as_ref())?;
                print(&gone.iter().map(|name| format!("{name} is down\n")).collect::<String>())
            }
            Lab::List { format } => Report::new(survey()?.iter().map(LabRow::of).collect(), Vec::new()).print(format),
            Lab::Cut { name, link } => changed(&name, &link, Change::Cut),
            Lab::Slow { name, link, rate } => changed(&name, &link, Change::Slow(rate)),
            Lab::Heal { name, link } => changed(&name, &link, Change::Heal),
        }
    }
}

fn changed(name: &LabName, link: &str, what: Change) -> Result<(), Failure> {
    print(&(change(name, link, what)? + "\n"))
}
