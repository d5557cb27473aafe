//! Runs `lockstep sim predict`: predicts the step times of an experiment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use lockstep_data::Dataset;
use lockstep_measure::convergence::Convergence;
use lockstep_measure::interrupt::on_interrupt;
use lockstep_models::{Augmentation, Model, SetSizes};
use lockstep_predict::explain::text;
use lockstep_predict::rows::{Known, find};
use lockstep_predict::{Predicted, Setup, Site};
use lockstep_report::failure::Failure;
use lockstep_report::log::print_information;
use lockstep_report::output::check_outputs;
use lockstep_report::progress::Estimate;
use lockstep_report::trace::TraceFile;
use lockstep_report::{Chart, Format, Page, PredictedRow, Report, TimelineLines, print, save_page};
use lockstep_sim::NetworkModel;
use lockstep_topology::{ErrorPlace, InputError};

use super::driver_flags::DriverFlags;
use super::flags::{FoldFlags, SettingFlags};
use super::foreign_flags::ForeignFlags;
use lockstep_experiment::setting::PREDICT;
use lockstep_experiment::{Configuration, Experiment, trials};

/// The network models by name.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Network {
    /// Transfers share each link max-min fair.
    MaxMin,
    /// Every transfer has its route alone.
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
#[command(after_help = "Examples:
  lockstep sim predict --model resnet-32 --cluster ethernet-4 --ranks 1,16,32,64 --batch-per-rank 32 \\
      --algorithm ring,hierarchical:ring
  lockstep sim predict --model resnet-32 --cluster ethernet-gpu-8 --ranks 8 --learners 2 --strategy sma --batch-per-rank 16
  lockstep sim predict experiments/quickstart.toml --cluster workstation --ranks 4 --explain
  lockstep sim predict --model resnet-32 --cluster dgx1-v100 --ranks 8 --strategy sma --learners auto --batch-per-rank 16
  lockstep sim predict experiments/stragglers.toml --trials 200
  lockstep sim predict --solver solver.prototxt --cluster ethernet-4 --ranks 1,4
  lockstep sim predict --model lenet --cluster dgx1-v100 --ranks 1,2,4,8 --batch-per-rank 32 --target runs.json
  lockstep sim predict --model resnet-50 --cluster dgx-a100 --ranks 8 --data synthetic:1281167 --price 2.50
  lockstep sim predict --cluster dgx-h100:8 --ranks 64 --from train.toml     of torchtitan, axolotl, LlamaFactory …
  lockstep sim predict bad-day.toml     with a block of rows for each [[scenario]] in it: docs/scenarios.md")]
pub(super) struct Predict {
    /// Experiment file (TOML); flags replace what it says
    experiment: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<PREDICT>,
    #[command(flatten)]
    _foreign: ForeignFlags,
    /// Profile of lockstep calibrate or exec profile, instead of this machine's own; of an H100, h100-resnet-50-bf16 and
    /// h100-lenet-tf32 come with lockstep
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// How transfers share links
    #[arg(long, value_enum, default_value = "max-min")]
    network: Network,
    /// Number of simulations with noise, for quantiles of the step time; see [noise] in docs/scenarios.md
    #[arg(long, value_parser = trials, value_name = "N", allow_hyphen_values = true)]
    trials: Option<u32>,
    /// How many samples training takes to an accuracy, by global batch: a table of epochs, or a report of exec run
    /// --target-accuracy X --format json; gives time to accuracy (docs/accuracy.md)
    #[arg(long, value_name = "FILE")]
    target: Option<PathBuf>,
    /// Explain each prediction: bound, critical path, memory, sensitivities, error bar
    #[arg(long)]
    explain: bool,
    /// Write a Chrome/Perfetto trace of all configurations
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page with charts, the timelines of a step, and a table to sort and filter; it needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    fold: FoldFlags,
    #[command(flatten)]
    driver: DriverFlags,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Predict {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut experiment = self.settings.resolve(self.experiment.as_deref())?;
        self.fold.pad(&mut experiment)?;
        if let Some(trials) = self.trials {
            experiment.noise.get_or_insert_default().trials = trials;
            experiment.places.insert("noise".to_owned(), ErrorPlace::Flag("trials"));
        }
        experiment.account_of_solver().iter().for_each(|line| print_information(line));
        check_outputs(&[("--trace", self.trace.as_deref()), ("--html", self.html.as_deref()), self.driver.output()])?;
        let target = self.target.as_deref().map(Convergence::load).transpose()?.map(Arc::new);
        let known = Arc::new(Known::default());
        let estimate = Arc::new(Estimate::new("predicting"));
        let (so_far, shown, aim, format) = (known.clone(), estimate.clone(), target.clone(), self.format);
        on_interrupt(move || {
            shown.end();
            so_far.with(|rows, mut notes, all| {
                notes.push(format!("interrupted: {} of {all} configurations", rows.len()));
                // A failure cannot be reported any more.
                let _ = print_report(rows, notes, aim.as_deref(), (format, None));
            });
        })?;
        let ready = self.prepare_all(&experiment, &known)?;
        let (mut trace, mut claims, mut timelines) = (TraceFile::new(), Vec::new(), Vec::new());
        let mut each = |configuration: &Configuration, predicted: &Predicted| {
            claims.clone_from(&predicted.prediction.claims);
            if self.html.is_some() {
                let timeline = &predicted.prediction.timeline;
                timelines.extend(TimelineLines::predicted(&configuration.label(), &predicted.program, timeline));
            }
            if self.trace.is_some() {
                let label = format!("predicted {}", configuration.label());
                trace.add(&label, &predicted.program, &predicted.periodic, &predicted.prediction.timeline);
            }
        };
        estimate.beside(|| {
            ready.into_iter().try_for_each(|Ready { experiment, configurations, site }| {
                let mut setup = Setup { explain: self.explain, ..Setup::of(&experiment, &site, self.network.into())? };
                setup.options.fold = self.fold.rule();
                if self.trace.is_none() && self.html.is_none() {
                    // Only traces and pages show ranks that are folded.
                    setup.options.max_written = 0;
                }
                find(&experiment, configurations, &site, &setup, &known, &estimate, &mut each)
            })
        })?;
        self.driver.save(&claims)?;
        // From here on an interrupt waits, so that the file and the rows are complete.
        known.with(|rows, notes, _| {
            if let Some(path) = &self.trace {
                trace.save(path)?;
            }
            let html = self.html.as_deref().map(|path| (path, timelines.as_slice()));
            print_report(rows, notes, target.as_deref(), (self.format, html))
        })
    }
}

/// An experiment on one cluster, with one strategy, ready to be predicted.
struct Ready {
    experiment: Experiment,
    configurations: Vec<Configuration>,
    site: Site,
}

impl Predict {
    /// Every cluster and strategy of the experiment; notes clusters that are too small, of which some may be.
    fn prepare_all(&self, experiment: &Experiment, known: &Known) -> Result<Vec<Ready>, Failure> {
        let (mut ready, mut refused) = (Vec::new(), None);
        experiment.price_of(0, experiment.clusters.len().max(1))?;
        let variants = experiment.variants();
        if let (true, (flag, Some(path))) = (variants.len() > 1, self.driver.output()) {
            let message = "is of one configuration: name one cluster and one strategy, or leave it out";
            return Err(InputError::new(flag, path.display().to_string(), message).into());
        }
        for variant in variants {
            match self.prepare(variant) {
                Ok(one) => ready.push(one),
                // Of several clusters some may be too small.
                Err(error) if experiment.clusters.len() > 1 && error.place == ErrorPlace::Flag("ranks") => {
                    known.note(&format!("no row: {error}"));
                    refused = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let (Some(error), true) = (refused, ready.is_empty()) {
            return Err(error.into());
        }
        Ok(ready)
    }

    /// Reads what the experiment names, and refuses what cannot be predicted.
    fn prepare(&self, mut experiment: Experiment) -> Result<Ready, InputError> {
        // Errors in the experiment come before a missing profile.
        experiment.refuse_growth("a prediction")?;
        experiment.find_library();
        let named = Dataset::check_name(&experiment.data, experiment.input.is_some());
        named.map_err(|error| experiment.locate(error))?;
        if experiment.input.is_none() {
            let model = experiment.load_model(&experiment.model)?;
            experiment.loaded = sizes(&experiment, &model)?;
        }
        experiment.check_transform()?;
        experiment.check_predicted(self.explain || !experiment.price.is_empty())?;
        let mut configurations = experiment.configurations()?;
        self.driver.apply(&mut experiment, &configurations)?;
        let site = Site::open(&experiment, self.profile.as_deref())?;
        if experiment.loaded.is_some() {
            experiment.cores = site.profile.as_ref().map(|profile| profile.cores);
            configurations = experiment.configurations()?;
        }
        let conditions = Setup::of(&experiment, &site, self.network.into())?.conditions;
        let is_measured = experiment.prepared().is_none() || conditions.input.is_some();
        if !is_measured && experiment.decodes() {
            let message = "holds samples that threads decode, and no profile has measured how long reading, decoding and transforming them takes: run \
                           lockstep calibrate on an experiment with these data, or state it in [input]";
            return Err(experiment.locate(InputError::flag("data", experiment.data.clone(), message)));
        }
        if !is_measured {
            print_information(&format!("lockstep: {UNMEASURED}"));
            experiment.loaded.iter_mut().for_each(|loaded| loaded.stored = None);
            configurations = experiment.configurations()?;
        }
        for mut configuration in configurations.clone() {
            configuration.place(&site.cluster, &experiment)?;
        }
        Ok(Ready { experiment, configurations, site })
    }
}

/// Said where a prediction cannot price the tasks that prepare arrays or values.
const UNMEASURED: &str = "no profile has measured how long reading and preparing these data takes: predicted as if each load \
                          copied its samples from memory";

/// The sizes of the set, where its batches are prepared ahead: of packed files, and of sets in memory that this machine
/// augments or has threads for.
///
/// # Errors
/// As [`Dataset::load`].
fn sizes(experiment: &Experiment, model: &Model) -> Result<Option<SetSizes>, InputError> {
    let Experiment { data, augmentation, .. } = experiment;
    let packed = Dataset::packed_sizes(data, model, *augmentation)?;
    let is_prepared = *augmentation != Augmentation::default() || experiment.decode_threads.is_some();
    if packed.is_some() || !is_prepared || !experiment.on_this_machine() {
        return Ok(packed);
    }
    let (train, held_out) = Dataset::load_augmented(data, model, *augmentation)?;
    Ok(Some(Dataset::sizes((&train, &held_out))))
}

/// Prints the report, with times to a target if there is one, and for people the explanations below it.
fn print_report(
    mut rows: Vec<PredictedRow>,
    mut notes: Vec<String>,
    target: Option<&Convergence>,
    (format, html): (Format, Option<(&Path, &[TimelineLines])>),
) -> Result<(), Failure> {
    notes.extend(target.map(|target| target.annotate(&mut rows)).unwrap_or_default());
    let explained: String = rows.iter().map(text).collect();
    let report = Report::new(rows, notes);
    if let Some((path, timelines)) = html {
        let mut clusters: Vec<&str> = report.rows.iter().map(|row| row.cluster.as_str()).collect();
        clusters.dedup();
        let model = report.rows.first().map_or("nothing", |row| row.setting.model.as_str());
        let title = format!("Predicted by lockstep: {model} on {}", clusters.join(", "));
        let page = Page { title: &title, charts: &Chart::SCALING, timelines, ..Page::default() };
        save_page(path, &page, &report)?;
    }
    report.print(format)?;
    if format == Format::Table { print(&explained) } else { Ok(()) }
}
