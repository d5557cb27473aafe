//! Runs `lockstep sim sweep`: predicts lists of settings and finds their front.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lockstep_data::Dataset;
use lockstep_measure::interrupt::on_interrupt;
use lockstep_predict::sweep::{
    Collector, How, Points, RowsFile, SweepAnswer, check, estimate, identity, merge, run, svg,
};
use lockstep_report::failure::Failure;
use lockstep_report::output::{check_outputs, write_atomically};
use lockstep_report::progress::{Estimate, duration};
use lockstep_report::{Chart, Format, FrontRow, Page, Report, print, save_page};
use lockstep_topology::InputError;

use super::flags::{FoldFlags, SettingFlags, positive};
use super::shard_flags::{ShardFlags, part_note};
use super::sim_predict::Network;
use lockstep_experiment::setting::SWEEP;
use lockstep_experiment::sweep::{MOST_POINTS, Sweep};

/// The most threads.
const MOST_JOBS: u32 = 1024;

/// Flags of `sim sweep`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep sim sweep --model resnet-50 --cluster dgx-a100:1..32@infiniband-hdr --ranks all --batch-per-rank 32 \\
      --bucket 4MiB,25MiB --algorithm ring,hierarchical:halving-doubling --scale nic=0.5,1,2 \\
      --out rows.csv --plot front.svg
  lockstep sim sweep --model resnet-32 --cluster titanx8-pcie3 --ranks 1..8 --batch-per-rank 16,64 \\
      --strategy sma,sma:tau=4 --learners 1,2,4 --out learners.csv
  lockstep sim sweep experiments/quickstart.toml --cluster ethernet-4 --ranks 1..64 --out rows.jsonl
      rerunning either resumes it; docs/sweeps.md explains the first one step by step
  lockstep sim sweep experiments/quickstart.toml --cluster ethernet-4 --ranks 1..64 --out rows.csv --shard 2/4
  lockstep sim sweep experiments/quickstart.toml --cluster ethernet-4 --ranks 1..64 --out rows.csv --merge 4
      one of four jobs, each with a file of its own, and what makes one of the four; docs/cluster.md submits them to Slurm")]
pub(super) struct SimSweep {
    /// Experiment file (TOML), its lists in [sweep] too; flags replace what it says
    experiment: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<SWEEP>,
    /// Profile of lockstep calibrate, instead of this machine's own
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// How transfers share links
    #[arg(long, value_enum, default_value = "max-min")]
    network: Network,
    #[command(flatten)]
    fold: FoldFlags,
    /// Write a row for each point as it is known, to a .csv or .jsonl file; rerunning the command resumes from it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    shards: ShardFlags,
    /// Draw all points, the fronts and their knees into an .svg file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write a page with charts of all points, and a table to sort and filter; it needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Threads that predict, at most 1024; else one for each core
    #[arg(long, value_parser = jobs, value_name = "N", allow_hyphen_values = true)]
    jobs: Option<u32>,
    /// A sweep of more points is refused with an estimate of its time
    #[arg(long, value_parser = positive, value_name = "N", default_value = "10000", allow_hyphen_values = true)]
    max_points: u32,
    /// How to print the front
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl SimSweep {
    pub(super) fn run(self) -> Result<(), Failure> {
        let shard = self.shards.shard;
        self.shards.check(&[("plot", self.plot.as_deref()), ("html", self.html.as_deref())])?;
        let file = self.out.as_deref().map(|out| self.shards.file(out));
        check_outputs(&[
            ("--out", file.as_deref()),
            ("--plot", self.plot.as_deref()),
            ("--html", self.html.as_deref()),
        ])?;
        let mut experiment = self.settings.resolve(self.experiment.as_deref())?;
        self.fold.pad(&mut experiment)?;
        Dataset::check_name(&experiment.data, true).map_err(|error| experiment.locate(error))?;
        let sweep = Sweep::new(experiment)?;
        check(&sweep)?;
        let plan = sweep.plan()?;
        let how = How { network: self.network.into(), fold: self.fold.rule(), profile: self.profile.clone() };
        let identity = identity(&sweep, &how);
        let collector = Arc::new(Collector::of(sweep, plan, shard));
        if self.html.is_some() || self.shards.merge.is_some() {
            collector.keep_rows();
        }
        let points = Points::new(collector.sweep(), collector.plan(), &how, &identity)?;
        if let (Some(shards), Some(out)) = (self.shards.merge, &self.out) {
            // An existing file must be of this sweep too.
            RowsFile::open(out, &identity, collector.order(), |row| points.has_settings_of(&row))?;
            merge(&points, &collector, &identity, out, shards)?;
            collector.with(|answer, _| match answer.none_predicted() {
                false => RowsFile::replace(out, answer.kept.as_deref().unwrap_or_default()),
                true => Ok(()),
            })?;
            return answer(&collector, self.format, (self.plot.as_deref(), self.html.as_deref()), false);
        }
        let most = collector.order().len();
        let jobs = self.jobs.map_or_else(cores, |jobs| jobs as usize).min(most).max(1);
        self.refuse_too_many(&points, collector.order(), jobs)?;
        if let Some(path) = &file {
            let file = RowsFile::open(path, &identity, collector.order(), |row| {
                let own = points.has_settings_of(&row);
                if own {
                    collector.known(row);
                }
                own
            })?;
            collector.write_to(file);
        }
        let shown = Arc::new(Estimate::new("sweeping"));
        let (so_far, line, format, plot) = (collector.clone(), shown.clone(), self.format, self.plot.clone());
        on_interrupt(move || {
            line.end();
            so_far.close();
            // A failure cannot be reported any more.
            let _ = answer(&so_far, format, (plot.as_deref(), None), true);
        })?;
        run(&points, &collector, jobs, &shown)?;
        answer(&collector, self.format, (self.plot.as_deref(), self.html.as_deref()), false)
    }

    /// A mistake in a list can make millions of points: their time is estimated before they are predicted.
    fn refuse_too_many(&self, points: &Points<'_>, order: &[u32], jobs: usize) -> Result<(), Failure> {
        let count = order.len() as u32;
        if count <= self.max_points {
            return Ok(());
        }
        let (seconds, timed) = estimate(points, order, jobs)?;
        let allowed = u64::from(count).min(MOST_POINTS);
        let message = format!(
            "the sweep has {count} points, which take about {} on {jobs} threads, estimated from {timed} of them: leave values \
             out, or allow it with --max-points {allowed}",
            duration(seconds)
        );
        Err(InputError::flag("max_points", self.max_points.to_string(), message).into())
    }
}

/// Reads the number of threads.
fn jobs(text: &str) -> Result<u32, String> {
    let jobs = text.trim().parse().ok().filter(|jobs| (1..=MOST_JOBS).contains(jobs));
    jobs.ok_or_else(|| format!("must be a whole number from 1 to {MOST_JOBS}"))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Prints the fronts, draws them, and reports the sweep's progress.
fn answer(
    collector: &Collector,
    format: Format,
    (plot, html): (Option<&Path>, Option<&Path>),
    interrupted: bool,
) -> Result<(), Failure> {
    let (sweep, plan) = (collector.sweep(), collector.plan());
    collector.with(|answer: &SweepAnswer, file| {
        if let (Some(shard), Some((file, _))) = (collector.shard(), &file) {
            // The front of a part of the points is not meaningful.
            let note = part_note(shard, answer.rows, collector.order().len(), file.path(), "points");
            return match format {
                Format::Table => print(&format!("note: {note}\n")),
                _ => Report::new(Vec::<FrontRow>::new(), vec![note]).print(format),
            };
        }
        let (rows, mut notes) = answer.report(sweep, plan);
        notes.extend(sweep.base.account_of_names());
        if let Some((file, written)) = file {
            let path = file.path().display();
            notes.push(match interrupted {
                true => format!(
                    "interrupted: {written} of {} rows are in {path}; rerunning the command resumes",
                    plan.points.len()
                ),
                false => format!("all rows are in {path}"),
            });
        } else if interrupted {
            notes.push("interrupted: with --out FILE, rerunning the command would resume".to_owned());
        }
        if !interrupted && answer.none_predicted() {
            let reason = answer.first_refused().unwrap_or_default();
            return Err(InputError::new("sweep", "", format!("no point can be; the first: {reason}")).into());
        }
        if let Some(path) = plot.filter(|_| !interrupted) {
            let picture = svg(answer, sweep);
            write_atomically("--plot", path, |file| file.write_all(picture.as_bytes()))?;
        }
        if let (Some(path), Some(all)) = (html, &answer.kept) {
            let mut all = all.clone();
            all.sort_by_key(|row| row.point);
            let models: Vec<&str> = sweep.models.iter().map(|model| model.name()).collect();
            let title = format!("Sweep of {} on {}", models.join(", "), sweep.entries.join(", "));
            let page = Page { title: &title, charts: &Chart::SCALING, ..Page::default() };
            save_page(path, &page, &Report::new(all, notes.clone()))?;
        }
        Report::new(rows, notes).print(format)
    })
}
