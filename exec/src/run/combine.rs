//! Combines the results of all ranks into one; the workers must have ended with the same parameters.

use std::mem::take;

use lockstep_models::{Program, Timeline};
use lockstep_topology::InputError;

use super::{Run, Setup};
use crate::claims::in_order;
use crate::error::ExecError;
use crate::fingerprint::{Fingerprint, hex};
use crate::gather::{RankResult, Values};
use crate::process_outcome::{AverageModel, ProcessOutcome};
use crate::state::{Position, State};
use crate::whole::mean_statistics;

/// The run of these results.
///
/// # Errors
/// Replicas that have diverged, device errors.
pub(super) fn combine(
    setup: &Setup<'_>,
    mut of_ranks: Vec<RankResult>,
    of_process: ProcessOutcome,
) -> Result<Run, ExecError> {
    let Setup { program, options, .. } = *setup;
    // Frees the ranks' working memory before the results are copied.
    options.arenas.pool.clear();
    options.devices.clear();
    let replica = of_process.replica.into_inner().ok().flatten();
    let (mut replica, average, buffers) = replica.ok_or_else(|| InputError::new("run", "", "rank 0 does not train"))?;
    let workers = program.workers() as usize;
    check_equal(program, &of_ranks[..workers])?;
    let (states, parameters) = (replica.take_states()?, replica.parameters()?);
    let weights = Fingerprint::of(&parameters);
    let state = state_fingerprint(&weights, &of_ranks[..workers], (&states, &average, &buffers));
    let statistics: Vec<&[f32]> = of_ranks[..workers].iter().map(|of_rank| &*of_rank.values.statistics).collect();
    replica.set_statistics(&mean_statistics(program, &statistics))?;
    let stopped = of_ranks[0].outcome.stopped;
    if !stopped && options.evaluations.is_some_and(|when| when.recompute_bn) {
        replica.recompute_statistics(setup.data)?;
    }
    let own = &mut of_ranks[0].outcome;
    let (evaluations, restarts) = (take(&mut own.evaluations), take(&mut own.restarts));
    let (steps, accuracy_monitor) = (own.losses.len() / program.losses_of(0), take(&mut own.accuracy_monitor));
    let done = setup.first + steps as u64;
    let position = Position::after(done, program.global_batch(), setup.run_length.steps_per_epoch);
    let states = if average.is_some() { Vec::new() } else { states };
    let mut of_workers = |part: fn(&mut Values) -> &mut Vec<f32>| -> Vec<Vec<f32>> {
        of_ranks[..workers].iter_mut().map(|of_rank| take(part(&mut of_rank.values))).collect()
    };
    let (own, statistics) = (of_workers(|values| &mut values.weights), of_workers(|values| &mut values.statistics));
    let references = of_workers(|values| &mut values.reference).into_iter().filter(|model| !model.is_empty());
    let references = references.collect();
    let moments = program.moments;
    let carried =
        State { position, weights: own, statistics, references, states, moments, average, buffers, accuracy_monitor };
    let losses = (0..steps).map(|step| mean_loss(program, &of_ranks[..workers], step)).collect();
    let clock_residual_s = of_ranks.iter().map(|of_rank| of_rank.clock_residual_s).fold(0.0, f64::max);
    let direct_messages = of_ranks.iter().map(|of_rank| of_rank.outcome.direct).sum();
    let (mut spans, mut periodic, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    let (mut traffic, mut periodic_traffic) = (Vec::new(), Vec::new());
    for RankResult { outcome, .. } in of_ranks {
        spans.extend(outcome.spans);
        periodic.extend(outcome.periodic);
        claims.extend(outcome.claims);
        traffic.push(outcome.sent);
        periodic_traffic.push(outcome.periodic_sent);
    }
    Ok(Run {
        timeline: Timeline { periodic, ..Timeline::of(spans, options.warm_up) },
        losses,
        evaluations,
        traffic,
        periodic_traffic,
        periodic: setup.periodic.list(),
        direct_messages,
        weights_sha256: hex(weights.words()),
        state_sha256: hex(state.words()),
        parameters,
        claims: setup.claims(steps as u32, in_order(claims)),
        notes: setup.driver.lock().ok().and_then(|driver| driver.note()).map(str::to_owned).into_iter().collect(),
        restarts,
        first: setup.first,
        stopped,
        clock_residual_s,
        replica,
        state: carried,
    })
}

/// Refuses workers that ended with different parameters where they train the same ones: ranks of a stage have the same
/// layers, and those that differ on other axes alone have the same part of each.
fn check_equal(program: &Program, workers: &[RankResult]) -> Result<(), InputError> {
    let (of_stage, of_part) = (program.axes_of_stage(), program.axes_of_part());
    for (rank, own) in (0..).zip(workers) {
        let first = |axes| if program.mesh.has_groups(axes) { program.mesh.group_of(axes, rank).first() } else { rank };
        let (stage, part) = (first(of_stage), first(of_part));
        let same = own.values.part_fingerprint == workers[part as usize].values.part_fingerprint;
        let fingerprint = own.values.fingerprint;
        let differs = fingerprint.is_some() && fingerprint != workers[stage as usize].values.fingerprint;
        if differs || !same {
            let other = if same { stage } else { part };
            let message = format!("rank {rank} ended with other parameters than rank {other}: replicas have diverged");
            return Err(InputError::new("run", "", message));
        }
    }
    Ok(())
}

/// The fingerprint of all that a run carries on: the weights, then the optimizer's or the learners' state, then what
/// workers have of their own.
fn state_fingerprint(
    weights: &Fingerprint,
    workers: &[RankResult],
    (states, average, buffers): (&[Vec<f32>], &Option<AverageModel>, &[Vec<f32>]),
) -> Fingerprint {
    let mut state = weights.clone();
    match average {
        None => states.iter().for_each(|kept| state.add(kept)),
        Some((_, previous)) => previous.iter().for_each(|previous| state.add(previous)),
    }
    buffers.iter().for_each(|buffer| state.add(buffer));
    let parts: [fn(&Values) -> &Vec<f32>; 3] =
        [|values| &values.weights, |values| &values.reference, |values| &values.statistics];
    for part in parts {
        workers.iter().for_each(|worker| state.add(part(&worker.values)));
    }
    state
}

/// The mean loss of a step over the samples of all workers.
fn mean_loss(program: &Program, workers: &[RankResult], step: usize) -> f64 {
    let of_rank = |(rank, worker): (u32, &RankResult)| {
        let each = program.losses_of(rank);
        worker.outcome.losses[step * each..(step + 1) * each].to_vec()
    };
    (0..).zip(workers).flat_map(of_rank).sum::<f64>() / program.global_batch() as f64
}
