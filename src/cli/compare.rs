//! `lockstep compare`.

use std::path::PathBuf;

use clap::Args;
use lockstep_topology::InputError;

use super::calibrate::profile_of;
use crate::compare::{compare, predictions_path};
use crate::experiment::{Device, Experiment, TransportKind};
use crate::failure::Failure;
use crate::host::Host;
use crate::launch::Launch;
use crate::output::{check_outputs, make_place};
use crate::progress::tell;
use crate::quiet::Quiet;
use crate::report::{Format, Report, print};
use crate::site::{PROFILE_PATH, Site};
use crate::trace::Trace;

/// Flags of `compare`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep compare experiments/quickstart.toml --explain")]
pub(super) struct Compare {
    /// Experiment file (TOML)
    experiment: PathBuf,
    /// Profile of lockstep calibrate to predict from; without it this machine is measured first
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Name the kinds of tasks that make most of the difference
    #[arg(long)]
    explain: bool,
    /// Write a Chrome/Perfetto trace with both timelines of all configurations
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Compare {
    pub(super) fn run(self) -> Result<(), Failure> {
        let experiment = Experiment::load(&self.experiment)?;
        check_outputs(&[("--trace", self.trace.as_deref())])?;
        // What is wrong with the experiment is told before this machine is measured.
        let configurations = experiment.configurations()?;
        for configuration in &configurations {
            configuration.program().map_err(|error| experiment.locate(error))?;
        }
        if experiment.device != Device::Cpu && experiment.on_this_machine() && self.profile.is_none() {
            let message = "is not what lockstep calibrate measures: give the --profile that lockstep exec profile has written of it, \
                           or name a cluster that has one";
            return Err(experiment.locate(InputError::new("--device", experiment.device.to_string(), message)).into());
        }
        experiment.devices()?;
        if experiment.transport == TransportKind::Threads {
            Launch::Threads.check(&experiment, &configurations)?;
        }
        make_place("out", &predictions_path(&experiment))?;
        let note = |text: &str| tell(&format!("lockstep: {text}"));
        let mut quiet = Quiet::new(Host::find().cores);
        let site = if experiment.on_this_machine()
            && self.profile.is_none()
            && experiment.transport == TransportKind::Threads
        {
            let mut batches: Vec<u32> = configurations.iter().map(|c| c.job.batch_per_rank).collect();
            batches.sort_unstable();
            batches.dedup();
            let models = [configurations[0].job.model.clone()];
            let command = format!("lockstep compare {}", self.experiment.display());
            let profile = profile_of(&models, &batches, &experiment.data, &command, PROFILE_PATH.as_ref(), &mut quiet)?;
            Site::of_profile(&profile, &experiment)?
        } else {
            Site::open(&experiment, self.profile.as_deref())?
        };
        site.check_device(&experiment)?;
        let timed = self.trace.is_some() || self.explain;
        let Some(comparison) = compare(&experiment, &site, &mut quiet.renewed(), timed, note)? else { return Ok(()) };
        if let Some(path) = &self.trace {
            let mut trace = Trace::new();
            for compared in &comparison.compared {
                let label = compared.configuration.label();
                trace.add(&format!("predicted {label}"), &compared.program, &compared.prediction.timeline);
                if let Some(timeline) = compared.measured.first() {
                    trace.add(&format!("measured {label}"), &compared.program, timeline);
                }
            }
            trace.save(path)?;
        }
        Report::new(comparison.rows.clone(), comparison.notes.clone()).print(self.format)?;
        if self.explain {
            let lines = comparison.explain().join("\n  ");
            match self.format {
                Format::Table => print(&format!("\nlargest differences per step and worker:\n  {lines}\n"))?,
                _ => tell(&format!("largest differences per step and worker:\n  {lines}")),
            }
        }
        Ok(())
    }
}
