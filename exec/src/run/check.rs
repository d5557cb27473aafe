//! Checks before a run what a process can see: whether its ranks support the program's exchanges, and whether threads
//! and memory suffice.

use lockstep_models::{Exchange, Program};
use lockstep_topology::{Collective, Dtype, ErrorPlace, InputError, Library};

use crate::capacity::check_threads;
use crate::device::Devices;

/// Refuses a program that the ranks `here`, those of this process, cannot run with this many threads each, before
/// anything is allocated. `apart`: each rank of the job is a process of its own.
///
/// # Errors
/// Too few threads or too little memory left, a precision that the devices do not have, or a library that does not support
/// such ranks.
pub fn check_run(
    program: &Program,
    here: impl ExactSizeIterator<Item = u32>,
    devices: &dyn Devices,
    threads: usize,
    apart: bool,
) -> Result<(), InputError> {
    check_threads(here.len() as u64, threads as u64)?;
    let calls = |library| {
        let mut exchanges = program.roles.iter().flat_map(|role| role.exchanges().map(|(_, exchange)| exchange));
        exchanges.any(|exchange| exchange.algorithm.library() == Some(library))
    };
    if !apart && calls(Library::Transport) {
        let message = format!(
            "calls MPI, with one rank in each process: start with mpirun -n RANKS and {} mpi, or use an algorithm of \
             lockstep's own, such as ring",
            ErrorPlace::Flag("transport")
        );
        return Err(InputError::flag("algorithm", "library:mpi", message));
    }
    if calls(Library::Predicted) {
        let message = "is predicted, and no device that runs here calls it: use library:nccl on NVIDIA GPUs, or ring";
        return Err(InputError::flag("algorithm", "library:rccl", message));
    }
    devices.check_precision(program.precision)?;
    devices.check_gradients(program.gradients, program.precision)?;
    devices.check_moments(program.moments)?;
    check_library(program)?;
    if program.clips() {
        devices.check_clipping()?;
    }
    let here: Vec<u32> = here.collect();
    if calls(Library::Devices) {
        let mut exchanges = program.roles.iter().flat_map(|role| role.exchanges().map(|(_, exchange)| exchange));
        let by_devices = |exchange: &&Exchange| exchange.algorithm.library() == Some(Library::Devices);
        if let Some(other) = exchanges.find(|one| by_devices(one) && one.collective != Collective::AllReduce) {
            let message = format!(
                "of the devices' library, runs call the allreduce alone, and {} is predicted only: use an algorithm of lockstep's \
                 own, such as ring",
                other.collective
            );
            return Err(InputError::flag("algorithm", other.algorithm.to_string(), message));
        }
        devices.check_sums(&here)?;
    }
    devices.check_memory(program, &here, threads)
}

/// Refuses gradients in another format than fp32 where a library adds them.
fn check_library(program: &Program) -> Result<(), InputError> {
    let exchanges = program.roles.iter().flat_map(|role| role.exchanges().map(|(_, exchange)| exchange));
    let adds = |exchange: &&Exchange| exchange.algorithm.library().is_some() && exchange.collective.sums();
    match exchanges.filter(adds).find(|exchange| program.dtype(exchange.buffer) != Dtype::F32) {
        Some(exchange) => {
            let (algorithm, dtype) = (exchange.algorithm.to_string(), program.dtype(exchange.buffer));
            let message =
                format!("adds fp32 here, and gradients are {dtype}: use an algorithm of lockstep's own, such as ring");
            Err(InputError::flag("algorithm", algorithm, message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::{Job, Precision, random_model};

    use super::*;
    use crate::device::{Cpus, Nulls};

    /// A program in another precision would be trained in fp32 and called by its name.
    #[test]
    fn cpus_refuse_what_they_do_not_store() {
        let model = Arc::new(random_model(3, false));
        for precision in Precision::ALL {
            let program = Job { precision, ..Job::new(model.clone(), 2, 4) }.program().unwrap();
            for devices in [&Cpus as &dyn Devices, &Nulls] {
                let stored = [Precision::F32, Precision::Bf16].contains(&precision);
                match check_run(&program, 0..2, devices, 1, false) {
                    Ok(()) => assert!(stored, "{precision}"),
                    Err(error) => {
                        assert!(!stored, "{error}");
                        let begin = format!("--precision: {precision}: is not computed on CPUs");
                        assert!(error.to_string().starts_with(&begin), "{error}");
                    }
                }
            }
        }
    }
}
