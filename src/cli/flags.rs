//! The flags that several commands share: those of an experiment and those of a single collective.

use std::path::PathBuf;

use clap::Args;
use lockstep_models::{Bucket, Sampling, Strategy};
use lockstep_sim::FoldRule;
use lockstep_topology::{Algorithm, Bytes, Collective, ErrorPlace, InputError};

use crate::experiment::{Anchor, Batch, Device, Experiment, Learners, TransportKind, parse_chunk, threshold};

/// What `--strategy` takes.
pub(super) const STRATEGIES: &str = "How training is spread over ranks: ssgd, hybrid:a, hybrid:b, hybrid:c, hybrid:g=2 (b \
    and c also with :variable-batch), model-parallel, first-device-table, sma, \
    sma:momentum=0.9:tau=2:alpha=0.25:first-come, sma:reference-models, ea-sgd:tau=4:round-robin";

/// An experiment file, and flags that make one or replace what the file says.
#[derive(Debug, Clone, Args)]
pub struct ExperimentFlags {
    /// Experiment file (TOML); flags replace what it says
    pub experiment: Option<PathBuf>,
    /// Model: a name (lockstep models list), a .toml, .onnx or .prototxt (Caffe) file; variants and sizes behind a colon (resnet-50:image=64)
    #[arg(long)]
    pub model: Option<String>,
    /// Cluster: this-machine (as calibrated), a name (lockstep clusters list), or a .toml file
    #[arg(long)]
    pub cluster: Option<String>,
    /// Numbers of ranks that train, e.g. 8,16,32
    #[arg(long, value_delimiter = ',', value_parser = positive, value_name = "N,…", allow_hyphen_values = true)]
    pub ranks: Option<Vec<u32>>,
    /// How training is spread over ranks; `--help` lists what can be written.
    #[arg(long, value_parser = parsed::<Strategy>, help = STRATEGIES)]
    pub strategy: Option<Strategy>,
    /// Learners on each device: every rank of --ranks becomes so many, or with auto as many as raise the throughput (sma, ea-sgd)
    #[arg(long, value_parser = parsed::<Learners>, value_name = "M|auto", allow_hyphen_values = true)]
    pub learners: Option<Learners>,
    /// Samples per rank and micro-batch, e.g. 16,64
    #[arg(long, value_delimiter = ',', value_parser = positive, value_name = "N,…", allow_hyphen_values = true)]
    pub batch_per_rank: Option<Vec<u32>>,
    /// Samples per step over all ranks, divided among them
    #[arg(long, value_delimiter = ',', value_parser = positive_long, value_name = "N,…", allow_hyphen_values = true)]
    #[arg(conflicts_with = "batch_per_rank")]
    pub global_batch: Option<Vec<u64>>,
    /// Micro-batches per step and rank
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    pub accumulate: Option<u32>,
    /// Allreduce algorithms, e.g. ring,halving-doubling,multi-color:4,parameter-server:2,hierarchical:ring
    #[arg(long, value_delimiter = ',', value_parser = algorithm, value_name = "A,…")]
    pub algorithm: Option<Vec<Algorithm>>,
    /// How gradients are cut into exchanges: a size such as 25MiB, layer, whole, or tensor
    #[arg(long, value_parser = parsed::<Bucket>)]
    pub bucket: Option<Bucket>,
    /// Bytes per lane of an exchange, e.g. 256KiB; else the algorithm's own choice
    #[arg(long, value_parser = parse_chunk, value_name = "SIZE")]
    pub chunk: Option<Bytes>,
    /// Exchanges in flight at once
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    pub concurrent_exchanges: Option<u32>,
    /// How ranks meet: threads (memory) or mpi
    #[arg(long, value_parser = parsed::<TransportKind>, value_name = "KIND")]
    pub transport: Option<TransportKind>,
    /// Ranks on each node: of a cluster's host so many devices are used, on this machine neighbours make a node; else all of
    /// a host's, or those of a process
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    pub ranks_per_node: Option<u32>,
    /// Share by which another learner must raise the throughput, with --learners auto [default: 0.05]
    #[arg(long, value_parser = checked(threshold), value_name = "SHARE", allow_hyphen_values = true)]
    pub tuner_threshold: Option<f64>,
    /// Who draws samples together: one-shuffle (all ranks), per-node (each node with a seed of its own), or in memory
    /// partitioned:groups=2:shuffle-every=100 (nodes of a group hold the set together and shuffle it)
    #[arg(long, value_parser = parsed::<Sampling>, value_name = "RULE")]
    pub sampling: Option<Sampling>,
    /// What measured runs compute on: cpu, cuda (fp32), cuda:tf32, cuda:bf16, or null, on which computing takes no time
    #[arg(long, value_parser = parsed::<Device>, value_name = "DEVICE")]
    pub device: Option<Device>,
    /// Threads of each rank
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    pub threads_per_rank: Option<u32>,
}

impl ExperimentFlags {
    /// The file's experiment, or the default one, with what the flags say.
    ///
    /// # Errors
    /// See [`Experiment::load`].
    pub fn resolve(self) -> Result<Experiment, InputError> {
        let mut experiment = match &self.experiment {
            Some(path) => Experiment::load(path)?,
            None => Experiment::default(),
        };
        let e = &mut experiment;
        replace(e, "model", self.model, |e, model| e.model = model);
        replace(e, "cluster", self.cluster, |e, cluster| e.cluster = cluster);
        replace(e, "ranks", self.ranks, |e, ranks| e.ranks = distinct(ranks));
        replace(e, "strategy", self.strategy, |e, strategy| e.strategy = strategy);
        replace(e, "batch_per_rank", self.batch_per_rank, |e, sizes| e.batch = Batch::PerRank(distinct(sizes)));
        replace(e, "global_batch", self.global_batch, |e, sizes| e.batch = Batch::Global(distinct(sizes)));
        replace(e, "accumulate", self.accumulate, |e, count| e.accumulate = count);
        replace(e, "learners", self.learners, Experiment::set_learners);
        replace(e, "algorithm", self.algorithm, |e, all| e.algorithms = distinct(all));
        replace(e, "bucket", self.bucket, |e, bucket| e.bucket = bucket);
        replace(e, "chunk", self.chunk, |e, chunk| e.chunk = Some(chunk));
        replace(e, "concurrent_exchanges", self.concurrent_exchanges, |e, count| e.concurrent_exchanges = count);
        replace(e, "transport", self.transport, |e, transport| e.transport = transport);
        replace(e, "ranks_per_node", self.ranks_per_node, |e, count| e.ranks_per_node = Some(count));
        replace(e, "tuner_threshold", self.tuner_threshold, |e, threshold| e.tuner_threshold = threshold);
        replace(e, "sampling", self.sampling, |e, sampling| e.sampling = sampling);
        let stated = self.device.is_some();
        replace(e, "device", self.device, |e, device| e.device = device);
        if stated {
            e.places.insert("device".to_owned(), ErrorPlace::Flag("device"));
        }
        replace(e, "threads_per_rank", self.threads_per_rank, |e, count| e.threads_per_rank = count);
        Ok(experiment)
    }
}

/// Whether ranks that symmetry makes equal are simulated once.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FoldFlags {
    /// Simulate every rank, also those that symmetry makes equal to others
    #[arg(long)]
    no_fold: bool,
    /// Round exchanges up to equal parts where ranks are equal but for that
    #[arg(long, conflicts_with = "no_fold")]
    fold_padded: bool,
}

impl FoldFlags {
    /// The rule that the flags ask for.
    pub(super) fn rule(self) -> FoldRule {
        match (self.no_fold, self.fold_padded) {
            (true, _) => FoldRule::Never,
            (_, true) => FoldRule::Padded,
            _ => FoldRule::Exact,
        }
    }
}

/// A collective, its method, its members and its sizes.
#[derive(Debug, Clone, Args)]
pub struct CollectiveFlags {
    /// allreduce, reduce-scatter, allgather, broadcast, broadcast:ROOT, reduce, reduce:ROOT, scatter:ROOT,
    /// gather:ROOT, alltoallv (equal blocks)
    #[arg(long, default_value = "allreduce", value_name = "NAME")]
    pub collective: String,
    /// One of the registry
    #[arg(long, default_value = "ring", value_parser = algorithm, value_name = "A")]
    #[arg(help = algorithms(|(form, _)| form, ", "), long_help = algorithms(|(form, help)| format!("{form}: {help}"), "\n"))]
    pub algorithm: Algorithm,
    /// Members of the group
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true)]
    pub ranks: u32,
    /// Sizes of the buffer, e.g. 4KiB,1MiB,100MiB
    #[arg(long, value_delimiter = ',', value_parser = buffer, value_name = "SIZE,…", default_value = "1MiB")]
    pub bytes: Vec<Bytes>,
    /// Bytes per lane; else the algorithm's own choice
    #[arg(long, value_parser = parse_chunk, value_name = "SIZE")]
    pub chunk: Option<Bytes>,
    /// How ranks meet: threads (memory) or mpi
    #[arg(long, value_parser = parsed::<TransportKind>, value_name = "KIND", default_value = "threads")]
    pub transport: TransportKind,
}

impl CollectiveFlags {
    /// The collective itself, over `elements` elements; an alltoallv has equal blocks.
    ///
    /// # Errors
    /// An unknown name, or too many members for a table of counts.
    pub fn collective(&self, elements: u64) -> Result<Collective, InputError> {
        /// Members of whose pairs a table is made.
        const MOST: u32 = 8192;
        let located = |error: InputError| error.at(ErrorPlace::Flag("collective"));
        if self.collective != "alltoallv" {
            return self.collective.parse().map_err(located);
        }
        if self.ranks > MOST {
            let message = format!("an alltoallv has a count per pair: take at most {MOST} ranks");
            return Err(InputError::flag("ranks", self.ranks.to_string(), message));
        }
        let ranks = u64::from(self.ranks);
        let counts = vec![elements / ranks; (ranks * ranks) as usize];
        Ok(Collective::AllToAllV { counts: counts.into() })
    }
}

pub(super) fn replace<T>(experiment: &mut Experiment, key: &str, value: Option<T>, set: impl Fn(&mut Experiment, T)) {
    if let Some(value) = value {
        set(experiment, value);
        experiment.overridden(key);
    }
}

/// Each value once, in the order given.
pub(super) fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

/// A count of at least one.
pub(super) fn positive(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("must be a whole number from 1 to {}", u32::MAX)),
    }
}

/// A number that `check` lets pass.
pub(super) fn checked(
    check: impl Fn(f64) -> Result<f64, String> + Clone,
) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| check(text.trim().parse().unwrap_or(f64::NAN))
}

pub(super) fn positive_long(text: &str) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("must be a whole number of at least 1".to_owned()),
    }
}

/// The size of a buffer.
fn buffer(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>()? {
        Bytes(0..4) => Err(format!("{text:?}: a buffer has at least one element: 4B or more")),
        bytes => Ok(bytes),
    }
}

pub(super) fn parsed<T: std::str::FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.parse()
}

pub(super) fn algorithm(text: &str) -> Result<Algorithm, String> {
    text.parse().map_err(|error: InputError| error.message)
}

/// The algorithms of the registry, shown by `show`.
fn algorithms(show: impl Fn((String, &'static str)) -> String, between: &str) -> String {
    Algorithm::forms().map(show).collect::<Vec<_>>().join(between)
}

/// What `--anchor` gives.
pub(super) fn anchor(text: &str) -> Result<Anchor, String> {
    text.parse()
}
