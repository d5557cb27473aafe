//! `run`: executes a program on data and returns a measured timeline, losses and the trained state.

mod check;
#[cfg(feature = "mpi")]
mod processes;
mod result;

use std::sync::Mutex;
use std::time::Instant;

use lockstep_models::{AccuracyMonitor, Buffer, Driver, Program, RunLength, Target, Timeline};
use lockstep_topology::InputError;

use crate::claims::in_order;
use crate::clock;
use crate::data::{Dataset, Feed, Parts, Ring, Sampler};
use crate::error::ExecError;
use crate::fingerprint::{Fingerprint, hex};
use crate::flight::{Aside, Flights};
use crate::gather::{RankResult, gather};
use crate::periodic::{PeriodicPrograms, collect};
use crate::pin::Pins;
use crate::process_outcome::ProcessOutcome;
use crate::rank_memory::RankMemory;
use crate::setup::{RunOptions, Setup};
use crate::state::{Position, State};
use crate::transport::{Transport, control, memory};
use crate::watch::Guard;
use crate::whole::{assemble, mean_statistics, own_pieces};
use crate::worker::Worker;

pub use check::check_run;
#[cfg(feature = "mpi")]
pub use processes::run_processes;
pub use result::Run;

/// Runs a program on threads of this process, one per rank.
///
/// # Errors
/// Bad input, or a rank that panics or stalls.
pub fn run(program: &Program, data: &Dataset, options: &RunOptions<'_>) -> Result<Run, ExecError> {
    on_threads(program, data, options, None)
}

/// As [`run`]; with `hosts`, ranks claim batches as if they ran in these processes.
pub(crate) fn on_threads(
    program: &Program,
    data: &Dataset,
    options: &RunOptions<'_>,
    hosts: Option<&[u32]>,
) -> Result<Run, ExecError> {
    data.check_fits(&program.model)?;
    let ranks = program.ranks();
    check_run(program, 0..ranks, &*options.devices, options.threads_per_rank, false)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let fits = ranks as usize * options.threads_per_rank <= cores;
    let setup = setup(program, data, options, 0..ranks, hosts)?;
    let mut states: Vec<Option<RankMemory>> = Vec::new();
    states.resize_with(ranks as usize, || None);
    let of_process = ProcessOutcome::default();
    let clock = setup.guard.flights.clock();
    let pins = Pins::new(ranks as usize, options.threads_per_rank);
    let results = setup.guard.during(|| {
        memory::run(states, if fits { memory::SPIN } else { 0 }, |end, state| {
            let _bound = pins.bind(end.rank().0 as usize);
            of_process.note(body(&setup, end, state, clock, &of_process, false))
        })
    });
    let all = results.map_err(|error| of_process.cause(error, &setup.guard))?;
    let all = all.into_iter().flatten().next().unwrap_or_default();
    finish(&setup, all, of_process)
}

fn setup<'a>(
    program: &'a Program,
    data: &'a Dataset,
    options: &'a RunOptions<'a>,
    here: impl Iterator<Item = u32>,
    hosts: Option<&'a [u32]>,
) -> Result<Setup<'a>, InputError> {
    let sampler = Sampler::new(data.len(), program.batch_per_rank, program.accumulate, &program.pools, options.seed)?;
    let here: Vec<u32> = here.collect();
    if let Some(parts) = Parts::new(program, data.len() as u32, options.seed)? {
        parts.check_memory(data, &here)?;
    }
    let (global_batch, steps_per_epoch) = (program.global_batch(), sampler.batches_per_epoch());
    let first = match options.start {
        Some(state) if !state.fits(program) => {
            let message =
                "is of another model or another kind of strategy: resume with the settings of the earlier run";
            return Err(InputError::new("state", "", message));
        }
        start => start.map_or(0, |state| state.position.steps(global_batch, steps_per_epoch)),
    };
    let run_length = RunLength {
        global_batch: program.gradient_samples(),
        steps_per_epoch,
        steps: first + u64::from(options.steps),
    };
    let target = options.evaluations.map_or_else(Target::default, |when| when.target);
    // A run that is resumed may have ended its epochs before.
    if let (Some(accuracy), 0) = (target.accuracy, run_length.steps / steps_per_epoch) {
        let message = format!(
            "is checked after each epoch, of {steps_per_epoch} steps here, and the run has {}: train for an epoch, or leave it out",
            run_length.steps
        );
        return Err(InputError::flag("target_accuracy", accuracy.to_string(), message));
    }
    let driver = Driver::fixed_from(first, options.steps);
    let replay = options.replay.filter(|_| program.claims());
    let driver = match replay {
        Some(record) => driver.replaying(program, record)?,
        None => driver.serving(program, |rank| hosts.map_or(0, |hosts| hosts[rank as usize])),
    };
    let room = Feed::room(program.roles[0].batches_ahead().unwrap_or(0));
    let ring = driver.pools().filter(|_| room > 0).map(|pools| {
        let learners = here.iter().copied().filter(|rank| *rank < program.workers());
        Ring::new(pools.clone(), learners, room, options.seed, program.transform_at)
    });
    let judged = options.evaluations.map(|when| {
        let statistics = if when.recompute_bn { data.len() as u64 / u64::from(program.batch_per_rank) } else { 0 };
        (when.held_out.len() as u64, statistics)
    });
    Ok(Setup {
        program,
        data,
        sampler,
        options,
        run_length,
        guard: Guard::new(Flights::new(program, first, here.into_iter()), options.stall_limit, options.observer),
        driver: Mutex::new(driver),
        ring,
        replay,
        accuracy_monitor: options
            .start
            .map_or_else(|| AccuracyMonitor::new(target), |state| state.accuracy_monitor.with_target(target)),
        periodic: PeriodicPrograms::new(program, data, judged)?,
        first,
    })
}

/// Runs one rank, from allocating its memory to its results.
fn body(
    setup: &Setup<'_>,
    end: &mut dyn Transport,
    state: &mut Option<RankMemory>,
    clock: Instant,
    of_process: &ProcessOutcome,
    align: bool,
) -> Result<Option<Vec<RankResult>>, ExecError> {
    let flight = setup.guard.flights.of(end.rank().0);
    let _closing = flight.closing();
    let record = flight.begin_aside(Aside::Barrier, 0, setup.guard.flights.now());
    let memory = state.insert(RankMemory::new(setup, end.rank().0)?);
    let before = if align { clock::offset(end, clock)? } else { clock::Offset::default() };
    control::barrier(end)?;
    flight.end(record, setup.guard.flights.now());
    let mut outcome = Worker::new(setup, end, memory, clock)?.run()?;
    flight.begin_aside(Aside::Barrier, outcome.losses.len() as u32, setup.guard.flights.now());
    let after = if align { clock::offset(end, clock)? } else { before };
    let spans = outcome.spans.iter_mut().chain(outcome.periodic.iter_mut().map(|run| &mut run.span));
    let times = spans.flat_map(|span| [&mut span.ready, &mut span.start, &mut span.end]);
    let times = times.chain(outcome.claims.iter_mut().map(|claim| &mut claim.at));
    let clock_residual_s = clock::align(times, before, after);
    let shared = setup.program.shared_models(end.rank().0);
    let (mut statistics, mut weights, mut reference) = (Vec::new(), Vec::new(), Vec::new());
    let (mut fingerprint, mut part_fingerprint, mut average) = (None, None, None);
    let (mut whole, mut buffers) = (None, Vec::new());
    if memory.replica.is_some() {
        let common = match (shared, setup.program.delivered()) {
            (Some(shared), _) => shared.average,
            (None, Some(delivered)) => delivered,
            (None, None) => Buffer::Parameters,
        };
        let model = memory.model(common)?;
        let Some(replica) = &mut memory.replica else { unreachable!("just seen") };
        statistics = replica.statistics()?;
        let role = &setup.program.roles[setup.program.role_of(end.rank().0)];
        let print = |ranges: Vec<std::ops::Range<u64>>| {
            let own = ranges.into_iter().flat_map(|range| &model[range.start as usize..range.end as usize]);
            Fingerprint::of(&own.copied().collect::<Vec<f32>>()).words()
        };
        // A learner may have been given its device's reference model, which no other device has.
        let follows_reference = shared.is_none() && setup.program.reference_of(end.rank().0).is_some();
        fingerprint = (!follows_reference).then(|| print(setup.program.common_parameters(role)));
        // Without split layers the two fingerprints are the same.
        part_fingerprint = setup.program.cuts_model().then(|| print(setup.program.parameters_of(role)));
        let others = match setup.periodic.collects_model() {
            Some(exchange) => {
                let own = own_pieces(setup.program, replica, end.rank().0)?;
                collect(end, (&setup.periodic.checkpoint, exchange, setup.periodic.number), own)?.parts
            }
            None => Vec::new(),
        };
        if setup.program.is_in_parts() && end.rank().0 == 0 {
            whole = Some(assemble(setup.program, replica, &others, setup.options.seed)?);
        }
        if let Some(shared) = shared {
            weights = memory.be_average(shared)?;
            let previous = if outcome.moves { Some(memory.model(shared.previous)?) } else { None };
            average = Some((model, previous));
            if let Some(of_device) = shared.reference {
                reference = memory.model(of_device)?;
            }
        } else if setup.program.averages() {
            weights = memory.trained().parameters()?;
        }
        if end.rank().0 == 0 {
            buffers = memory.state_buffers(setup.program)?;
        }
    }
    let all = gather(
        end,
        RankResult { outcome, statistics, weights, reference, fingerprint, part_fingerprint, clock_residual_s },
    )?;
    if let (true, Ok(mut slot)) = (all.is_some(), of_process.replica.lock()) {
        *slot = whole.or_else(|| memory.replica.take()).map(|replica| (replica, average, buffers));
    }
    Ok(all)
}

/// Combines the results of all ranks; the workers must have ended with the same parameters.
fn finish(setup: &Setup<'_>, mut rank_results: Vec<RankResult>, of_process: ProcessOutcome) -> Result<Run, ExecError> {
    let Setup { program, options, .. } = *setup;
    // Frees the ranks' working memory before the results are copied.
    options.arenas.pool.clear();
    options.devices.clear();
    let replica = of_process.replica.into_inner().ok().flatten();
    let (mut replica, average, buffers) = replica.ok_or_else(|| InputError::new("run", "", "rank 0 does not train"))?;
    let workers = program.workers() as usize;
    let clock_residual_s = rank_results.iter().map(|rank_result| rank_result.clock_residual_s).fold(0.0, f64::max);
    // Ranks of a stage have the same layers, and those that differ on other axes alone have the same part of each.
    let (of_stage, of_part) = (program.axes_of_stage(), program.axes_of_part());
    for (rank, own) in (0..).zip(&rank_results[..workers]) {
        let first = |axes| if program.mesh.has_groups(axes) { program.mesh.group_of(axes, rank).first() } else { rank };
        let (stage, part) = (first(of_stage), first(of_part));
        let same = own.part_fingerprint == rank_results[part as usize].part_fingerprint;
        let differs = own.fingerprint.is_some() && own.fingerprint != rank_results[stage as usize].fingerprint;
        if differs || !same {
            let other = if same { stage } else { part };
            let message = format!("rank {rank} ended with other parameters than rank {other}: replicas have diverged");
            return Err(InputError::new("run", "", message).into());
        }
    }
    let parameters = replica.parameters()?;
    let velocity = replica.velocity()?;
    let weights = Fingerprint::of(&parameters);
    let mut state = weights.clone();
    match &average {
        None => state.add(&velocity),
        Some((_, previous)) => previous.iter().for_each(|previous| state.add(previous)),
    }
    buffers.iter().for_each(|buffer| state.add(buffer));
    rank_results[..workers].iter().for_each(|rank_result| state.add(&rank_result.weights));
    rank_results[..workers].iter().for_each(|rank_result| state.add(&rank_result.reference));
    rank_results[..workers].iter().for_each(|rank_result| state.add(&rank_result.statistics));
    let statistics: Vec<&[f32]> =
        rank_results[..workers].iter().map(|rank_result| rank_result.statistics.as_slice()).collect();
    replica.set_statistics(&mean_statistics(program, &statistics))?;
    let stopped = rank_results[0].outcome.stopped;
    if !stopped && options.evaluations.is_some_and(|when| when.recompute_bn) {
        replica.recompute_statistics(setup.data)?;
    }
    let own = &mut rank_results[0].outcome;
    let (evaluations, restarts) = (std::mem::take(&mut own.evaluations), std::mem::take(&mut own.restarts));
    let (steps, accuracy_monitor) =
        (own.losses.len() / program.losses_of(0), std::mem::take(&mut own.accuracy_monitor));
    let done = setup.first + steps as u64;
    let position = Position::after(done, program.global_batch(), setup.run_length.steps_per_epoch);
    let mut of_workers = |part: fn(&mut RankResult) -> &mut Vec<f32>| -> Vec<Vec<f32>> {
        rank_results[..workers].iter_mut().map(part).map(std::mem::take).collect()
    };
    let carried = State {
        position,
        weights: of_workers(|rank_result| &mut rank_result.weights),
        statistics: of_workers(|rank_result| &mut rank_result.statistics),
        references: of_workers(|rank_result| &mut rank_result.reference)
            .into_iter()
            .filter(|model| !model.is_empty())
            .collect(),
        velocity: if average.is_some() { Vec::new() } else { velocity },
        average,
        buffers,
        accuracy_monitor,
    };
    let loss = |step: usize| {
        let of_rank = |(rank, rank_result): (u32, &RankResult)| {
            let each = program.losses_of(rank);
            rank_result.outcome.losses[step * each..(step + 1) * each].to_vec()
        };
        (0..).zip(&rank_results[..workers]).flat_map(of_rank).sum::<f64>() / program.global_batch() as f64
    };
    let losses = (0..steps).map(loss).collect();
    let mut spans = Vec::new();
    let (mut periodic, mut periodic_traffic) = (Vec::new(), Vec::new());
    let (mut traffic, mut claims) = (Vec::new(), Vec::new());
    let direct_messages = rank_results.iter().map(|rank_result| rank_result.outcome.direct).sum();
    for rank_result in rank_results {
        spans.extend(rank_result.outcome.spans);
        periodic.extend(rank_result.outcome.periodic);
        claims.extend(rank_result.outcome.claims);
        traffic.push(rank_result.outcome.sent);
        periodic_traffic.push(rank_result.outcome.periodic_sent);
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
