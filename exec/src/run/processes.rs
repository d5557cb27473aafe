//! Runs a program on the processes that `mpirun` started: sets up in all of them or in none, then runs the ranks of
//! each.

use lockstep_data::Dataset;
use lockstep_models::Program;

use super::{Run, body, check_run, combine, setup};
use crate::error::ExecError;
use crate::patience::ASIDE;
use crate::process_outcome::ProcessOutcome;
use crate::rank_memory::RankMemory;
use crate::setup::{RunOptions, Setup};
use crate::transport::mpi::Processes;

/// Runs a program on the processes that `mpirun` started, rank r in process `hosts[r]`. Returns the result in the
/// process of rank 0, and nothing in the others.
///
/// # Errors
/// As [`run`](super::run()); a failure while the ranks run ends all processes.
pub fn run_processes(
    processes: &mut Processes,
    hosts: &[u32],
    program: &Program,
    data: &Dataset,
    options: &RunOptions<'_>,
) -> Result<Option<Run>, ExecError> {
    let here = (0..program.ranks()).zip(hosts).filter(|(_, host)| **host == processes.process());
    let here: Vec<u32> = here.map(|(rank, _)| rank).collect();
    let own = set_up_process(program, data, options, &here, hosts);
    let limit = options.stall_limit * ASIDE;
    let unwell = processes.first_unwell(own.is_ok(), limit, || {
        let report = "before the first step: another process of the job has not reached this point".to_owned();
        let rank = here.first().copied().unwrap_or_default();
        let error = ExecError::Stall { rank, seconds: limit.as_secs_f64(), report };
        options.observer.stuck(&error);
    });
    let setup = match (own, unwell) {
        (Ok(setup), None) => setup,
        // An error of many processes is reported by the first of them.
        (Err(error), Some(first)) if first == processes.process() => return Err(error),
        _ => return Err(ExecError::Elsewhere),
    };
    let mut states: Vec<Option<RankMemory>> = Vec::new();
    states.resize_with(here.len(), || None);
    let of_process = ProcessOutcome::default();
    let clock = setup.guard.flights.clock();
    let pins = processes.pins(hosts, options.threads_per_rank);
    let results = setup.guard.during(|| {
        processes.run(hosts, 0, states, |end, state| {
            let rank = end.rank().0;
            let _bound = pins.bind(here.iter().position(|own| *own == rank).unwrap_or_default());
            let result = of_process.note(body(&setup, end, state, clock, &of_process, true));
            result.map_err(|error| format!("{error} ({})", setup.guard.place(rank)))
        })
    });
    let all = results.map_err(|error| of_process.cause(error, &setup.guard))?.into_iter().flatten().next();
    all.map(|all| combine(&setup, all, of_process)).transpose()
}

/// The shared state of the ranks `here` of one process, if they can be run; `hosts` are the processes of all ranks.
fn set_up_process<'a>(
    program: &'a Program,
    data: &'a Dataset,
    options: &'a RunOptions<'a>,
    here: &[u32],
    hosts: &'a [u32],
) -> Result<Setup<'a>, ExecError> {
    data.check_fits(&program.model)?;
    let apart = hosts.windows(2).all(|two| two[0] != two[1]);
    check_run(program, here.iter().copied(), &*options.devices, options.threads_per_rank, apart)?;
    Ok(setup(program, data, options, here.iter().copied(), Some(hosts))?)
}
