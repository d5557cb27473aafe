//! Runs `lockstep models plan --mesh`: shows the placement of a mesh's ranks on a cluster, and what a step exchanges
//! along which axes.

use std::collections::BTreeSet;

use clap::ValueEnum;
use lockstep_models::{Axis, AxisSet, Buffer, Exchange, Job, Program};
use lockstep_report::failure::Failure;
use lockstep_report::{Format, RankRow, Report, TransitionRow, print};
use lockstep_topology::{Cluster, InputError, Placement, PlacementRule, Rank};

/// What `--list` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum List {
    /// What a step exchanges, by tensor, collective and axes
    Transitions,
    /// Coordinates, groups, stage, host and device of each rank
    Ranks,
}

/// Ranks on a cluster, if one is given.
struct OnCluster<'a>(Option<(&'a Cluster, Placement)>);

impl OnCluster<'_> {
    fn host(&self, rank: u32) -> Option<String> {
        let (cluster, placement) = self.0.as_ref()?;
        // A switch between hosts belongs to none.
        Some(cluster.hosts().get(placement.host(Rank(rank)).0 as usize)?.name.clone())
    }

    fn device(&self, rank: u32) -> Option<String> {
        let (cluster, placement) = self.0.as_ref()?;
        Some(cluster.devices()[placement.device(Rank(rank)).0 as usize].name.clone())
    }
}

/// Prints the `list` of the ranks of `job` on `cluster`; tables show both lists.
///
/// # Errors
/// A job that its strategy does not support, or more ranks than the cluster has places.
pub(super) fn run(job: &Job, cluster: Option<&Cluster>, list: List, format: Format) -> Result<(), Failure> {
    let placed = |cluster| {
        let ranks = job.ranks() - job.switches();
        let placed = Placement::new(cluster, ranks, &PlacementRule::Pack)?;
        let placed = placed.and_switches(cluster, &job.algorithm.joined(ranks), &job.algorithm)?;
        Ok::<_, InputError>((cluster, placed))
    };
    let placed = OnCluster(cluster.map(placed).transpose()?);
    let mut job = job.clone();
    if let Some((_, placement)) = &placed.0 {
        job.node_sizes = Some(placement.node_sizes(&placement.all().collect::<Vec<_>>()));
    }
    let program = job.program()?;
    let ranks: Vec<RankRow> = (0..program.workers()).map(|rank| rank_row(&program, &placed, rank)).collect();
    let transitions = transitions(&program, &placed)?;
    let notes = vec!["bytes are those of one step; padding is counted".to_owned()];
    match (format, list) {
        (Format::Table, _) => {
            let at = cluster.map_or(String::new(), |cluster| format!(", cluster {}", cluster.name()));
            print(&format!("{}: strategy {}, mesh {}{at}\n", job.model.name(), job.strategy, program.mesh))?;
            Report::new(ranks, Vec::new()).print(format)?;
            print("\n")?;
            Report::new(transitions, notes).print(format)
        }
        (_, List::Ranks) => Report::new(ranks, Vec::new()).print(format),
        (_, List::Transitions) => Report::new(transitions, notes).print(format),
    }
}

fn rank_row(program: &Program, placed: &OnCluster<'_>, rank: u32) -> RankRow {
    let mesh = &program.mesh;
    let each = |of: &dyn Fn(Axis) -> String| mesh.outer_first().map(of).collect::<Vec<_>>();
    let group = |axis: Axis| AxisSet::of(&[axis]);
    let grouped = mesh.outer_first().filter(|axis| mesh.has_groups(group(*axis)));
    RankRow {
        rank,
        coordinates: each(&|axis| format!("{axis}={}", mesh.coordinate(axis, rank))).join(","),
        stage: (mesh.size(Axis::Pipeline) > 1).then(|| mesh.coordinate(Axis::Pipeline, rank)),
        groups: grouped
            .map(|axis| format!("{axis} {}", mesh.group_number(group(axis), rank)))
            .collect::<Vec<_>>()
            .join(", "),
        host: placed.host(rank),
        device: placed.device(rank),
    }
}

/// The exchanges of a step, with those of one kind in one row; each column is from the role in which it is largest.
fn transitions(program: &Program, placed: &OnCluster<'_>) -> Result<Vec<TransitionRow>, InputError> {
    let mut rows: Vec<TransitionRow> = Vec::new();
    for role in &program.roles {
        let mut own: Vec<TransitionRow> = Vec::new();
        let rank = role.ranks.first();
        for (id, exchange) in role.exchanges() {
            let members = program.group_of(exchange, rank);
            let Some(member) = members.member(rank) else { continue };
            let schedule = program.schedule_among(exchange, &members)?;
            let runs = u64::from(role.runs_of(id));
            let row = TransitionRow {
                buffer: buffer_name(program, exchange.buffer),
                collective: exchange.collective.name().to_owned(),
                algorithm: exchange.algorithm.to_string(),
                axes: exchange.axes.to_string(),
                groups: program.group_count(exchange),
                group_ranks: members.count(),
                group_hosts: hosts(program, exchange, placed),
                exchanges: runs,
                bytes: 4 * schedule.elements() * runs,
                sent_bytes: 4 * schedule.elements_sent(member) * runs,
            };
            add(&mut own, row, |a, b| a + b);
        }
        own.into_iter().for_each(|row| add(&mut rows, row, u64::max));
    }
    Ok(rows)
}

/// Merges a row into that of its kind, if there is one.
fn add(rows: &mut Vec<TransitionRow>, row: TransitionRow, both: fn(u64, u64) -> u64) {
    let same = |other: &&mut TransitionRow| {
        (&other.buffer, &other.collective, &other.algorithm, &other.axes)
            == (&row.buffer, &row.collective, &row.algorithm, &row.axes)
    };
    match rows.iter_mut().find(same) {
        Some(of) => {
            of.exchanges = both(of.exchanges, row.exchanges);
            of.bytes = both(of.bytes, row.bytes);
            of.sent_bytes = both(of.sent_bytes, row.sent_bytes);
        }
        None => rows.push(row),
    }
}

/// The most hosts over which a group of an exchange is spread.
fn hosts(program: &Program, exchange: &Exchange, placed: &OnCluster<'_>) -> Option<u32> {
    placed.0.as_ref()?;
    let of_group = |number: u32| {
        let hosts: BTreeSet<_> = program.group(exchange, number).iter().filter_map(|rank| placed.host(rank)).collect();
        hosts.len() as u32
    };
    (0..program.group_count(exchange)).map(of_group).max()
}

fn buffer_name(program: &Program, buffer: Buffer) -> String {
    match buffer {
        Buffer::Parameters => "parameters".to_owned(),
        Buffer::Weights => "gathered weights".to_owned(),
        Buffer::Gradients => "gradients".to_owned(),
        Buffer::State(index) => program.rule.states()[index].to_owned(),
        Buffer::Norm => "squares".to_owned(),
        Buffer::Declared(index) => program.buffers[index].name.clone(),
    }
}
