//! Splits the whole model among ranks that hold parts of it at the start, and assembles it on rank 0 at the end.

use std::ops::Range;
use std::sync::Arc;

use lockstep_models::{Job, Model, Program, Role, pieces_within};

use crate::device::cpu::Threads;
use crate::device::{Cpus, DeviceError};
use crate::error::ExecError;
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

/// The values of `rank` that rank 0 collects of a model held in parts.
///
/// # Errors
/// Device errors.
pub(crate) fn own_pieces(program: &Program, replica: &mut Replica, rank: u32) -> Result<Vec<f32>, DeviceError> {
    if !program.holders().contains(rank) || rank == 0 {
        return Ok(Vec::new());
    }
    Ok(cut(&program.collected_pieces(rank), &replica.parameters()?, &replica.states()?))
}

/// Assembles the whole model and the optimizer's state on rank 0, from its own values and those of the others by rank.
/// Running statistics are those of a new model where ranks hold parts of them, else rank 0's.
///
/// # Errors
/// Device errors.
pub(crate) fn assemble(
    program: &Program,
    replica: &mut Replica,
    others: &[Vec<f32>],
    seed: u64,
) -> Result<Replica, ExecError> {
    let model = program.whole_model();
    let own: Vec<Vec<f32>> = std::iter::once(replica.parameters()?).chain(replica.states()?).collect();
    let mut whole = vec![vec![0.0; model.parameter_elements() as usize]; own.len()];
    for (of, (own, whole)) in each_piece(&program.collected_pieces(0)).zip(own.iter().zip(&mut whole)) {
        put(of, own, whole);
    }
    drop(own);
    for (rank, values) in (0..).zip(others).filter(|(_, values)| !values.is_empty()) {
        let mut at = 0;
        for (of, whole) in each_piece(&program.collected_pieces(rank)).zip(&mut whole) {
            for (range, _) in of {
                let elements = (range.end - range.start) as usize;
                whole[range.start as usize..range.end as usize].copy_from_slice(&values[at..at + elements]);
                at += elements;
            }
        }
    }
    let states = whole.split_off(1);
    one_rank(model, program, replica, seed, (whole.swap_remove(0), states))
}

/// A replica of the whole model on one rank, with the running statistics of `replica` if that has all of them.
fn one_rank(
    model: &Arc<Model>,
    program: &Program,
    replica: &mut Replica,
    seed: u64,
    (parameters, states): (Vec<f32>, Vec<Vec<f32>>),
) -> Result<Replica, ExecError> {
    let (rule, moments) = (program.rule, program.moments);
    let alone = Job { rule, moments, ..Job::new(Arc::clone(model), 1, program.batch_per_rank) }.program()?;
    let (arenas, threads) = (&Arenas::default(), &Threads::one());
    let decoders = &replica.decoders();
    let making = Making { devices: &Cpus, rank: 0, arenas, declared: Vec::new(), seed, threads, decoders };
    let mut whole = Replica::with_parameters(&alone, &alone.roles[0], parameters, making)?;
    whole.set_states(&states)?;
    if !program.cuts_model() {
        whole.set_statistics(&replica.statistics()?)?;
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
