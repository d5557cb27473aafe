//! Runs `lockstep calibrate`: measures this machine and writes its profile.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lockstep_data::Dataset;
use lockstep_measure::calibrate::{
    CalibrationRow, Kept, add, add_input, add_moves, alone, check_memory, lay_over, missing, of_experiment, of_host,
    rows, save,
};
use lockstep_measure::host::Cores;
use lockstep_measure::quiet::Quiet;
use lockstep_models::profile::{NoiseTrace, Profile};
use lockstep_models::{Fit, fits};
use lockstep_models::{Program, SetSizes};
use lockstep_predict::PROFILE_PATH;
use lockstep_report::failure::Failure;
use lockstep_report::log::print_information;
use lockstep_report::output::make_place;
use lockstep_report::{Format, Report};
use lockstep_topology::InputError;

use super::flags::positive;
use super::operation_flags::PatienceFlag;
use super::unfold_flag::UnfoldFlag;
use lockstep_experiment::Experiment;

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
    #[command(flatten)]
    unfold: UnfoldFlag,
    /// Batches at which layers are measured
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_value = "16,64", value_parser = positive)]
    #[arg(allow_hyphen_values = true)]
    batch_per_rank: Vec<u32>,
    /// Where to write the profile
    #[arg(long, value_name = "FILE", default_value = PROFILE_PATH)]
    profile: PathBuf,
    #[command(flatten)]
    patience: PatienceFlag,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Calibrate {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut quiet = Quiet::new(Cores::find(), self.patience.limit());
        let measuring = |what: &str| print_information(&format!("lockstep: measuring {what}"));
        let Subjects { programs, command, prepared, shuffled } = self.subjects(&quiet)?;
        let subjects = missing(programs, None);
        check_memory(&subjects, quiet.cores().count())?;
        make_place("--profile", &self.profile)?;
        let kept = Kept::open(&self.profile, &mut quiet);
        let mut measured = of_host(&command, &mut quiet, measuring)?;
        add(&mut measured, &subjects, &command, &mut quiet, measuring);
        if let Some(prepared) = &prepared {
            add_input(&mut measured, prepared, &mut quiet, measuring)?;
        }
        if let Some(shuffled) = &shuffled {
            add_moves(&mut measured, shuffled, &mut quiet, measuring)?;
        }
        let mut others = 0;
        let profile = match kept.profile {
            Some(mut kept) => {
                lay_over(&mut kept, measured.clone());
                others = kept.compute.len() - measured.compute.len();
                // Peak rates and message times are the new ones.
                Profile {
                    compute: kept.compute,
                    update: kept.update,
                    formulas: kept.formulas,
                    load: kept.load,
                    mpi: kept.mpi,
                    decode: kept.decode,
                    moves: kept.moves,
                    storage: kept.storage,
                    disturbed: kept.disturbed,
                    ..measured
                }
            }
            None => measured,
        };
        save(&profile, &self.profile)?;
        let notes = self.notes(&profile, others, kept.why);
        Report::<CalibrationRow>::new(rows(&profile), notes).print(self.format)
    }

    /// What is to be measured: of an experiment, or of the named models.
    fn subjects(&self, quiet: &Quiet) -> Result<Subjects, Failure> {
        let Some(path) = &self.experiment else {
            let models: Result<Vec<_>, InputError> =
                self.model.iter().map(|name| self.unfold.load(name).map(Arc::new)).collect();
            let mut batches = self.batch_per_rank.clone();
            batches.sort_unstable();
            batches.dedup();
            let sizes: Vec<String> = batches.iter().map(u32::to_string).collect();
            let command =
                format!("lockstep calibrate --model {} --batch-per-rank {}", self.model.join(","), sizes.join(","));
            let programs = alone(&models?, &batches, "synthetic")?;
            return Ok(Subjects { programs, command, prepared: None, shuffled: None });
        };
        let experiment = Experiment::load(path)?;
        let programs = of_experiment(&experiment, &experiment.configurations()?)?;
        let model = experiment.load_model(&experiment.model)?;
        let train = Dataset::load_augmented(&experiment.data, &model, experiment.augmentation)?.0;
        let shuffled = experiment.sampling.shuffles().then(|| train.clone());
        let counts = SetSizes::of_counts(train.len() as u64, 0);
        let loaded = Some(SetSizes { stored: Some(train.stored()), ..counts });
        let cores = Some(quiet.cores().count() as u32);
        let prepared = Experiment { loaded, cores, ..experiment }.prepared().map(|_| train);
        Ok(Subjects { programs, command: format!("lockstep calibrate {}", path.display()), prepared, shuffled })
    }

    /// The notes on a profile that keeps `others` figures from before, or none, because of `why`.
    fn notes(&self, profile: &Profile, others: usize, why: Option<String>) -> Vec<String> {
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
        if others > 0 {
            notes.push(format!("{others} figures of layers that were not asked for are kept from before"));
        }
        notes.extend(why.map(|why| format!("nothing is kept from before: {why}")));
        notes.extend(profile.disturbed_note());
        notes.extend(profile.noise.iter().filter_map(fitted));
        notes
    }
}

/// What a calibration measures.
struct Subjects {
    programs: Vec<(Program, Arc<Dataset>)>,
    command: String,
    /// Data whose batches are prepared ahead.
    prepared: Option<Dataset>,
    /// Data that are shuffled among nodes.
    shuffled: Option<Dataset>,
}

/// The family that fits the recorded noise best, its distance, and how much worse the others fit.
fn fitted(trace: &NoiseTrace) -> Option<String> {
    let fits = fits(trace);
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
