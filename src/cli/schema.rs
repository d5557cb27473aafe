//! Runs `lockstep schema`: prints the JSON schema of a report, as published in `docs/schema`, or the pages of settings
//! and refusals.

use clap::Args;
use lockstep_topology::{InputError, nearest};

use lockstep_report::failure::Failure;
use lockstep_report::print;

use super::schemas;
use lockstep_experiment::{refusals_page, settings_page};

/// Flags of `schema`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep schema sim-predict")]
pub(super) struct Schema {
    /// Which report: sim-predict, exec-run, collective, models-list, models-show, clusters-list, clusters-show, check, …
    report: String,
}

impl Schema {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.report.as_str() {
            "settings" => return print(&settings_page()),
            "refusals" => return print(&refusals_page()),
            _ => {}
        }
        let all = schemas();
        let Some((_, schema)) = all.iter().find(|(name, _)| *name == self.report) else {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            let near = nearest(&self.report, names.iter().copied());
            let cure = if near.is_empty() { names.join(", ") } else { near.join(" or ") };
            let message = format!("there is no such report; did you mean {cure}?");
            return Err(InputError::new("REPORT", self.report, message).into());
        };
        print(&format!("{schema:#}\n"))
    }
}
