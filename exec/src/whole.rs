//! The whole model of ranks that each hold a part of it: cut for them at the start, put together on rank 0 at the end.

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::{Axis, AxisLayout, AxisSet, Job, Members, Model, Program, Role, Sharding};
use lockstep_topology::Rank;

use crate::device::Cpus;
use crate::device::cpu::Threads;
use crate::error::ExecError;
use crate::pool::Arenas;
use crate::replica::{Making, Replica};
use crate::state::mean;
use crate::transport::{Transport, control};

/// Kind of the messages that carry a rank's parameters and momentum.
const PART: u32 = 7;

/// The part of `rank` of values that the whole model's parameters have; zero where its rows are padding.
pub(crate) fn part(program: &Program, sharding: &Sharding, rank: u32, whole: &[f32]) -> Vec<f32> {
    let mut own = vec![0.0; program.model.parameter_elements() as usize];
    for (range, start) in sharding.parameters(&program.model, program.part(sharding, rank)) {
        let values = &whole[range.start as usize..range.end as usize];
        own[start as usize..start as usize + values.len()].copy_from_slice(values);
    }
    own
}

/// Ranges of the whole model's parameters, each with where it begins among a rank's own values.
type Pieces = Vec<(Range<u64>, u64)>;

/// Puts a rank's own values into their places in the whole.
fn put(pieces: &[(Range<u64>, u64)], own: &[f32], whole: &mut [f32]) {
    for (range, start) in pieces {
        let (range, start) = (range.start as usize..range.end as usize, *start as usize);
        whole[range.clone()].copy_from_slice(&own[start..start + range.len()]);
    }
}

/// Which parameters of the whole model, and of which the optimizer's state, rank 0 has from `rank`.
fn pieces(program: &Program, rank: u32) -> [Pieces; 2] {
    let role = &program.roles[program.role_of(rank)];
    let in_place = |ranges: Vec<Range<u64>>| match &program.sharding {
        Some(sharding) => within(&sharding.parameters(&program.model, program.part(sharding, rank)), &ranges),
        None => ranges.into_iter().map(|range| (range.clone(), range.start)).collect(),
    };
    // Ranks that share out the optimizer's state have the same parameters.
    let first = shared(program).iter().all(|axis| program.mesh.coordinate(axis, rank) == 0);
    let first = first || program.shares_parameters();
    let parameters = if first { program.kept_parameters(role, rank) } else { Vec::new() };
    [in_place(parameters), in_place(program.updated(role, rank))]
}

/// What of `pieces` lies in these ranges of a rank's own values.
fn within(pieces: &[(Range<u64>, u64)], ranges: &[Range<u64>]) -> Pieces {
    let cut = |(all, own): &(Range<u64>, u64), range: &Range<u64>| {
        let (start, end) = (range.start.max(*own), range.end.min(own + all.end - all.start));
        (start < end).then(|| (all.start + start - own..all.start + end - own, start))
    };
    pieces.iter().flat_map(|piece| ranges.iter().filter_map(|range| cut(piece, range))).collect()
}

/// The axes along which ranks share out the optimizer's state.
fn shared(program: &Program) -> AxisSet {
    let updates = program.roles.iter().flat_map(|role| &role.tasks).filter_map(|task| task.op.update());
    updates.map(|of| of.shared).fold(AxisSet::default(), AxisSet::or)
}

/// The ranks that have the whole model and the optimizer's state between them; rank 0 alone where it has all.
fn holders(program: &Program) -> Members {
    let split = program.sharding.as_ref().filter(|sharding| sharding.splits_weights());
    let split = split.map_or(AxisSet::default(), |sharding| AxisSet::of(&[sharding.axis]));
    program.mesh.group_of(split.or(shared(program)).or(AxisSet::of(&[Axis::Pipeline])), 0)
}

/// Puts the whole model and the optimizer's state together on rank 0, from what every worker has; nothing on the others, and
/// nothing where rank 0 has both. Running statistics are those of a new model where ranks have parts of them, else rank 0's.
///
/// # Errors
/// When the job is over.
pub(crate) fn assemble(
    end: &mut dyn Transport,
    program: &Program,
    replica: &mut Replica,
    seed: u64,
) -> Result<Option<Replica>, ExecError> {
    let (rank, holders) = (end.rank().0, holders(program));
    if program.sharding.is_none() && holders.count() == 1 {
        return Ok(None);
    }
    let values = [replica.parameters()?, replica.velocity()?];
    if rank != 0 {
        if holders.contains(rank) {
            let cut = |(of, values): (&Pieces, &Vec<f32>)| -> Vec<f32> {
                let range =
                    |(range, start): &(Range<u64>, u64)| *start as usize..(*start + range.end - range.start) as usize;
                of.iter().flat_map(|piece| values[range(piece)].iter().copied()).collect()
            };
            let own = pieces(program, rank);
            control::send_elements(end, Rank(0), PART, own.iter().zip(&values).flat_map(cut).collect())?;
        }
        return Ok(None);
    }
    let model = program.whole_model();
    let mut whole = [(); 2].map(|()| vec![0.0; model.parameter_elements() as usize]);
    for (of, (own, whole)) in pieces(program, 0).iter().zip(values.iter().zip(&mut whole)) {
        put(of, own, whole);
    }
    for other in holders.iter().filter(|other| *other != 0) {
        let of = pieces(program, other);
        let count = |pieces: &Pieces| pieces.iter().map(|(range, _)| range.end - range.start).sum::<u64>() as usize;
        let received = control::receive_elements(end, Rank(other), PART, of.iter().map(count).sum())?;
        let mut at = 0;
        for (of, whole) in of.iter().zip(&mut whole) {
            for (range, _) in of {
                let elements = (range.end - range.start) as usize;
                whole[range.start as usize..range.end as usize].copy_from_slice(&received[at..at + elements]);
                at += elements;
            }
        }
    }
    let [parameters, velocity] = whole;
    one_rank(model, program, replica, seed, (parameters, velocity)).map(Some)
}

/// A replica of the whole model on one rank, with the running statistics of `replica` where that has all of them.
fn one_rank(
    model: &Arc<Model>,
    program: &Program,
    replica: &mut Replica,
    seed: u64,
    (parameters, velocity): (Vec<f32>, Vec<f32>),
) -> Result<Replica, ExecError> {
    let alone = Job::new(Arc::clone(model), 1, program.batch_per_rank).program()?;
    let (arenas, threads) = (&Arenas::default(), &Threads::one());
    let making = Making { devices: &Cpus, rank: 0, arenas, declared: Vec::new(), seed, threads };
    let mut whole = Replica::with_parameters(&alone, &alone.roles[0], parameters, making)?;
    whole.set_velocity(&velocity)?;
    if program.sharding.is_none() {
        whole.set_statistics(&replica.statistics()?)?;
    }
    Ok(whole)
}

/// Running statistics of the whole model: of each element the mean over the workers that have it; `all` are the workers' own.
pub(crate) fn mean_statistics(program: &Program, all: &[&[f32]]) -> Vec<f32> {
    let mut whole = vec![0.0; program.whole_model().statistics_elements() as usize];
    let parts = program.sharding.as_ref().map_or(0, |sharding| sharding.ranks);
    // The stages of a pipeline have layers of their own; of some each rank has a part.
    let workers = program.roles.iter().filter(|role| role.ranks.first() < program.workers());
    let workers: Vec<&Role> = if program.roles[0].order().is_some() { workers.collect() } else { Vec::new() };
    let own = |role: &Role| statistics_of(program, role);
    for part in std::iter::once(None).chain((0..parts).map(Some)) {
        let pieces = match &program.sharding {
            Some(sharding) => sharding.statistics(&program.model, part),
            None => vec![(0..program.model.statistics_elements(), 0)],
        };
        let has = |rank: u32| {
            part.zip(program.sharding.as_ref()).is_none_or(|(part, sharding)| program.part(sharding, rank) == part)
        };
        let mean_of = |ranks: &mut dyn Iterator<Item = u32>| {
            let of: Vec<&[f32]> = ranks.filter(|rank| has(*rank)).map(|rank| all[rank as usize]).collect();
            mean(of.into_iter())
        };
        if workers.is_empty() {
            put(&pieces, &mean_of(&mut (0..all.len() as u32)), &mut whole);
        }
        for role in &workers {
            put(&within(&pieces, &own(role)), &mean_of(&mut role.ranks.iter()), &mut whole);
        }
    }
    whole
}

/// The running statistics of the layers that a stage of a pipeline computes.
fn statistics_of(program: &Program, role: &Role) -> Vec<Range<u64>> {
    program.layers_of(role).filter_map(|id| program.model.node(id).statistics.clone()).collect()
}

/// The parameters that every rank of `role` must have alike: those of its layers that are not split.
pub(crate) fn common(program: &Program, role: &Role) -> Vec<Range<u64>> {
    if program.shares_parameters() {
        return Vec::new();
    }
    let Some(sharding) = &program.sharding else { return program.parameters_of(role) };
    let kept = program.model.iter().filter(|(id, _)| sharding.weights(*id) == AxisLayout::Replicated);
    let kept =
        kept.flat_map(|(_, node)| &node.parameters).map(|parameter| (parameter.range.clone(), parameter.range.start));
    within(&kept.collect::<Pieces>(), &program.parameters_of(role)).into_iter().map(|(range, _)| range).collect()
}
