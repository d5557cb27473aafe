//! Runs `lockstep sim collective`: predicts one collective.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use lockstep_machines::nccl_log::NcclLog;
use lockstep_sim::answer::collective_bound;
use lockstep_sim::{
    CollectiveRun, CollectiveTime, Folding, Platform, SimError, nccl_choice, simulate_collective_within,
};
use lockstep_topology::{
    Algorithm, Bytes, Cluster, Collective, Dtype, ErrorPlace, Group, Hosting, InputError, Placement,
};

use super::collective_beside::{beside, note};
use super::flags::{CollectiveFlags, FoldFlags};
use super::sim_predict::Network;
use super::{collective_like, nccl_table};
use lockstep_exec::available_memory;
use lockstep_experiment::{Experiment, THIS_MACHINE};
use lockstep_predict::Site;
use lockstep_predict::explain::{collective_text, explain_collective};
use lockstep_report::failure::Failure;
use lockstep_report::notes::Notes;
use lockstep_report::progress::Estimate;
use lockstep_report::{CollectiveRow, Format, Report, print};

/// Flags of `sim collective`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep sim collective --collective allreduce --algorithm ring --ranks 64 --bytes 100MiB --cluster ethernet-4
  lockstep sim collective --algorithm hierarchical:ring --ranks 32 --bytes 1MiB,100MiB --cluster ethernet-gpu-8 --explain
  lockstep sim collective --algorithm ring,halving-doubling,tree:4 --ranks 16 --bytes 1KiB..64MiB --cluster ethernet-4
  lockstep sim collective --ranks 8 --bytes 8..1GiB --cluster dgx-a100 --format nccl-tests
  lockstep sim collective --algorithm library:nccl --ranks 16 --bytes 64KiB..1GiB --cluster dgx-h100:2 --transport mpi --explain
  lockstep sim collective --algorithm library:nccl@2.20:tree:ll128:8 --ranks 16 --bytes 1MiB --cluster dgx-a100:2
  lockstep sim collective --like all_reduce_perf.log
  lockstep sim collective --ranks 8 --beside all_reduce_perf.txt --cluster dgx-a100")]
#[command(mut_arg("ranks", |ranks| ranks.required(false).required_unless_present("beside")))]
pub(super) struct SimCollective {
    #[command(flatten)]
    collective: CollectiveFlags,
    /// Cluster: this-machine (as calibrated), a name (lockstep clusters list), or a .toml file [default: this-machine]
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// Profile of lockstep calibrate, instead of this machine's own
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// How transfers share links
    #[arg(long, value_enum, default_value = "max-min")]
    network: Network,
    /// Explain each time: resources in use, and what the time depends on
    #[arg(long)]
    explain: bool,
    /// The sizes of this log of nccl-tests, and how far predictions are from its times. Its ranks, collective, NCCL version and
    /// GPUs (as a cluster) are used where no flag gives them, and flags must not contradict it
    #[arg(long, visible_alias = "like", value_name = "FILE", conflicts_with_all = ["bytes", "explain"])]
    beside: Option<PathBuf>,
    /// At most that many ranks on each host of the cluster; else as many as it has places for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: Option<u32>,
    #[command(flatten)]
    fold: FoldFlags,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: CollectiveFormat,
}

/// How predictions of collectives are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CollectiveFormat {
    /// Aligned columns for people, rounded
    Table,
    /// A header and a line per row, in full precision
    Csv,
    /// `{"version": 1, "rows": [...]}`, in full precision
    Json,
    /// The columns of nccl-tests
    NcclTests,
}

impl CollectiveFormat {
    /// The common report format, if it is one.
    fn common(self) -> Option<Format> {
        match self {
            CollectiveFormat::Table => Some(Format::Table),
            CollectiveFormat::Csv => Some(Format::Csv),
            CollectiveFormat::Json => Some(Format::Json),
            CollectiveFormat::NcclTests => None,
        }
    }
}

impl SimCollective {
    pub(super) fn run(mut self) -> Result<(), Failure> {
        let mut log = match &self.beside {
            Some(path) => Some(collective_like::read(path, &mut self.collective)?),
            None => None,
        };
        self.collective.collective(1)?;
        self.collective.check_chunk()?;
        self.check(log.is_some())?;
        let sizes: Vec<Bytes> = match &log {
            Some(log) => log.sizes.iter().map(|row| row.bytes).collect(),
            None => self.collective.sizes(),
        };
        let cluster = match &mut log {
            Some(log) => collective_like::cluster(self.cluster.as_deref(), log, self.collective.members())?,
            None => self.cluster.clone().unwrap_or_else(|| THIS_MACHINE.to_owned()),
        };
        let experiment = Experiment { cluster, transport: self.collective.transport, ..Experiment::default() };
        let site = Site::open(&experiment, self.profile.as_deref())?;
        let named = Some(&site.cluster).filter(|_| !experiment.on_this_machine());
        let default = self.collective.default_algorithm(named)?;
        if let Some(log) = &mut log {
            for algorithm in &mut self.collective.algorithms {
                *algorithm = collective_like::with_version(algorithm.clone(), log)?;
            }
        }
        let flags = &self.collective;
        let mut rows = Vec::new();
        let mut notes = Notes::default();
        log.iter().flat_map(|log| &log.notes).for_each(|note| notes.add(note));
        // The column `on` has the name of a file, which hosts and network extend.
        let whole = named.map(Cluster::whole_name).filter(|whole| !site.basis.contains(whole.as_str()));
        let whole = whole.map(|whole| format!("on {whole}"));
        std::iter::once(site.basis.clone()).chain(whole).chain(site.cluster.notes()).for_each(|note| notes.add(&note));
        default.iter().for_each(|note| notes.add(note));
        let estimate = Estimate::new(if self.explain { "explaining" } else { "predicting" });
        for algorithm in &flags.algorithms {
            let of_this = self.predict(
                algorithm,
                &sizes,
                (&experiment, log.as_ref()),
                &site,
                (&estimate, rows.len()),
                &mut notes,
            )?;
            rows.extend(of_this);
        }
        estimate.end();
        if let Some(log) = log {
            let rows = beside(&rows, &log.sizes);
            rows.chunks(log.sizes.len()).for_each(|of_algorithm| notes.add(&note(of_algorithm)));
            let notes = notes.lines(rows.len());
            return Report::new(rows, notes).print(self.format.common().unwrap_or_default());
        }
        let Some(format) = self.format.common() else {
            let collective = |row: CollectiveRow| Ok((flags.collective(Dtype::F32.elements_within(row.bytes))?, row));
            let rows: Result<Vec<(Collective, CollectiveRow)>, InputError> = rows.into_iter().map(collective).collect();
            return print(&nccl_table::render(&rows?));
        };
        let explained: String = rows.iter().map(collective_text).collect();
        let notes = notes.lines(rows.len());
        Report::new(rows, notes).print(format)?;
        if format == Format::Table { print(&explained) } else { Ok(()) }
    }

    /// Refuses what one of the formats, or this machine, has no place for.
    fn check(&self, beside_log: bool) -> Result<(), InputError> {
        if self.explain && self.format == CollectiveFormat::NcclTests {
            let message = "nccl-tests' table has no column for explanations: leave it out, or use table, csv or json";
            return Err(InputError::flag("explain", "", message));
        }
        if let (Some(each), Some(THIS_MACHINE)) = (self.ranks_per_node, self.cluster.as_deref()) {
            let message = "is about the hosts of a cluster, and this machine is one: leave it out, or name a cluster";
            return Err(InputError::flag("ranks_per_node", each.to_string(), message));
        }
        if beside_log && self.format == CollectiveFormat::NcclTests {
            let message = "has no column for what was measured: use table, csv or json";
            return Err(InputError::flag("format", "nccl-tests", message));
        }
        if self.format == CollectiveFormat::NcclTests
            && let [_, second, ..] = self.collective.algorithms.as_slice()
        {
            let message = "nccl-tests' table has no column for algorithms: name one, or use table, csv or json";
            return Err(InputError::flag("algorithm", second.to_string(), message));
        }
        Ok(())
    }

    /// The rows of one algorithm, one per size; adds `notes` about them. The estimate has `before` rows of other
    /// algorithms.
    fn predict(
        &self,
        algorithm: &Algorithm,
        sizes: &[Bytes],
        (experiment, log): (&Experiment, Option<&NcclLog>),
        site: &Site,
        (estimate, before): (&Estimate, usize),
        notes: &mut Notes,
    ) -> Result<Vec<CollectiveRow>, Failure> {
        let flags = &self.collective;
        let all = (flags.algorithms.len() * sizes.len()) as f64;
        // Ranks are those with data; here switches are ranks too, as in the executor.
        let switches = algorithm.switches();
        let played = if experiment.on_this_machine() { switches } else { 0 };
        let ranks = flags.members().saturating_add(played);
        let rule = collective_like::placement(log, self.ranks_per_node, experiment.on_this_machine())?;
        let placement = Placement::new(&site.cluster, ranks, &rule);
        let placement =
            placement.map_err(|error| collective_like::too_small(error, &experiment.cluster, ranks, log, &rule))?;
        let joined = if played == 0 { algorithm.joined(flags.members()) } else { Vec::new() };
        let placement = placement.and_switches(&site.cluster, &joined, algorithm)?;
        let hosting = Hosting::new(&placement, &flags.transport.hosting())?;
        let platform = Platform::new(&site.cluster, &placement, &hosting, site.costs.as_ref());
        let platform = Platform { network: self.network.into(), ..platform };
        let members: Vec<_> = placement.all().collect();
        let nodes = || placement.node_sizes(&members);
        let group = if algorithm.by_nodes() { Group::nodes(&nodes()) } else { Group::flat(placement.ranks()) };
        let mut rows = Vec::new();
        algorithm.played(flags.members()).filter(|_| played > 0).iter().for_each(|note| notes.add(note));
        for bytes in sizes {
            let run = CollectiveRun {
                fold: self.fold.rule(),
                padded: self.fold.fold_padded,
                ..collective_run(flags, algorithm, &group, *bytes)?
            };
            let what = format!("{} of {bytes} among {} ranks by {algorithm}", run.collective, flags.members());
            let done = (before + rows.len()) as f64;
            let mut progress = |of_this: f64| estimate.show((done + of_this) / all, &what);
            progress(0.0);
            let memory = available_memory();
            let time = estimate.beside(|| simulate_collective_within(memory, &run, &platform)).map_err(failed)?;
            if self.explain
                && let Some(choice) = nccl_choice(&run, &platform).map_err(at_algorithm)?
            {
                notes.add(&format!("{bytes}: {choice}"));
            }
            rows.push(self.row(&run, &time, &platform, site, &mut progress)?);
            let folding = time.folding.to_string();
            let folding = (time.folding != Folding::Off).then_some(folding);
            let (row, label) = (before + rows.len() - 1, format!("{algorithm}, {bytes}"));
            time.notes.iter().chain(&folding).for_each(|note| notes.add_of_row(note, row, &label));
        }
        Ok(rows)
    }

    /// The row of a run that takes `time`, explained if it is to be.
    fn row(
        &self,
        run: &CollectiveRun,
        time: &CollectiveTime,
        platform: &Platform<'_>,
        site: &Site,
        progress: &mut dyn FnMut(f64),
    ) -> Result<CollectiveRow, Failure> {
        let bound = collective_bound(&site.cluster, time);
        let answer = match self.explain {
            true => Some(explain_collective(run, platform, site, time, &bound, progress).map_err(failed)?),
            false => None,
        };
        let (in_use, reacts_to, does_not_react_to, sensitivity_sum) = match answer {
            Some(a) => (Some(a.in_use), Some(a.reacts_to), Some(a.does_not_react_to), Some(a.sensitivity_sum)),
            None => (None, None, None, None),
        };
        Ok(CollectiveRow {
            source: "predicted".to_owned(),
            collective: run.collective.to_string(),
            algorithm: run.algorithm.to_string(),
            on: site.cluster.name().to_owned(),
            ranks: self.collective.members(),
            bytes: run.bytes(),
            time_us: time.time.as_secs_f64() * 1e6,
            algbw: time.algbw * 1e-9,
            busbw: time.busbw * 1e-9,
            bound: Some(bound.by),
            bound_utilisation: Some(bound.share),
            in_use,
            reacts_to,
            does_not_react_to,
            sensitivity_sum,
            ..CollectiveRow::default()
        })
    }
}

/// A simulation's error, whose refusals without a place are the algorithm's.
fn failed(error: SimError) -> Failure {
    match error {
        SimError::Input(error) => Failure::Input(at_algorithm(error)),
        other => Failure::Run(other.to_string()),
    }
}

/// The collective over a buffer of `bytes`, in whole elements.
pub(super) fn collective_run(
    flags: &CollectiveFlags,
    algorithm: &Algorithm,
    group: &Group,
    bytes: Bytes,
) -> Result<CollectiveRun, InputError> {
    let elements = Dtype::F32.elements_within(bytes.0);
    let chunk = flags.chunk.map_or(0, |chunk| Dtype::F32.elements_within(chunk.0).max(1));
    let run = CollectiveRun::new(flags.collective(elements)?, algorithm.clone(), group.clone(), elements);
    Ok(CollectiveRun { chunk, ..run })
}

/// A refusal without a place is the algorithm's.
pub(super) fn at_algorithm(error: InputError) -> InputError {
    error.or_at(ErrorPlace::Flag("algorithm"))
}
