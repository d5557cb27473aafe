//! `lockstep calibrate`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lockstep_models::Model;
use lockstep_sim::{Fit, NoiseTrace, Profile};
use lockstep_topology::InputError;

use super::flags::positive;
use crate::calibrate::{CalibrationRow, calibrate, rows};
use crate::experiment::Experiment;
use crate::failure::Failure;
use crate::host::Host;
use crate::output::{make_place, write_atomically};
use crate::progress::tell;
use crate::quiet::Quiet;
use crate::report::{Format, Report};
use crate::site::PROFILE_PATH;

/// Flags of `calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep calibrate --model lenet --batch-per-rank 16,64")]
pub(super) struct Calibrate {
    /// Experiment file whose layers and batches are measured
    experiment: Option<PathBuf>,
    /// Models whose layers are measured
    #[arg(long, value_delimiter = ',', value_name = "MODEL,…", default_value = "lenet")]
    model: Vec<String>,
    /// Batches at which layers are measured
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "16,64", value_parser = positive)]
    #[arg(allow_hyphen_values = true)]
    batch_per_rank: Vec<u32>,
    /// Where to write the profile
    #[arg(long, value_name = "FILE", default_value = PROFILE_PATH)]
    profile: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Calibrate {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (models, batches, data) = match &self.experiment {
            Some(path) => {
                let experiment = Experiment::load(path)?;
                let configurations = experiment.configurations()?;
                let batches = configurations.iter().map(|c| c.job.batch_per_rank).collect();
                (vec![configurations[0].job.model.clone()], batches, experiment.data)
            }
            None => {
                let models: Result<Vec<_>, InputError> =
                    self.model.iter().map(|name| Model::load(name).map(Arc::new)).collect();
                (models?, self.batch_per_rank.clone(), "synthetic".to_owned())
            }
        };
        let mut batches: Vec<u32> = batches;
        batches.sort_unstable();
        batches.dedup();
        let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
        let sizes: Vec<String> = batches.iter().map(u32::to_string).collect();
        let command = format!("lockstep calibrate --model {} --batch-per-rank {}", names.join(","), sizes.join(","));
        let mut quiet = Quiet::new(Host::find().cores);
        let profile = profile_of(&models, &batches, &data, &command, &self.profile, &mut quiet)?;
        let mut notes = vec![
            format!(
                "profile of {} ({}, {} cores) written to {}",
                profile.host,
                profile.cpu,
                profile.cores,
                self.profile.display()
            ),
            "medians with 95 % confidence intervals; slowdown: how much longer when every core does the same"
                .to_owned(),
        ];
        notes.extend(profile.noise.iter().filter_map(fitted));
        Report::<CalibrationRow>::new(rows(&profile), notes).print(self.format)
    }
}

/// The family that fits the recorded noise best, how far it is from it, and how far the others are behind.
fn fitted(trace: &NoiseTrace) -> Option<String> {
    let fits = trace.fits();
    let (best, others) = fits.split_first()?;
    let behind = |fit: &Fit| format!("{} +{:.0}", fit.distribution.family(), fit.aic - best.aic);
    let others: Vec<String> = others.iter().map(behind).collect();
    Some(format!(
        "noise with all cores busy is recorded; of distributions {} fits best, at a Kolmogorov distance of {:.3} (AIC {:.0}; {})",
        best.distribution,
        best.distance,
        best.aic,
        others.join(", ")
    ))
}

/// Measures this host, as far as it is `quiet`, and writes the profile to `path`.
pub(super) fn profile_of(
    models: &[Arc<Model>],
    batches: &[u32],
    data: &str,
    command: &str,
    path: &Path,
    quiet: &mut Quiet,
) -> Result<Profile, Failure> {
    make_place("--profile", path)?;
    let profile =
        calibrate(models, batches, data, command, quiet, |what| tell(&format!("lockstep: measuring {what}")))?;
    write_atomically("--profile", path, |file| file.write_all(profile.to_json().as_bytes()))?;
    Ok(profile)
}
