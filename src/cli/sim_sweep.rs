//! `lockstep sim sweep`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use lockstep_models::{Bucket, Strategy};
use lockstep_topology::{Algorithm, Bytes, InputError};

use super::flags::{FoldFlags, STRATEGIES, algorithm, distinct, parsed, positive, positive_long, replace};
use super::sim_predict::Network;
use crate::experiment::{Batch, Experiment, Learners, TransportKind, chunk_or_auto};
use crate::interrupt::on_interrupt;
use crate::sweep::{
    Answer, Collector, How, MOST_POINTS, Points, RankCount, RowsFile, Scale, Sweep, check, counts, estimate, identity,
    run, svg,
};
use lockstep_report::failure::Failure;
use lockstep_report::output::{check_outputs, write_atomically};
use lockstep_report::progress::{Estimate, duration};
use lockstep_report::{Format, Report};

/// More threads than this help nobody.
const MOST_JOBS: u32 = 1024;

/// What one item of `--ranks` stands for.
#[derive(Debug, Clone)]
struct Counts(Vec<RankCount>);

/// Flags of `sim sweep`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep sim sweep --model resnet-50 --cluster dgx-a100:1..32@infiniband-hdr --ranks all --batch-per-rank 32 \\
      --bucket 4MiB,25MiB --algorithm ring,hierarchical:halving-doubling --scale nic=0.5,1,2 \\
      --out rows.csv --plot front.svg
  lockstep sim sweep --model resnet-32 --cluster titanx8-pcie3 --ranks 1..8 --batch-per-rank 16,64 \\
      --strategy sma,sma:tau=4 --learners 1,2,4 --out learners.csv
  lockstep sim sweep experiments/quickstart.toml --cluster ethernet-4 --ranks 1..64 --out rows.jsonl
      run either again to go on where it was interrupted; docs/sweeps.md works the first one through")]
pub(super) struct SimSweep {
    /// Experiment file (TOML), its lists in [sweep] too; flags replace what it says
    experiment: Option<PathBuf>,
    /// Models (lockstep models list), or .toml files
    #[arg(long, value_delimiter = ',', value_name = "M,…")]
    model: Option<Vec<String>>,
    /// Clusters (lockstep clusters list) or .toml files; dgx-a100:1..32 is 1, 2, 4 … 32 hosts of one
    #[arg(long, value_delimiter = ',', value_name = "C,…")]
    cluster: Option<Vec<String>>,
    /// Numbers of ranks that train: 8,16, doublings such as 1..1024, or all (one on each GPU, or core where there is none)
    #[arg(long, value_delimiter = ',', value_parser = rank_counts, value_name = "N,…", allow_hyphen_values = true)]
    ranks: Option<Vec<Counts>>,
    #[arg(long, value_delimiter = ',', value_parser = parsed::<Strategy>, value_name = "S,…", help = STRATEGIES)]
    strategy: Option<Vec<Strategy>>,
    /// Learners on each device (sma, ea-sgd), e.g. 1,2,4: every rank becomes so many
    #[arg(long, value_delimiter = ',', value_parser = learners, value_name = "M,…", allow_hyphen_values = true)]
    learners: Option<Vec<u32>>,
    /// Samples per rank and micro-batch, e.g. 16,64
    #[arg(long, value_delimiter = ',', value_parser = positive, value_name = "N,…", allow_hyphen_values = true)]
    batch_per_rank: Option<Vec<u32>>,
    /// Samples per step over all ranks, divided among them
    #[arg(long, value_delimiter = ',', value_parser = positive_long, value_name = "N,…", allow_hyphen_values = true)]
    #[arg(conflicts_with = "batch_per_rank")]
    global_batch: Option<Vec<u64>>,
    /// Micro-batches per step and rank, e.g. 1,4
    #[arg(long, value_delimiter = ',', value_parser = positive, value_name = "N,…", allow_hyphen_values = true)]
    accumulate: Option<Vec<u32>>,
    /// Allreduce algorithms, e.g. ring,hierarchical:halving-doubling
    #[arg(long, value_delimiter = ',', value_parser = algorithm, value_name = "A,…")]
    algorithm: Option<Vec<Algorithm>>,
    /// How gradients are cut into exchanges: sizes such as 4MiB, layer, whole, tensor
    #[arg(long, value_delimiter = ',', value_parser = parsed::<Bucket>, value_name = "B,…")]
    bucket: Option<Vec<Bucket>>,
    /// Bytes per lane of an exchange, e.g. 256KiB, or auto (the algorithm's own choice)
    #[arg(long, value_delimiter = ',', value_parser = chunk, value_name = "SIZE,…")]
    chunk: Option<Vec<Chunk>>,
    /// Exchanges in flight at once, e.g. 1,2,4
    #[arg(long, value_delimiter = ',', value_parser = positive, value_name = "N,…", allow_hyphen_values = true)]
    concurrent_exchanges: Option<Vec<u32>>,
    /// Multiply a figure of the clusters, e.g. nic=0.5,1,2 or gpu=1,2 or infiniband-latency=1,4; may be given several times
    #[arg(long, value_parser = parsed::<Scale>, value_name = "NAME=F,…")]
    scale: Vec<Scale>,
    /// How ranks meet: threads (memory) or mpi
    #[arg(long, value_parser = parsed::<TransportKind>, value_name = "KIND")]
    transport: Option<TransportKind>,
    /// Threads of each rank
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    threads_per_rank: Option<u32>,
    /// Profile of lockstep calibrate, instead of this machine's own
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// How transfers share links
    #[arg(long, value_enum, default_value = "max-min")]
    network: Network,
    #[command(flatten)]
    fold: FoldFlags,
    /// Write a row for each point as it is known, to a .csv or .jsonl file; the same command goes on with such a file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw all points, the fronts and their knees into an .svg file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Threads that predict, at most 1024; else one for each core
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    jobs: Option<u32>,
    /// A sweep of more points is refused with an estimate of its time
    #[arg(long, value_parser = positive, value_name = "N", default_value = "10000", allow_hyphen_values = true)]
    max_points: u32,
    /// How to print the front
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// A chunk, or `None` for the algorithm's choice, in a form that clap takes for a value and not for an option.
#[derive(Debug, Clone, PartialEq)]
struct Chunk(Option<Bytes>);

fn chunk(text: &str) -> Result<Chunk, String> {
    chunk_or_auto(text).map(Chunk)
}

fn learners(text: &str) -> Result<u32, String> {
    match text.parse::<Learners>()? {
        Learners::Each(each) => Ok(each),
        Learners::Auto => Err("a sweep needs to know each configuration: write numbers, e.g. 1,2,4".to_owned()),
    }
}

fn rank_counts(text: &str) -> Result<Counts, String> {
    counts(text).map(Counts)
}

impl SimSweep {
    pub(super) fn run(mut self) -> Result<(), Failure> {
        check_outputs(&[("--out", self.out.as_deref()), ("--plot", self.plot.as_deref())])?;
        let sweep = Sweep::new(self.resolve()?)?;
        check(&sweep)?;
        let plan = sweep.plan()?;
        let how = How { network: self.network.into(), fold: self.fold.rule(), profile: self.profile.clone() };
        let identity = identity(&sweep, &how);
        let collector = Arc::new(Collector::new(sweep, plan));
        let points = Points::new(collector.sweep(), collector.plan(), &how, &identity)?;
        let jobs =
            self.jobs.map_or_else(cores, |jobs| jobs.min(MOST_JOBS) as usize).min(points.count() as usize).max(1);
        self.refuse_too_many(&points, jobs)?;
        if let Some(path) = &self.out {
            let file = RowsFile::open(path, &identity, u64::from(points.count()), |row| collector.known(row))?;
            collector.write_to(file);
        }
        let shown = Arc::new(Estimate::new("sweeping"));
        let (so_far, line, format, plot) = (collector.clone(), shown.clone(), self.format, self.plot.clone());
        on_interrupt(move || {
            line.end();
            so_far.close();
            // There is nobody left to tell of a failure.
            let _ = answer(&so_far, format, plot.as_deref(), true);
        })?;
        run(&points, &collector, jobs, &shown)?;
        answer(&collector, self.format, self.plot.as_deref(), false)
    }

    /// The file's experiment with the lists of file and flags.
    fn resolve(&mut self) -> Result<Experiment, InputError> {
        let mut experiment = match &self.experiment {
            Some(path) => Experiment::load(path)?,
            None => Experiment::default(),
        };
        let e = &mut experiment;
        replace(e, "model", self.model.take(), |e, all| e.sweep.models = Some(distinct(all)));
        replace(e, "cluster", self.cluster.take(), |e, all| e.sweep.clusters = Some(distinct(all)));
        let ranks = self.ranks.take().map(|all| all.into_iter().flat_map(|counts| counts.0).collect());
        replace(e, "ranks", ranks, |e, all| e.sweep.ranks = Some(distinct(all)));
        replace(e, "strategy", self.strategy.take(), |e, all| e.sweep.strategies = Some(distinct(all)));
        replace(e, "learners", self.learners.take(), |e, all| e.sweep.learners = Some(distinct(all)));
        replace(e, "batch_per_rank", self.batch_per_rank.take(), |e, all| {
            e.sweep.batch = Some(Batch::PerRank(distinct(all)));
        });
        replace(e, "global_batch", self.global_batch.take(), |e, all| {
            e.sweep.batch = Some(Batch::Global(distinct(all)));
        });
        replace(e, "accumulate", self.accumulate.take(), |e, all| e.sweep.accumulate = Some(distinct(all)));
        replace(e, "algorithm", self.algorithm.take(), |e, all| e.sweep.algorithms = Some(distinct(all)));
        replace(e, "bucket", self.bucket.take(), |e, all| e.sweep.buckets = Some(distinct(all)));
        replace(e, "chunk", self.chunk.take(), |e, all| {
            e.sweep.chunks = Some(distinct(all).into_iter().map(|chunk| chunk.0).collect());
        });
        replace(e, "concurrent_exchanges", self.concurrent_exchanges.take(), |e, all| {
            e.sweep.concurrent_exchanges = Some(distinct(all));
        });
        replace(e, "transport", self.transport, |e, transport| e.transport = transport);
        replace(e, "threads_per_rank", self.threads_per_rank, |e, count| e.threads_per_rank = count);
        if !self.scale.is_empty() {
            if let Some(both) = Scale::overlap(&self.scale) {
                return Err(InputError::flag("scale", self.scale[0].name.clone(), both));
            }
            replace(e, "scale", Some(std::mem::take(&mut self.scale)), |e, all| e.sweep.scales = all);
        }
        Ok(experiment)
    }

    /// A slip in a list makes millions of points: their time is told before anybody waits for it.
    fn refuse_too_many(&self, points: &Points<'_>, jobs: usize) -> Result<(), Failure> {
        let count = points.count();
        if count <= self.max_points {
            return Ok(());
        }
        let (seconds, timed) = estimate(points, jobs)?;
        let allowed = u64::from(count).min(MOST_POINTS);
        let message = format!(
            "the sweep has {count} points, which take about {} on {jobs} threads, judging by {timed} of them: leave values \
             out, or allow it with --max-points {allowed}",
            duration(seconds)
        );
        Err(InputError::flag("max_points", self.max_points.to_string(), message).into())
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Prints the fronts, draws them, and says how the sweep stands.
fn answer(collector: &Collector, format: Format, plot: Option<&Path>, interrupted: bool) -> Result<(), Failure> {
    let (sweep, plan) = (collector.sweep(), collector.plan());
    collector.with(|answer: &Answer, file| {
        let (rows, mut notes) = answer.report(sweep, plan);
        if let Some((file, written)) = file {
            let path = file.path().display();
            notes.push(match interrupted {
                true => format!(
                    "interrupted: {written} of {} rows are in {path}; the same command goes on from there",
                    plan.points.len()
                ),
                false => format!("all rows are in {path}"),
            });
        } else if interrupted {
            notes.push("interrupted: with --out FILE the same command would go on from here".to_owned());
        }
        if !interrupted && answer.none_predicted() {
            let reason = answer.first_refused().unwrap_or_default();
            return Err(InputError::new("sweep", "", format!("no point can be; the first: {reason}")).into());
        }
        if let Some(path) = plot.filter(|_| !interrupted) {
            let picture = svg(answer, sweep);
            write_atomically("--plot", path, |file| file.write_all(picture.as_bytes()))?;
        }
        Report::new(rows, notes).print(format)
    })
}
