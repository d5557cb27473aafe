//! Reads which processors the calling thread may use, and their topology, from Linux.

use std::path::Path;

use super::plan::Processor;

/// The folder in which Linux describes them.
pub(super) const SYSTEM: &str = "/sys/devices/system/cpu";

/// The topology of these processors from the files below `system`; one without files counts as a core of its own.
pub(super) fn read(system: &Path, numbers: &[usize]) -> Vec<Processor> {
    numbers.iter().map(|number| processor(system, *number)).collect()
}

fn processor(system: &Path, number: usize) -> Processor {
    let folder = system.join(format!("cpu{number}"));
    let read = |name: &str| -> Option<usize> {
        // -1 where the firmware reports nothing.
        std::fs::read_to_string(folder.join("topology").join(name)).ok()?.trim().parse().ok()
    };
    let node = || -> Option<usize> {
        let names = std::fs::read_dir(&folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.strip_prefix("node")?.parse().ok()).min()
    };
    let package = read("physical_package_id").unwrap_or(0);
    // Dies of a socket may each number their cores from 0.
    let core = read("core_id").map(|core| read("die_id").unwrap_or(0) << 32 | core);
    Processor { number, node: node().unwrap_or(0), package, core: core.unwrap_or(1 << 48 | number) }
}

/// Words of an affinity mask: more bits than Linux has processors.
#[cfg(target_os = "linux")]
const WORDS: usize = 256;

/// The processors that the calling thread may use, ascending; empty where the system does not report them.
#[cfg(target_os = "linux")]
pub(super) fn allowed() -> Vec<usize> {
    let mut mask = [0u64; WORDS];
    // SAFETY: the system writes at most the given number of bytes, the size of `mask`.
    let found = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if found != 0 {
        return Vec::new();
    }
    let bit = |number: &usize| mask[number / 64] >> (number % 64) & 1 == 1;
    (0..64 * WORDS).filter(bit).collect()
}

/// Restricts the calling thread, and threads that it starts from now on, to these processors; returns whether the
/// system did so.
#[cfg(target_os = "linux")]
pub(super) fn allow(numbers: &[usize]) -> bool {
    let mut mask = [0u64; WORDS];
    for number in numbers.iter().filter(|number| **number < 64 * WORDS) {
        mask[number / 64] |= 1 << (number % 64);
    }
    // SAFETY: the system reads the given number of bytes, the size of `mask`.
    unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) == 0 }
}

/// Other systems are not supported.
#[cfg(not(target_os = "linux"))]
pub(super) fn allowed() -> Vec<usize> {
    Vec::new()
}

/// Other systems are not supported.
#[cfg(not(target_os = "linux"))]
pub(super) fn allow(_numbers: &[usize]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up machine in files: two dies of one socket, whose cores both count from 0; the second die is nearest to
    /// node 1.
    #[test]
    fn the_topology_is_read_from_files() {
        let folder = std::env::temp_dir().join(format!("lockstep-processors-{}", std::process::id()));
        for (number, die, core, node) in [(0, 0, 0, 0), (1, 0, 1, 0), (2, 1, 0, 1), (3, 1, 1, 1)] {
            let own = folder.join(format!("cpu{number}"));
            std::fs::create_dir_all(own.join("topology")).unwrap();
            std::fs::create_dir_all(own.join(format!("node{node}"))).unwrap();
            let write = |name: &str, value: i32| std::fs::write(own.join("topology").join(name), format!("{value}\n"));
            write("physical_package_id", 0).unwrap();
            write("die_id", die).unwrap();
            write("core_id", core).unwrap();
        }
        let found = read(&folder, &[0, 1, 2, 3, 7]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.iter().map(|of| of.node).collect::<Vec<_>>(), [0, 0, 1, 1, 0]);
        let mut cores: Vec<_> = found.iter().map(|of| (of.package, of.core)).collect();
        cores.sort_unstable();
        cores.dedup();
        assert_eq!(cores.len(), 5, "each is a core of its own: {found:?}");
    }

    /// The topology of this machine agrees with what its kernel reports elsewhere: threads of a core are listed
    /// together.
    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_processors() {
        let numbers = allowed();
        assert!(!numbers.is_empty());
        for processor in read(Path::new(SYSTEM), &numbers) {
            let list = format!("{SYSTEM}/cpu{}/topology/thread_siblings_list", processor.number);
            let Ok(siblings) = std::fs::read_to_string(list) else { continue };
            let others = read(Path::new(SYSTEM), &super::super::listed(&siblings));
            for other in others {
                assert_eq!((other.package, other.core), (processor.package, processor.core), "{siblings}");
            }
        }
    }
}
