//! Runs `lockstep compare`: predicts and measures an experiment.

use std::path::PathBuf;

use clap::Args;
use lockstep_measure::devices::devices;
use lockstep_measure::launch::Launch;
use lockstep_report::failure::Failure;
use lockstep_report::log::{print_information, print_line};
use lockstep_report::output::check_outputs;
use lockstep_report::trace::TraceFile;
use lockstep_report::{Chart, ChartAxis, ChartKind, Format, Page, Report, TimelineLines, print, save_page};
use lockstep_topology::InputError;

use super::operation_flags::PatienceFlag;
use crate::compare::{Asked, Compared, compare};
use lockstep_experiment::{DeviceChoice, Experiment, TransportKind};

/// Charts of a comparison's page.
const CHARTS: &[Chart] = &[
    Chart::ERRORS,
    Chart {
        title: "Error by measured step time",
        kind: ChartKind::Cloud,
        x: ChartAxis::milliseconds("step_time_s", "measured step time", true),
        y: ChartAxis::of("error_pct", "error of the prediction", "percent", false),
        lines: &[("predicted", "error_pct")],
        by: None,
    },
    Chart::efficiency(&[("predicted", "predicted_scaling_efficiency"), ("measured", "scaling_efficiency")]),
    Chart {
        title: "Exposed communication, predicted beside measured",
        kind: ChartKind::Diagonal,
        x: ChartAxis::milliseconds("exposed_comm_s", "measured exposed communication", false),
        y: ChartAxis::milliseconds("predicted_exposed_comm_s", "predicted exposed communication", false),
        lines: &[("predicted", "predicted_exposed_comm_s")],
        by: None,
    },
];

/// Flags of `compare`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep compare experiments/quickstart.toml --explain")]
pub(super) struct Compare {
    /// Experiment file (TOML)
    experiment: PathBuf,
    /// Profile of lockstep calibrate to predict from; without it this machine is measured first, as far as it has not been
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Name the kinds of tasks, and the tasks, that make most of the difference
    #[arg(long)]
    explain: bool,
    /// Write a Chrome/Perfetto trace with both timelines of all configurations
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page with charts, both timelines of a step, and a table to sort and filter; it needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    patience: PatienceFlag,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Compare {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut experiment = Experiment::load(&self.experiment)?;
        if experiment.device.is_gpu() {
            experiment.find_library();
        }
        check_outputs(&[("--trace", self.trace.as_deref()), ("--html", self.html.as_deref())])?;
        // Errors in the experiment are reported before this machine is measured.
        let configurations = experiment.configurations()?;
        for configuration in &configurations {
            configuration.program().map_err(|error| experiment.locate(error))?;
        }
        if experiment.device != DeviceChoice::Cpu && experiment.on_this_machine() && self.profile.is_none() {
            let message = "is not what lockstep calibrate measures: give the --profile that lockstep exec profile has written of it, \
                           or name a cluster that has one";
            return Err(experiment.locate(InputError::flag("device", experiment.device.to_string(), message)).into());
        }
        devices(&experiment)?;
        if experiment.transport == TransportKind::Threads {
            Launch::Threads.check(&experiment, &configurations)?;
        }
        let command = format!("lockstep compare {}", self.experiment.display());
        let timed = self.trace.is_some() || self.html.is_some() || self.explain;
        let asked =
            Asked { profile: self.profile.as_deref(), command: &command, timed, patience: self.patience.limit() };
        let note = |text: &str| print_information(&format!("lockstep: {text}"));
        let Some(comparison) = compare(&experiment, &asked, note)? else { return Ok(()) };
        if let Some(path) = &self.trace {
            let mut trace = TraceFile::new();
            for compared in &comparison.compared {
                let label = compared.configuration.label();
                let (program, periodic) = (&compared.program, &compared.periodic);
                trace.add(&format!("predicted {label}"), program, periodic, &compared.prediction.timeline);
                if let Some(timeline) = compared.measured.first() {
                    trace.add(&format!("measured {label}"), program, periodic, timeline);
                }
            }
            trace.save(path)?;
        }
        let mut notes = comparison.notes.clone();
        notes.extend(experiment.account_of_names().into_iter().filter(|note| !comparison.notes.contains(note)));
        let report = Report::new(comparison.rows.clone(), notes);
        if let Some(path) = &self.html {
            let lines = |one: &Compared| {
                let (label, measured) = (one.configuration.label(), one.measured.first()?);
                TimelineLines::compared(&label, &one.program, &one.prediction.timeline, measured)
            };
            let timelines: Vec<TimelineLines> = comparison.compared.iter().filter_map(lines).collect();
            let title = format!("{}: predicted and measured", experiment.name);
            let page = Page { title: &title, charts: CHARTS, timelines: &timelines, ..Page::default() };
            save_page(path, &page, &report)?;
        }
        report.print(self.format)?;
        if self.explain {
            let again = format!("lockstep calibrate {} --profile new.json", self.experiment.display());
            let text = comparison.explain(&again);
            match self.format {
                Format::Table => print(&format!("\n{text}"))?,
                _ => print_line(text.trim_end()),
            }
        }
        Ok(())
    }
}
