//! `lockstep sim predict`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lockstep_sim::NetworkModel;

use super::flags::{ExperimentFlags, anchor};
use crate::experiment::Anchor;
use crate::failure::Failure;
use crate::output::check_writable;
use crate::predict::{Setup, rows};
use crate::report::{Format, Report};
use crate::site::Site;
use crate::trace::Trace;

/// The network models by name.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Network {
    /// Transfers share each link max-min fair.
    MaxMin,
    /// Every transfer has its route to itself.
    AlphaBeta,
}

impl From<Network> for NetworkModel {
    fn from(network: Network) -> NetworkModel {
        match network {
            Network::MaxMin => NetworkModel::MaxMin,
            Network::AlphaBeta => NetworkModel::AlphaBeta,
        }
    }
}

/// Flags of `sim predict`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep sim predict --model resnet-32 --cluster ethernet-4 --ranks 1,16,32,64 --batch-per-rank 32 \\
      --algorithm ring,hierarchical:ring")]
pub(super) struct Predict {
    #[command(flatten)]
    experiment: ExperimentFlags,
    /// Scale computation so that this measured point comes out exactly
    #[arg(long, value_parser = anchor, value_name = "ranks=N,images_per_s=X")]
    anchor: Option<Anchor>,
    /// Profile of lockstep calibrate, instead of this machine's own
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// How transfers share links
    #[arg(long, value_enum, default_value = "max-min")]
    network: Network,
    /// Write a Chrome/Perfetto trace of all configurations
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Predict {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut experiment = self.experiment.resolve()?;
        if let Some(anchor) = self.anchor {
            experiment.anchor = Some(anchor);
            experiment.overridden("anchor");
        }
        if let Some(path) = &self.trace {
            check_writable("--trace", path)?;
        }
        // What is wrong with the experiment matters more than a profile that is missing.
        experiment.configurations()?;
        let site = Site::open(&experiment, self.profile.as_deref())?;
        let setup = Setup::of(&experiment, self.network.into());
        let mut trace = Trace::new();
        let (rows, notes) = rows(&experiment, &site, &setup, |configuration, predicted| {
            if self.trace.is_some() {
                let label = format!("predicted {}", configuration.label());
                trace.add(&label, &predicted.program, &predicted.prediction.timeline);
            }
        })?;
        if let Some(path) = &self.trace {
            trace.save(path)?;
        }
        Report::new(rows, notes).print(self.format)
    }
}
