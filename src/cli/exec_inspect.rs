//! Runs `lockstep exec inspect`: reports on flight records.

use std::path::PathBuf;

use clap::Args;
use lockstep_measure::flight::{Record, account};
use lockstep_report;
use lockstep_report::failure::Failure;

/// Flags of `exec inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep exec inspect flight-*.json
      which ranks waited for which when a stalled job, or one that got SIGUSR1, wrote these")]
pub(super) struct Inspect {
    /// Flight records of one job, of as many of its processes as there are
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Inspect {
    pub(super) fn run(self) -> Result<(), Failure> {
        let records: Result<Vec<Record>, _> = self.files.iter().map(|path| Record::load(path)).collect();
        lockstep_report::print(&account(&records?))
    }
}
