//! Checks the hosts of a job: reports their facts, tests that every two processes reach each other, and advises where
//! they do not.
//!
//! It runs where a job would run, under its launcher, so it sees what a job would see.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockstep_exec::transport::control;
use lockstep_exec::{Pins, patiently};
use lockstep_experiment::{Experiment, TransportKind};
use lockstep_report::CheckRow;
use lockstep_report::failure::{Failure, STALLED};
use lockstep_report::log::print_line;
use lockstep_topology::{Bytes, Rank};
use serde::{Deserialize, Serialize};

use crate::host::{HostInfo, now_s};
use crate::launch::Launch;
use crate::operation::STALL_LIMIT;

/// A pair that has not exchanged messages after this long is considered unreachable.
const PATIENCE: Duration = Duration::from_secs(30);
/// Messages per pair; the shortest round trip counts.
const ROUNDS: u64 = 5;
/// Clocks that differ by more than this make dates of two hosts incomparable.
const CLOCKS_S: f64 = 0.5;
/// An MPI library's segments need at least this much shared memory.
const LEAST_SHARED: Bytes = Bytes(64 << 20);

/// The facts of one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Facts {
    host: String,
    /// Version and build of lockstep.
    version: String,
    mpi: String,
    cpu: String,
    /// How many cores the system gives it, and which processors it may use.
    cores: usize,
    processors: Vec<usize>,
    /// Free bytes in /dev/shm.
    shared: Option<u64>,
    /// Whether it sees the file that the first process has created.
    sees: bool,
    /// Seconds since 1970 at a moment that all processes share.
    now_s: f64,
    /// Duration of that moment, in seconds.
    within_s: f64,
    /// The longest of the shortest round trips with each other process, in seconds.
    round_trip_s: f64,
}

/// The findings on each host of the job that started this process, in rank 0's process. Where processes do not reach
/// each other, prints which and ends this process.
///
/// # Errors
/// No MPI in this binary; a lost message.
pub fn job_hosts() -> Result<Option<Vec<CheckRow>>, Failure> {
    let asked = Experiment { transport: TransportKind::Mpi, ..Experiment::default() };
    let own = HostInfo::find();
    let apart = || end_apart(&format!("a process on {} does not meet all others", own.name));
    let joined = patiently(PATIENCE, &AtomicU64::new(0), apart, || {
        let launch = Launch::new(&asked, STALL_LIMIT)?;
        let names = launch.texts(&own.name);
        Ok::<_, Failure>((launch, names))
    });
    let (mut launch, names) = joined?;
    look(&mut launch, own, &names)
}

/// Prints which process waits for which, and what to do; ends the process.
fn end_apart(what: &str) {
    print_line(&format!(
        "{what} within {PATIENCE:?}: open the ports between the hosts, or name the network that all have, as in mpirun --mca \
         btl_tcp_if_include eth0 (srun: OMPI_MCA_btl_tcp_if_include=eth0); two hosts at a time (--host A,B) show which"
    ));
    std::process::exit(STALLED);
}

fn look(launch: &mut Launch, own: HostInfo, names: &[String]) -> Result<Option<Vec<CheckRow>>, Failure> {
    let mark = Mark::put(launch.prints());
    let marked = launch.texts(&mark.path.display().to_string());
    let sees = Path::new(&marked[0]).exists();
    let (now_s, within_s) = moment(launch);
    let round_trip_s = connect_all(launch, names)?;
    let build = if cfg!(debug_assertions) { "without optimization" } else { "optimized" };
    let facts = Facts {
        host: own.name,
        version: format!("lockstep {}, built {build}", env!("CARGO_PKG_VERSION")),
        mpi: launch.library(),
        cpu: own.cpu,
        cores: own.cores,
        processors: Pins::allowed(),
        shared: rustix::fs::statvfs("/dev/shm").ok().map(|of| of.f_bavail * of.f_frsize),
        sees,
        now_s,
        within_s,
        round_trip_s,
    };
    let text = serde_json::to_string(&facts).map_err(|error| Failure::Run(error.to_string()))?;
    let all = launch.texts(&text);
    drop(mark);
    if !launch.prints() {
        return Ok(None);
    }
    let all = all.iter().map(|text| serde_json::from_str(text)).collect::<Result<Vec<Facts>, _>>();
    all.map(|all| Some(rows(&all))).map_err(|_| Failure::Run(OTHER_BUILD.to_owned()))
}

/// The advice where processes do not even speak the same protocol.
const OTHER_BUILD: &str = "a process of another build answered: copy one lockstep to all hosts";

/// An empty file in the first process's folder, deleted on drop.
struct Mark {
    path: PathBuf,
    made: bool,
}

impl Mark {
    fn put(here: bool) -> Mark {
        let folder = std::env::current_dir().unwrap_or_default();
        let path = folder.join(format!(".lockstep-doctor-{}", std::process::id()));
        let made = here && fs::File::create_new(&path).is_ok();
        Mark { path, made }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if self.made {
            // It is empty, and its name contains its creator.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The clock at a moment that all processes share, and how long that moment lasted.
fn moment(launch: &Launch) -> (f64, f64) {
    launch.texts("");
    let begun = Instant::now();
    launch.texts("");
    (now_s(), begun.elapsed().as_secs_f64())
}

/// Exchanges messages between every two processes; returns the longest of the pairs' round trips, in seconds.
fn connect_all(launch: &mut Launch, names: &[String]) -> Result<f64, Failure> {
    let (waits_for, moves) = (AtomicU32::new(0), AtomicU64::new(0));
    let count = launch.processes();
    let own = launch.here(count).start;
    let late = || {
        let other = waits_for.load(Ordering::Relaxed) as usize;
        let (own_name, other_name) = (&names[own as usize], &names[other]);
        end_apart(&format!("process {own} on {own_name} has no message from process {other} on {other_name}"));
    };
    let met = patiently(PATIENCE, &moves, late, || {
        launch.run_ranks(count, vec![()], |end, ()| {
            let mut longest = 0.0f64;
            // For a number of processes rounded up to a power of two these rounds cover all pairs, with each process in
            // one pair at a time.
            for round in 1..count.next_power_of_two() {
                let other = own ^ round;
                if other >= count {
                    continue;
                }
                waits_for.store(other, Ordering::Relaxed);
                let mut shortest = f64::INFINITY;
                for _ in 0..ROUNDS {
                    for first in [own.min(other), own.max(other)] {
                        if own == first {
                            let begun = Instant::now();
                            control::send(end, Rank(other), 0, 0)?;
                            control::receive(end, Rank(other), 0)?;
                            shortest = shortest.min(begun.elapsed().as_secs_f64());
                        } else {
                            control::receive(end, Rank(other), 0)?;
                            control::send(end, Rank(other), 0, 0)?;
                        }
                        moves.fetch_add(1, Ordering::Relaxed);
                    }
                }
                longest = longest.max(shortest);
            }
            Ok(longest)
        })
    });
    let met = met.map_err(|error| Failure::Run(error.to_string()))?;
    Ok(met.into_iter().fold(0.0, f64::max))
}

/// The rows of all hosts, in the order of their first processes.
fn rows(all: &[Facts]) -> Vec<CheckRow> {
    let mut hosts: Vec<&str> = Vec::new();
    for facts in all {
        if !hosts.contains(&facts.host.as_str()) {
            hosts.push(&facts.host);
        }
    }
    let job = match (all.len(), hosts.len()) {
        (1, _) => CheckRow::missing("job", "one process", "start it as a job: mpirun -n N, or srun -n N"),
        (processes, 1) => CheckRow::ok("job", format!("{processes} processes on one host")),
        (processes, hosts) => CheckRow::ok("job", format!("{processes} processes on {hosts} hosts")),
    };
    let of_host = |host: &&str| {
        let own: Vec<&Facts> = all.iter().filter(|facts| facts.host == *host).collect();
        of_host(&own, &all[0])
    };
    std::iter::once(job).chain(hosts.iter().flat_map(of_host)).collect()
}

/// The cores that the processes of a host have together: a launcher may have bound each to some of them, and a control
/// group may give all of them less.
fn cores_of(own: &[&Facts]) -> usize {
    let together: BTreeSet<usize> = own.iter().flat_map(|facts| facts.processors.iter().copied()).collect();
    let most = own.iter().map(|facts| facts.cores).max().unwrap_or(1);
    let limited = own.iter().all(|facts| facts.cores < facts.processors.len());
    if limited || together.is_empty() { most } else { together.len() }
}

/// The rows of a host whose processes reported `own`, compared with the first host.
fn of_host(own: &[&Facts], first: &Facts) -> Vec<CheckRow> {
    let one = own[0];
    let row = |check: &str, found: String, wrong: bool, cure: String| {
        let check = format!("{}: {check}", one.host);
        if wrong { CheckRow::missing(check, found, cure) } else { CheckRow::ok(check, found) }
    };
    let alike = |check: &str, found: fn(&Facts) -> &str, cure: &str| {
        let other = own.iter().find(|facts| found(facts) != found(first));
        let said = found(other.unwrap_or(&one)).to_owned();
        row(check, said, other.is_some(), format!("{} has {}: {cure}", first.host, found(first)))
    };
    let processes = own.len();
    let count = cores_of(own);
    let cores = format!("{count} for {processes} of the job's processes");
    let fewer = "start fewer there (mpirun --map-by ppr:N:node, sbatch --ntasks-per-node=N), or give each its cores \
                 (sbatch --cpus-per-task)";
    let shared = one.shared.map_or_else(|| "none".to_owned(), |bytes| format!("{} free", Bytes(bytes)));
    let little = one.shared.is_none_or(|bytes| bytes < LEAST_SHARED.0);
    let offset = one.now_s - first.now_s;
    let apart = offset.abs() - one.within_s - first.within_s;
    let sees = own.iter().all(|facts| facts.sees);
    let seen = if sees { format!("that of {} is there too", first.host) } else { "another one".to_owned() };
    let longest = own.iter().map(|facts| facts.round_trip_s).fold(0.0, f64::max);
    vec![
        alike("version", |facts| &facts.version, "copy one lockstep to all hosts"),
        alike("mpi", |facts| &facts.mpi, "install one version on all hosts"),
        alike(
            "cpu",
            |facts| &facts.cpu,
            "predictions take one CPU for all, and other instructions round otherwise: use hosts of one kind",
        ),
        row("cores", cores, count < processes, fewer.to_owned()),
        row("reached", format!("by all others, {:.2} ms there and back", longest * 1e3), false, String::new()),
        row(
            "clock",
            format!("{:+.3} s beside {}, to {:.3} s", offset, first.host, one.within_s + first.within_s),
            apart > CLOCKS_S,
            "dates of runs and files mislead: set it by NTP (apt-get install chrony)".to_owned(),
        ),
        row(
            "/dev/shm",
            shared,
            little,
            "MPI needs it between processes of a host: mount a tmpfs there (containers: --shm-size=1g), or use mpirun \
             --mca btl tcp,self"
                .to_owned(),
        ),
        row(
            "folder",
            seen,
            !sees,
            format!(
                "checkpoints must be seen by all: start in a folder that {} and this host share, as on NFS",
                first.host
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(host: &str) -> Facts {
        Facts {
            host: host.to_owned(),
            version: "lockstep 1, built optimized".to_owned(),
            mpi: "Open MPI 4".to_owned(),
            cpu: "a".to_owned(),
            cores: 4,
            processors: (0..4).collect(),
            shared: Some(1 << 30),
            sees: true,
            now_s: 1e9,
            within_s: 1e-3,
            round_trip_s: 1e-4,
        }
    }

    /// The findings on a job of two processes on `a` and one on `b`, as altered by `change`.
    fn missing(change: impl Fn(&mut Facts)) -> Vec<String> {
        let mut all = [facts("a"), facts("a"), facts("b")];
        change(&mut all[2]);
        let rows = rows(&all);
        assert_eq!(rows.len(), 1 + 2 * 8);
        assert!(rows.iter().all(|row| (row.status == "ok") == row.cure.is_empty()));
        rows.into_iter().filter(|row| row.status != "ok").map(|row| row.check).collect()
    }

    #[test]
    fn each_difference_or_missing_item_is_a_row_of_its_host() {
        assert!(missing(|_| ()).is_empty());
        assert_eq!(missing(|facts| facts.version = "lockstep 2".to_owned()), ["b: version"]);
        assert_eq!(missing(|facts| facts.mpi = "MPICH".to_owned()), ["b: mpi"]);
        assert_eq!(missing(|facts| facts.cpu = "c".to_owned()), ["b: cpu"]);
        assert_eq!(missing(|facts| facts.now_s += 2.0), ["b: clock"]);
        assert_eq!(missing(|facts| facts.now_s -= 0.4), [""; 0]);
        assert_eq!(missing(|facts| facts.shared = None), ["b: /dev/shm"]);
        assert_eq!(missing(|facts| facts.shared = Some(1 << 20)), ["b: /dev/shm"]);
        assert_eq!(missing(|facts| facts.sees = false), ["b: folder"]);
        let crowd = vec![facts("a"); 5];
        let rows = rows(&crowd);
        assert!(rows.iter().any(|row| row.check == "a: cores" && row.cure.contains("--ntasks-per-node")));
        assert_eq!(super::rows(&[facts("a")])[0].status, "missing");
    }

    /// Cores of two processes: bound to one each, both to the same one, unbound with a control group's limit of one.
    #[test]
    fn cores_are_those_of_all_processes_of_a_host() {
        let of = |cores: usize, processors: [&[usize]; 2]| {
            let both = processors.map(|processors| Facts { cores, processors: processors.to_vec(), ..facts("a") });
            let row = rows(&both).into_iter().find(|row| row.check == "a: cores").unwrap();
            (row.found, row.status)
        };
        let told = |count: usize, status: &str| (format!("{count} for 2 of the job's processes"), status.to_owned());
        assert_eq!(of(1, [&[0], &[1]]), told(2, "ok"));
        assert_eq!(of(1, [&[0], &[0]]), told(1, "missing"));
        assert_eq!(of(1, [&[0, 1], &[0, 1]]), told(1, "missing"));
        assert_eq!(of(2, [&[], &[]]), told(2, "ok"));
    }
}
