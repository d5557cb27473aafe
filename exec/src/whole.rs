//! Splits the whole model among ranks that hold parts of it at the start, and assembles it on rank 0 at the end.

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::{Job, Periodic, Pieces, Program, Role, pieces_within};

use crate::device::cpu::Threads;
use crate::device::{Cpus, DeviceError};
use crate::error::ExecError;
use crate::input::Decoders;
use crate::periodic::{cut, each_piece};
use crate::pool::Arenas;
use crate::replica::{Making, Replica};
use crate::state::mean;

/// The part of `rank` of values of the whole model's parameters; zero where its rows are padding.
pub(crate) fn part(program: &Program, rank: u32, whole: &[f32]) -> Vec<f32> {
    let mut own = vec![0.0; program.model.parameter_elements() as usize];
    for (range, start) in program.own_parameters(rank) {
        let values = &whole[range.start as usize..range.end as usize];
        own[start as usize..start as usize + values.len()].copy_from_slice(values);
    }
    own
}

/// Writes a rank's own values to their places in the whole.
fn put(pieces: &[(Range<u64>, u64)], own: &[f32], whole: &mut [f32]) {
    for (range, start) in pieces {
        let (range, start) = (range.start as usize..range.end as usize, *start as usize);
        whole[range.clone()].copy_from_slice(&own[start..start + range.len()]);
    }
}

/// The values of `rank` that rank 0 collects of a model held in parts, for this kind of work.
///
/// # Errors
/// Device errors.
pub(crate) fn own_pieces(
    program: &Program,
    replica: &mut Replica,
    rank: u32,
    kind: Periodic,
) -> Result<Vec<f32>, DeviceError> {
    if !program.holders().contains(rank) || rank == 0 {
        return Ok(Vec::new());
    }
    let states = if kind.collects_states() { replica.states()? } else { Vec::new() };
    Ok(cut(&program.collected_pieces(rank), &replica.parameters()?, &states))
}

/// A rank's parameters, then the optimizer's states.
///
/// # Errors
/// Device errors.
pub(crate) fn own_values(replica: &mut Replica) -> Result<Vec<Vec<f32>>, DeviceError> {
    Ok(std::iter::once(replica.parameters()?).chain(replica.states()?).collect())
}

/// The parameters of the whole model, and the optimizer's states if rank 0's own values have them, from these values, each freed once
/// it is read, and those of the others by rank.
pub(crate) fn assemble<V: AsRef<[f32]>>(
    program: &Program,
    own: Vec<Vec<f32>>,
    others: impl IntoIterator<Item = V>,
) -> Vec<Vec<f32>> {
    let elements = program.whole_model().parameter_elements() as usize;
    let placed = |(of, own): (&Pieces, Vec<f32>)| {
        let mut whole = vec![0.0; elements];
        put(of, &own, &mut whole);
        whole
    };
    let mut all: Vec<Vec<f32>> = each_piece(&program.collected_pieces(0)).zip(own).map(placed).collect();
    for (rank, values) in (0..).zip(others).filter(|(_, values)| !values.as_ref().is_empty()) {
        let (mut at, values) = (0, values.as_ref());
        for (of, whole) in each_piece(&program.collected_pieces(rank)).zip(&mut all) {
            for (range, _) in of {
                let elements = (range.end - range.start) as usize;
                whole[range.start as usize..range.end as usize].copy_from_slice(&values[at..at + elements]);
                at += elements;
            }
        }
    }
    all
}

/// A replica on one rank of the whole model with these parameters, and states if there are any. Running statistics are those of a new
/// model where ranks hold parts of them, else rank 0's.
///
/// # Errors
/// Device errors.
pub(crate) fn one_rank(
    program: &Program,
    mut values: Vec<Vec<f32>>,
    statistics: &[f32],
    (decoders, seed): (&Arc<Decoders>, u64),
) -> Result<Replica, ExecError> {
    let (rule, moments, model) = (program.rule, program.moments, Arc::clone(program.whole_model()));
    let alone = Job { rule, moments, ..Job::new(model, 1, program.batch_per_rank) }.program()?;
    let (arenas, threads) = (&Arenas::default(), &Threads::one());
    let states = values.split_off(1);
    let making = Making { devices: &Cpus, rank: 0, arenas, declared: Vec::new(), seed, threads, decoders };
    let mut whole = Replica::with_parameters(&alone, &alone.roles[0], values.swap_remove(0), making)?;
    if !states.is_empty() {
        whole.set_states(states)?;
    }
    if !program.cuts_model() {
        whole.set_statistics(statistics)?;
    }
    Ok(whole)
}

/// Running statistics of the whole model: for each element the mean over the workers that have it; `all` are the
/// workers' own.
pub(crate) fn mean_statistics(program: &Program, all: &[&[f32]]) -> Vec<f32> {
    let mut whole = vec![0.0; program.whole_model().statistics_elements() as usize];
    // Pipeline stages have different layers; where layers are split, each rank has a part.
    let workers = program.roles.iter().filter(|role| role.ranks.first() < program.workers());
    let workers: Vec<&Role> = if program.roles[0].order().is_some() { workers.collect() } else { Vec::new() };
    let own = |role: &Role| statistics_of(program, role);
    for (pieces, having) in program.statistics_shares() {
        let mean_of = |ranks: &mut dyn Iterator<Item = u32>| {
            let of = ranks.filter(|rank| having.contains(rank)).map(|rank| all[rank as usize]);
            let of: Vec<&[f32]> = of.collect();
            mean(of.into_iter())
        };
        if workers.is_empty() {
            put(&pieces, &mean_of(&mut (0..all.len() as u32)), &mut whole);
        }
        for role in &workers {
            put(&pieces_within(&pieces, &own(role)), &mean_of(&mut role.ranks.iter()), &mut whole);
        }
    }
    whole
}

/// The running statistics of the layers that a stage of a pipeline computes.
fn statistics_of(program: &Program, role: &Role) -> Vec<Range<u64>> {
    program.layers_of(role).filter_map(|id| program.model.node(id).statistics.clone()).collect()
}
