//! `Job`: the processes of one `lab run`, which end with it: on a signal they are asked to end, then killed; where the
//! run itself is killed, another process kills them.
//!
//! The environment marks them, wherever in the lab they are: the daemons that `mpirun` starts on other hosts, and what
//! they start, are in process groups of their own.

use std::fs;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockstep_report::Failure;
use rustix::process::{Pid, Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::watch::Watch;

/// The variable that marks the processes of a job.
const MARK: &str = "LOCKSTEP_LAB_RUN";
/// Between two looks at signals and processes.
const PAUSE: Duration = Duration::from_millis(50);
/// How long processes have to end by themselves: the command first, then what it has left.
const GRACE: Duration = Duration::from_secs(3);
/// Rounds of killing: a killed process may have started another meanwhile.
const ROUNDS: u32 = 100;
/// Signals that end a job, with their names.
const SIGNALS: [(i32, &str); 3] = [(SIGHUP, "SIGHUP"), (SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")];

/// A job whose processes are marked.
pub(crate) struct Job {
    mark: String,
    /// Set when the signal has come.
    came: Vec<(i32, &'static str, Arc<AtomicBool>)>,
}

impl Job {
    /// A job of this process, which from now on ends by signals only when its processes have ended.
    ///
    /// # Errors
    /// Signals that cannot be caught.
    pub(crate) fn new() -> Result<Job, Failure> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mut came = Vec::new();
        for (signal, name) in SIGNALS {
            // Under nohup, the hangup stays ignored.
            if ignores(&status, signal) {
                continue;
            }
            let flag = Arc::new(AtomicBool::new(false));
            let caught = flag::register(signal, Arc::clone(&flag));
            caught.map_err(|error| Failure::Run(format!("{name} cannot be caught: {error}")))?;
            came.push((signal, name, flag));
        }
        // The number of this process alone may have been another job's.
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let mark = format!("{MARK}={}-{}", getpid().as_raw_nonzero(), unique.trim());
        Ok(Job { mark, came })
    }

    /// Marks what the command starts.
    pub(crate) fn mark<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let (name, value) = self.mark.split_once('=').unwrap_or((MARK, ""));
        command.env(name, value)
    }

    /// Does `work`, which starts processes and waits for them; on a signal they are ended.
    ///
    /// # Errors
    /// Those of `work`; [`Failure::Ended`] after a signal; no process can be started.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let _watch = Watch::start(&self.mark).map_err(|error| Failure::Run(format!("sh: {error}")))?;
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if self.signal().is_some() {
                        return self.end();
                    }
                    std::thread::sleep(PAUSE);
                }
            });
            let result = work();
            done.store(true, Ordering::Relaxed);
            result
        });
        let Some((signal, name)) = self.signal() else { return result };
        self.end();
        let message = format!("{name}: the command and all that it has started in the lab are ended");
        Err(Failure::Ended { code: u8::try_from(128 + signal).unwrap_or(1), message })
    }

    /// The signal that has come, if any.
    fn signal(&self) -> Option<(i32, &'static str)> {
        let came = |(signal, name, flag): &(i32, &'static str, Arc<AtomicBool>)| {
            flag.load(Ordering::Relaxed).then_some((*signal, *name))
        };
        self.came.iter().find_map(came)
    }

    /// Ends all processes of the job: the commands themselves first, which may end their own.
    fn end(&self) {
        let own = getpid().as_raw_nonzero().get();
        let commands = || self.processes(|parent| parent == own);
        let all = || self.processes(|_| true);
        for some in [&commands as &dyn Fn() -> Vec<Pid>, &all] {
            send(&some(), Signal::TERM);
            let since = Instant::now();
            while !some().is_empty() && since.elapsed() < GRACE {
                std::thread::sleep(PAUSE);
            }
        }
        for _ in 0..ROUNDS {
            let left = all();
            if left.is_empty() {
                return;
            }
            send(&left, Signal::KILL);
            std::thread::sleep(PAUSE);
        }
    }

    /// The processes of the job whose parent's number is wanted; those that have ended and wait to be collected have no
    /// environment any more.
    fn processes(&self, wanted: impl Fn(i32) -> bool) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(io::Result::ok);
        let ours = entries.filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == self.mark.as_bytes())
                && parent(&fs::read_to_string(entry.path().join("status")).unwrap_or_default()).is_some_and(&wanted)
        });
        ours.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
    }
}

/// Sends the signal to each; one may have ended meanwhile.
fn send(pids: &[Pid], signal: Signal) {
    pids.iter().for_each(|pid| kill_process(*pid, signal).unwrap_or_default());
}

/// The number of the parent in the lines of `/proc/PID/status`.
fn parent(status: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Whether the process of these lines of `/proc/PID/status` ignores the signal.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let status = "Name:\tsh\nPPid:\t17\nSigIgn:\t0000000000000005\n";
        assert_eq!(parent(status), Some(17));
        assert_eq!([SIGHUP, SIGINT, 3].map(|signal| ignores(status, signal)), [true, false, true]);
    }
}
