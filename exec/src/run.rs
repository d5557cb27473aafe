//! `run`: executes a program on data and returns a measured timeline, losses and the trained state.

mod check;
mod combine;
mod ending;
#[cfg(feature = "mpi")]
mod processes;
mod result;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use lockstep_data::{Dataset, Parts, Sampler};
use lockstep_models::{AccuracyMonitor, Driver, Program, RunLength, Target};
use lockstep_topology::InputError;

use crate::capacity;
use crate::clock;
use crate::error::ExecError;
use crate::flight::{Aside, Flights};
use crate::gather::{RankResult, gather};
use crate::input::{Decoders, Feed, Ring};
use crate::periodic::PeriodicPrograms;
use crate::pin::Pins;
use crate::process_outcome::ProcessOutcome;
use crate::rank_memory::RankMemory;
use crate::setup::{RunOptions, Setup};
use crate::transport::{Transport, control, memory};
use crate::watch::Guard;
use crate::worker::Worker;

pub use check::check_run;
use combine::combine;
use ending::Ending;
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
    combine(&setup, all, of_process)
}

/// Refuses an optimizer of another rule than the program's, of moments in another format, or one that clips gradients where
/// the program does not.
fn check_optimizer(program: &Program, options: &RunOptions<'_>) -> Result<(), InputError> {
    if options.optimizer.rule != program.rule {
        let message =
            format!("is not the optimizer of the program, which steps by {}: build it with the same", program.rule);
        return Err(InputError::flag("optimizer", options.optimizer.rule.to_string(), message));
    }
    if options.optimizer.moments != program.moments {
        let message = format!(
            "is not the format of the program's moments, which are {}: build it with the same",
            program.moments
        );
        return Err(InputError::flag("moments", options.optimizer.moments.to_string(), message));
    }
    if options.optimizer.clip_norm.is_some() != program.clips() {
        let message = "is not what the program says of clipping: build it with the same optimizer";
        let value = options.optimizer.clip_norm.map_or_else(String::new, |most| most.to_string());
        return Err(InputError::flag("clip_norm", value, message));
    }
    Ok(())
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
        capacity::check_parts(parts.memory_each(data, &here), here.len())?;
    }
    let (global_batch, steps_per_epoch) = (program.global_batch(), sampler.batches_per_epoch());
    check_optimizer(program, options)?;
    let first = match options.start {
        Some(state) if !state.fits(program) => {
            let message = "is of another model, another optimizer or another kind of strategy: resume with the settings of the earlier run";
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
    let decoders = Arc::new(Decoders::new());
    let room = Feed::room(program.roles[0].batches_ahead().unwrap_or(0));
    let ring = driver.pools().filter(|_| room > 0).map(|pools| {
        let learners = here.iter().copied().filter(|rank| *rank < program.workers());
        Ring::new(pools.clone(), learners, room, options.seed, (&decoders, program.transform_at))
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
        decoders,
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
    let Ending { of_rank, whole, average, buffers } = match memory.replica {
        Some(_) => Ending::of(setup, end, memory, outcome.moves)?,
        None => Ending::default(),
    };
    let all = gather(end, RankResult { outcome, clock_residual_s, values: of_rank })?;
    if let (true, Ok(mut slot)) = (all.is_some(), of_process.replica.lock()) {
        *slot = whole.or_else(|| memory.replica.take()).map(|replica| (replica, average, buffers));
    }
    Ok(all)
}
