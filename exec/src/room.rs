//! Whether a run fits into the memory that its host has left, asked before any of it is allocated.

use std::fs::read_to_string;

use lockstep_models::Program;
use lockstep_models::memory::Memory;
use lockstep_topology::{Bytes, InputError};

use crate::device::Devices;
use crate::device::cpu::{Threads, workspace_bytes};
use crate::error::ExecError;
use crate::run::Options;

/// Optimizer state of a replica per parameter: its velocity.
const OPTIMIZER_ELEMENTS: u64 = 1;

/// How many ranks of the first role the memory that is left would hold, on these devices; as many as anybody asks for where
/// nobody can say.
///
/// # Errors
/// An exchange's algorithm that cannot serve its group, threads that the system does not give; a device's.
pub fn most_ranks(program: &Program, devices: &Devices, threads: usize) -> Result<u32, ExecError> {
    if let Devices::Cuda(gpus) = devices {
        return Ok(gpus.most_ranks(program)?);
    }
    let Some(available) = available() else { return Ok(u32::MAX) };
    let workspace = workspace_bytes(program, &Threads::new(threads)?) as u64;
    let each = Memory::of_role(program, 0, OPTIMIZER_ELEMENTS)?.total() + workspace;
    Ok((available / each.max(1)).min(u64::from(u32::MAX)) as u32)
}

/// Refuses a program of which `ranks` of this process need more of the host's memory than there is.
///
/// # Errors
/// The plan's figure, what there is, and what would fit.
pub(crate) fn check(
    program: &Program,
    ranks: impl Iterator<Item = u32>,
    options: &Options<'_>,
) -> Result<(), InputError> {
    match (&options.devices, available()) {
        (Devices::Cpu, Some(available)) => {
            check_against(available, program, ranks, &Threads::new(options.threads_per_rank)?)
        }
        // Nobody can say: the system will. GPUs ask for themselves, and what computes nothing takes little.
        _ => Ok(()),
    }
}

fn check_against(
    available: u64,
    program: &Program,
    ranks: impl Iterator<Item = u32>,
    threads: &Threads,
) -> Result<(), InputError> {
    let of_role = |role| Memory::of_role(program, role, OPTIMIZER_ELEMENTS);
    let memories: Vec<Memory> = (0..program.roles.len()).map(of_role).collect::<Result<_, _>>()?;
    let workspace = workspace_bytes(program, threads) as u64;
    let (mut needed, mut learners) = (0u64, 0u64);
    for rank in ranks {
        let memory = &memories[program.role_of(rank)];
        let trains = memory.weights > 0;
        needed += memory.total() + if trains { workspace } else { 0 };
        learners += u64::from(trains);
    }
    if needed <= available {
        return Ok(());
    }
    let (batch, memory) = (u64::from(program.batch_per_rank), &memories[0]);
    let by_samples = memory.input + memory.activations;
    let fixed = memory.total() - by_samples + workspace;
    let samples = (available / learners.max(1)).saturating_sub(fixed) * batch / by_samples.max(1);
    let cure = match (samples, available / (fixed + by_samples)) {
        (0, 0) => "not one sample of one rank fits: take a smaller model".to_owned(),
        (0, ranks) => format!("{ranks} such ranks fit"),
        (samples, 0) => format!("about {samples} samples per rank fit"),
        (samples, ranks) => format!("about {samples} samples per rank fit, or {ranks} such ranks"),
    };
    let message = format!(
        "the memory plan of {learners} ranks takes {}, and this host has {} left: {cure}",
        Bytes(needed),
        Bytes(available)
    );
    Err(InputError::new("--batch-per-rank", batch.to_string(), message))
}

/// Bytes that this process may still take, without making others swap: what the system says, and what a container allows.
fn available() -> Option<u64> {
    let system = in_meminfo(&read_to_string("/proc/meminfo").ok()?)?;
    let of_container = |file: &str| read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse::<u64>().ok();
    let container = of_container("memory.max").zip(of_container("memory.current"));
    Some(container.map_or(system, |(most, used)| system.min(most.saturating_sub(used))))
}

fn in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::{Job, Model};

    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let job = Job::new(Arc::new(Model::load("resnet-32").unwrap()), 4, 64);
        let program = job.program().unwrap();
        let threads = Threads::one();
        let refused = |available, ranks| check_against(available, &program, 0..ranks, &threads).err();
        let one = Memory::of_role(&program, 0, 1).unwrap().total() + workspace_bytes(&program, &threads) as u64;
        assert_eq!(refused(4 * one, 4), None);
        let error = refused(4 * one - 1, 4).unwrap();
        assert_eq!((error.place.as_str(), error.value.as_str()), ("--batch-per-rank", "64"));
        assert!(error.message.contains("63 samples per rank fit, or 3 such ranks"), "{error}");
        assert!(error.message.contains(&Bytes(4 * one).to_string()), "{error}");
        assert!(refused(1000, 4).unwrap().message.contains("not one sample"));
        // What is said to fit does.
        let samples = Job { batch_per_rank: 63, ..job }.program().unwrap();
        assert_eq!(check_against(4 * one - 1, &samples, 0..4, &threads), Ok(()));
        assert_eq!(refused(4 * one - 1, 3), None);
    }

    #[test]
    fn the_system_is_read() {
        assert_eq!(in_meminfo("MemTotal:  5 kB\nMemAvailable:    3 kB\n"), Some(3072));
        assert_eq!(in_meminfo("MemTotal: 5 kB"), None);
        if cfg!(target_os = "linux") {
            assert!(available().is_some_and(|bytes| bytes > 1 << 20));
        }
    }
}
