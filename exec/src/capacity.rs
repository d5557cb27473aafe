//! Checks before a run that the system has enough threads and memory left for it.

use std::fs::read_to_string;

use lockstep_data::available_memory;
use lockstep_models::Program;
use lockstep_models::memory::Memory;
use lockstep_topology::{Bytes, InputError};

/// The elements that the optimizer keeps for each parameter.
fn optimizer_elements(program: &Program) -> u64 {
    program.rule.states().len() as u64
}

/// Linux never has more threads than this, whatever its limits.
const MOST_THREADS: u64 = 1 << 22;

/// How many ranks of the first role, each with a `workspace` in bytes, fit in the host's free memory; `u32::MAX` where the free
/// memory is unknown.
///
/// # Errors
/// An exchange's algorithm that does not support its group.
pub(crate) fn most_ranks(program: &Program, workspace: usize) -> Result<u32, InputError> {
    let Some(available) = available_memory() else { return Ok(u32::MAX) };
    let workspace = workspace as u64;
    let each = Memory::of_role(program, 0, optimizer_elements(program))?.total() + workspace;
    Ok((available / each.max(1)).min(u64::from(u32::MAX)) as u32)
}

/// Refuses parts of a packed set that `ranks` ranks of this process would hold together, `each` bytes each, if the host
/// has less left.
///
/// # Errors
/// The estimate, and what is left.
pub(crate) fn check_parts(each: u64, ranks: usize) -> Result<(), InputError> {
    let cure = "let more ranks hold the set together (fewer groups, more hosts), or use one-shuffle, which leaves it in its file";
    check_buffers("sampling", "partitioned", ranks as u64, u128::from(each), cure)
}

/// Refuses a program whose ranks `here`, those of this process, need more host memory than is left, before any of it is
/// taken. Each rank has a `workspace` in bytes and activations, if it computes.
///
/// # Errors
/// Reports the estimate, what is left, and what would fit.
pub(crate) fn check_memory(program: &Program, here: &[u32], workspace: Option<usize>) -> Result<(), InputError> {
    // Where free memory is unknown, the system refuses allocations that do not fit.
    let Some(available) = available_memory() else { return Ok(()) };
    check_against(available, program, here.iter().copied(), workspace)
}

fn check_against(
    available: u64,
    program: &Program,
    ranks: impl Iterator<Item = u32>,
    workspace: Option<usize>,
) -> Result<(), InputError> {
    let of_role = |role| {
        let memory = Memory::of_role(program, role, optimizer_elements(program))?;
        Ok(if workspace.is_some() { memory } else { Memory { activations: 0, optimizer: 0, ..memory } })
    };
    let memories: Vec<Memory> = (0..program.roles.len()).map(of_role).collect::<Result<_, InputError>>()?;
    let workspace = workspace.unwrap_or(0) as u64;
    let (mut needed, mut learners) = (0u64, 0u64);
    for rank in ranks {
        let memory = &memories[program.role_of(rank)];
        let trains = memory.weights > 0;
        needed = needed.saturating_add(memory.total() + if trains { workspace } else { 0 });
        learners += u64::from(trains);
    }
    if needed <= available {
        return Ok(());
    }
    let (batch, memory) = (u64::from(program.batch_per_rank), &memories[0]);
    let by_samples = memory.input + memory.activations;
    let fixed = memory.total() - by_samples + workspace;
    let samples = (available / learners.max(1)).saturating_sub(fixed).saturating_mul(batch) / by_samples.max(1);
    let cure = match (samples, available / (fixed + by_samples).max(1)) {
        (0, 0) => "not one sample of one rank fits: use a smaller model".to_owned(),
        (0, ranks) => format!("{ranks} such ranks fit"),
        (samples, 0) => format!("about {samples} samples per rank fit"),
        (samples, ranks) => format!("about {samples} samples per rank fit, or {ranks} such ranks"),
    };
    let message = format!(
        "the memory plan of {learners} ranks takes {}, and this host has {} left: {cure}",
        Bytes(needed),
        Bytes(available)
    );
    Err(InputError::flag("batch_per_rank", batch.to_string(), message))
}

/// Refuses `ranks` ranks in this process with `each` threads each where the system does not have the threads.
///
/// # Errors
/// Reports the number of threads, how many are left, and what would fit.
pub fn check_threads(ranks: u64, each: u64) -> Result<(), InputError> {
    threads_within(most_threads(), ranks, each.max(1))
}

fn threads_within(most: u64, ranks: u64, each: u64) -> Result<(), InputError> {
    let needed = ranks.saturating_mul(each);
    if needed <= most {
        return Ok(());
    }
    let message = |key, value: u64, cure: String| {
        let message = format!(
            "{ranks} ranks in one process, {each} threads each, need {needed} threads, and this system gives {most}: {cure}"
        );
        Err(InputError::flag(key, value.to_string(), message))
    };
    match most / each {
        0 => message("threads_per_rank", each, format!("use at most one for each core, which are {}", cores())),
        fit => message("ranks", ranks, format!("use at most {fit} ranks, or more hosts")),
    }
}

/// Refuses buffers of the setting `key` where `ranks` ranks of this process need `each` bytes and the host has less
/// left.
///
/// # Errors
/// Reports the estimate, what is left, how many bytes a rank could have, and the `cure`.
pub fn check_buffers(key: &'static str, value: &str, ranks: u64, each: u128, cure: &str) -> Result<(), InputError> {
    let within = buffers_within(available_memory(), ranks, each);
    within.map_err(|message| InputError::flag(key, value, format!("{message}: {cure}")))
}

fn buffers_within(available: Option<u64>, ranks: u64, each: u128) -> Result<(), String> {
    let (Some(available), needed) = (available, each.saturating_mul(u128::from(ranks))) else { return Ok(()) };
    if needed <= u128::from(available) {
        return Ok(());
    }
    let shown = |bytes: u128| Bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
    let (needed, each, left) = (shown(needed), shown(each), Bytes(available));
    let own = Bytes(available / ranks.max(1));
    Err(format!(
        "the buffers of {ranks} ranks take {needed}, {each} each, and this host has {left} left, {own} for each"
    ))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Threads that the system still allows this process: the smallest of its limits, less the threads that exist.
fn most_threads() -> u64 {
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let system = ["threads-max", "pid_max"].map(|file| number(&format!("/proc/sys/kernel/{file}")));
    // A stack is one mapping, and its guard page another.
    let mappings = number("/proc/sys/vm/max_map_count").map(|most| most / 2);
    let there = read_to_string("/proc/loadavg").ok().and_then(|text| threads_in(&text)).unwrap_or(0);
    let left = |most: u64| most.saturating_sub(there);
    let container = number("/sys/fs/cgroup/pids.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/pids.current").unwrap_or(0)));
    let all = system.into_iter().flatten().map(left).chain(mappings).chain(container);
    all.min().unwrap_or(MOST_THREADS)
}

/// `0.1 0.2 0.3 1/234 5678`: of 234 threads one runs.
fn threads_in(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_models::Job;

    use lockstep_topology::ErrorPlace;

    use super::*;
    use crate::device::cpu::{Threads, workspace_bytes};

    #[test]
    fn oversized_batches_are_refused_with_a_size_that_fits() {
        let job = Job::new(Arc::new(lockstep_readers::load_model("resnet-32").unwrap()), 4, 64);
        let program = job.program().unwrap();
        let workspace = |program: &Program| Some(workspace_bytes(program, &Threads::one()));
        let refused = |available, ranks| check_against(available, &program, 0..ranks, workspace(&program)).err();
        let one = Memory::of_role(&program, 0, 1).unwrap().total() + workspace(&program).unwrap() as u64;
        assert_eq!(refused(4 * one, 4), None);
        let error = refused(4 * one - 1, 4).unwrap();
        assert_eq!((&error.place, error.value.as_str()), (&ErrorPlace::Flag("batch_per_rank"), "64"));
        assert!(error.message.contains("63 samples per rank fit, or 3 such ranks"), "{error}");
        assert!(error.message.contains(&Bytes(4 * one).to_string()), "{error}");
        assert!(refused(1000, 4).unwrap().message.contains("not one sample"));
        // What the message says would fit does fit.
        let samples = Job { batch_per_rank: 63, ..job }.program().unwrap();
        assert_eq!(check_against(4 * one - 1, &samples, 0..4, workspace(&samples)), Ok(()));
        assert_eq!(refused(4 * one - 1, 3), None);
        // Without arithmetic there are no activations, but each rank has its parameters and their gradients.
        let parameters = program.model.parameter_elements() * 4;
        assert_eq!(check_against(one - 1, &program, 0..1, None), Ok(()));
        assert!(check_against(8 * parameters - 1, &program, 0..4, None).is_err());
    }

    #[test]
    fn threads_beyond_the_system_limit_are_refused() {
        assert_eq!(threads_within(12, 4, 3), Ok(()));
        let error = threads_within(11, 4, 3).unwrap_err();
        assert_eq!((&error.place, error.value.as_str()), (&ErrorPlace::Flag("ranks"), "4"));
        assert!(error.message.contains("need 12 threads") && error.message.contains("at most 3 ranks"), "{error}");
        let error = threads_within(11, 1, 12).unwrap_err();
        assert_eq!((&error.place, error.value.as_str()), (&ErrorPlace::Flag("threads_per_rank"), "12"));
        assert!(threads_within(u64::from(u32::MAX), u64::MAX, 2).is_err());
        assert_eq!(threads_in("0.12 0.30 0.20 2/234 5678\n"), Some(234));
        assert_eq!(threads_in("0.12"), None);
        assert_eq!(check_threads(2, 1), Ok(()));
        assert!(check_threads(MOST_THREADS + 1, 1).is_err());
    }

    #[test]
    fn buffers_are_counted_without_overflow() {
        assert_eq!(buffers_within(Some(100), 4, 25), Ok(()));
        assert_eq!(buffers_within(None, 4, u128::MAX), Ok(()));
        let message = buffers_within(Some(99), 4, 25).unwrap_err();
        assert_eq!(message, "the buffers of 4 ranks take 100B, 25B each, and this host has 99B left, 24B for each");
        assert!(buffers_within(Some(u64::MAX), u64::MAX, u128::MAX).is_err());
        let error = check_buffers("bytes", "8000TiB", 2, 1 << 60, "use less").unwrap_err().to_string();
        assert!(error.starts_with("--bytes: 8000TiB: the buffers") && error.ends_with(": use less"), "{error}");
    }
}
