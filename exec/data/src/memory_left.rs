//! Computes how much memory this process may still take, from the system's free memory, the limits of its control
//! groups, and its own limits (`ulimit -v` and `ulimit -d`).

use std::fs::read_to_string;
use std::path::Path;

/// Where Linux mounts control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes that this process may still take without making others swap; `None` where the system does not report it.
pub fn available_memory() -> Option<u64> {
    let system = in_meminfo(&read_to_string("/proc/meminfo").ok()?)?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = |file: &str| read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let (limits, status) = (own("limits"), own("status"));
    let all = in_groups(Path::new(GROUPS), &groups).chain(in_limits(&limits, &status));
    Some(all.fold(system, u64::min))
}

/// Bytes left of the limits in `limits` (the lines of `/proc/self/limits`), given what `status` says is in use.
fn in_limits(limits: &str, status: &str) -> impl Iterator<Item = u64> {
    let left = |(limit, used): (&str, &str)| {
        let line = limits.lines().find_map(|line| line.strip_prefix(limit))?;
        // `unlimited` is no number.
        let most: u64 = line.split_whitespace().next()?.parse().ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(used))?;
        let used: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(most.saturating_sub(used << 10))
    };
    let all = [("Max address space", "VmSize:"), ("Max data size", "VmData:")];
    all.into_iter().filter_map(left).collect::<Vec<u64>>().into_iter()
}

fn in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Bytes left in each memory-limited group of `groups` (the lines of `/proc/self/cgroup`) and of its parents.
fn in_groups(mount: &Path, groups: &str) -> impl Iterator<Item = u64> {
    let group = |line: &str| {
        // `0::/path` of version 2, `4:memory:/path` of version 1.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/').to_owned());
        let names = match controllers {
            "" => ["memory.max", "memory.current", "inactive_file", "active_file"],
            _ if controllers.split(',').any(|name| name == "memory") => {
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"]
            }
            _ => return None,
        };
        let root = if controllers.is_empty() { mount.to_owned() } else { mount.join("memory") };
        // A container sees its own group as the root, although its path is the one outside.
        let own = root.join(path);
        let around = own.ancestors().take_while(|at| at.starts_with(&root)).map(|at| left(at, names));
        Some(around.flatten().collect::<Vec<u64>>())
    };
    groups.lines().filter_map(group).flatten().collect::<Vec<u64>>().into_iter()
}

/// Bytes left in the group whose files are in `folder`. The names are those of its limit, its usage, and its page
/// cache, which can be dropped.
fn left(folder: &Path, [limit, used, inactive, active]: [&str; 4]) -> Option<u64> {
    let number = |file: &str| read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    let stat = read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
    let files = of(inactive).unwrap_or(0) + of(active).unwrap_or(0);
    Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_meminfo() {
        assert_eq!(in_meminfo("MemTotal: 8 kB\nMemAvailable:    1024 kB\n"), Some(1 << 20));
        assert_eq!(in_meminfo("MemTotal: 8 kB\n"), None);
        if cfg!(target_os = "linux") {
            assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
        }
    }

    #[test]
    fn limits_of_the_process_leave_what_it_has_not_taken() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max data size             8192                 unlimited            bytes     \n\
                      Max address space         1048576              unlimited            bytes     \n";
        let status = "Name:\tx\nVmSize:\t     512 kB\nVmData:\t      12 kB\n";
        assert_eq!(in_limits(limits, status).collect::<Vec<u64>>(), [512 << 10, 0]);
        assert_eq!(in_limits(&limits.replace("8192", "unlimited"), status).count(), 1);
        assert_eq!(in_limits("", status).count(), 0);
    }

    /// In both versions parent groups count as well, page cache can be dropped, and `max` means no limit.
    #[test]
    fn each_cgroup_leaves_its_limit_less_its_usage() {
        let mount = tempfile::tempdir().expect("a folder");
        let group = |path: &str, files: &[(&str, &str)]| {
            let folder = mount.path().join(path);
            std::fs::create_dir_all(&folder).expect("a folder");
            files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).expect("a file"));
        };
        group("", &[("memory.max", "1000\n"), ("memory.current", "100\n")]);
        group(
            "job/step",
            &[
                ("memory.max", "500\n"),
                ("memory.current", "450\n"),
                ("memory.stat", "anon 1\ninactive_file 40\nactive_file 60\n"),
            ],
        );
        group("job", &[("memory.max", "max\n"), ("memory.current", "450\n")]);
        group(
            "memory/old",
            &[
                ("memory.limit_in_bytes", "300\n"),
                ("memory.usage_in_bytes", "310\n"),
                ("memory.stat", "total_inactive_file 30\n"),
            ],
        );
        let found = |groups: &str| in_groups(mount.path(), groups).collect::<Vec<u64>>();
        assert_eq!(found("0::/job/step\n"), [150, 900]);
        assert_eq!(found("4:memory:/old\n3:cpuset:/old\n"), [20]);
        // A path from outside a container does not exist: the own group is the root.
        assert_eq!(found("0::/elsewhere/it\n"), [900]);
        assert!(found("nothing\n").is_empty());
    }
}
