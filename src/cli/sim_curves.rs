//! Runs `lockstep sim curves`: compares predicted collectives with measured curves.

use std::path::PathBuf;

use clap::Args;

use lockstep_papers::curves::{MeasuredSystem, curves, curves_page};
use lockstep_report::failure::Failure;
use lockstep_report::output::{check_outputs, write_atomically};
use lockstep_report::{Format, Report};
use lockstep_sim::SimError;

/// Flags of `sim curves`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep sim curves                        the error of every curve
  lockstep sim curves azure-h100 --points    every size: measured, predicted, what NCCL takes
  lockstep sim curves --html collectives.html")]
pub(super) struct SimCurves {
    /// Which systems: names, or .toml files of the same form; without any, all that come with lockstep
    systems: Vec<String>,
    /// Print every point instead of one row per curve
    #[arg(long)]
    points: bool,
    /// Also write a page for a browser: a picture a system, dots measured, lines predicted
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl SimCurves {
    pub(super) fn run(self) -> Result<(), Failure> {
        check_outputs(&[("--html", self.html.as_deref())])?;
        let all = || MeasuredSystem::names().map(str::to_owned).collect();
        let names: Vec<String> = if self.systems.is_empty() { all() } else { self.systems };
        let systems = names.iter().map(|name| MeasuredSystem::load(name)).collect::<Result<Vec<_>, _>>()?;
        let answer = curves(&systems).map_err(|error| match error {
            SimError::Input(error) => Failure::Input(error),
            other => Failure::Run(other.to_string()),
        })?;
        if let Some(file) = &self.html {
            let text = curves_page(&systems, &answer);
            write_atomically("--html", file, |out| out.write_all(text.as_bytes()))?;
        }
        match self.points {
            true => Report::new(answer.points, answer.notes).print(self.format),
            false => Report::new(answer.rows, answer.notes).print(self.format),
        }
    }
}
