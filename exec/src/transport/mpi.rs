//! Connects ranks in several processes that MPI's launcher started.
//!
//! A process with one rank calls MPI from that rank's thread. A process with several uses memory between its own ranks
//! and one gateway thread for all others, so the transport is chosen for each pair of ranks. A failure in any process
//! ends the whole job with one message: MPI itself would wait for ever.

use std::fmt::Display;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use lockstep_topology::Rank;

use super::memory::run_ends;
use super::{Transport, TransportError};
use crate::device::DeviceError;
use crate::patience::patiently;
use crate::pin::Pins;

mod aware;
mod crowd;
mod gateway;
mod neighbours;
mod single;
mod tags;
mod wire;

use gateway::Gateway;
use neighbours::Neighbours;
use single::SingleEnd;
use tags::Tags;
use wire::Wire;

/// The exit code of the processes of a failed job.
pub const EXIT_CODE: i32 = 1;

/// This process's part in a job of several processes. Dropping it finalizes MPI, together with all other processes.
#[derive(Debug)]
pub struct Processes {
    wire: Wire,
    neighbours: Neighbours,
}

impl Processes {
    /// Joins the job that `mpirun` started, or a job of a single process. From then on only the calling thread may use
    /// this value.
    ///
    /// From here on a panic on this thread ends the whole job.
    ///
    /// # Errors
    /// When the process has joined before, or the library does not support processes with threads.
    pub fn join() -> Result<Processes, TransportError> {
        let wire = Wire::open()?;
        let neighbours = Neighbours::ask(&wire);
        let process = wire.process();
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            if wire::on_mpi_thread() {
                eprintln!("lockstep: process {process} panicked; the job ends");
                wire::abort();
            }
        }));
        Ok(Processes { wire, neighbours })
    }

    /// This process's number.
    pub fn process(&self) -> u32 {
        self.wire.process()
    }

    /// The MPI library's name for itself, its first words.
    pub fn library(&self) -> String {
        wire::library()
    }

    /// Number of processes.
    pub fn count(&self) -> u32 {
        self.wire.processes()
    }

    /// Whether messages between processes may be in GPU memory: the MPI libraries of all processes report that they
    /// accept its addresses, or `LOCKSTEP_CUDA_AWARE_MPI=1` says so.
    pub fn takes_devices(&self) -> bool {
        self.wire.takes_devices()
    }

    /// The processors of this process's ranks, with rank r in process `hosts[r]` and `threads` threads per rank: those
    /// that the launcher has bound the process to, or its part of those that it shares with others of the job.
    pub fn pins(&self, hosts: &[u32], threads: usize) -> Pins {
        self.neighbours.pins(hosts, threads)
    }

    /// One number from each process, in order; every process calls it.
    pub fn gather(&self, mine: u32) -> Vec<u32> {
        self.wire.gather(mine)
    }

    /// As [`Processes::gather`], but sleeping: for processes that wait for another's long work.
    pub fn gather_asleep(&self, mine: u32) -> Vec<u32> {
        self.wire.gather_asleep(mine)
    }

    /// The first process that reports a failure of itself; every process calls it, so that none waits for one that
    /// cannot continue. If a process does not call it within `limit`, `late` is called on a thread of its own.
    pub fn first_unwell(&self, well: bool, limit: Duration, late: impl FnOnce() + Send) -> Option<u32> {
        let all = patiently(limit, &AtomicU64::new(0), late, || self.gather(u32::from(well)));
        all.iter().position(|well| *well == 0).map(|process| process as u32)
    }

    /// Runs `body` for each rank of this process, with rank r in process `hosts[r]`; `states` are those of this
    /// process's ranks, ascending. A rank that fails or panics ends the job with all processes.
    ///
    /// Memory that messages read and write belongs in the states: they outlive every endpoint.
    ///
    /// # Errors
    /// When ranks or states do not fit the processes.
    pub fn run<S: Send, T: Send, E: Display>(
        &mut self,
        hosts: &[u32],
        spin: u32,
        mut states: Vec<S>,
        body: impl Fn(&mut dyn Transport, &mut S) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, TransportError> {
        let process = self.process();
        let tags = Tags::new(hosts, self.wire.largest_tag());
        let here = tags.hosted(process);
        if let Some(rank) = hosts.iter().position(|host| *host >= self.count()) {
            return Err(TransportError::Unsupported(format!(
                "rank {rank} is placed in process {}, but mpirun started {}; start one process for each rank, or ask \
                 for several ranks in a process",
                hosts[rank],
                self.count()
            )));
        }
        if here.len() != states.len() {
            return Err(TransportError::Unsupported(format!(
                "process {process} hosts {} ranks but has the state of {}",
                here.len(),
                states.len()
            )));
        }
        if let ([rank], [state]) = (&here[..], &mut states[..]) {
            let mut end = SingleEnd::new(&mut self.wire, &tags, *rank);
            // The panic hook ends the job, so a panic does not come back here.
            return match body(&mut end, state) {
                Ok(result) => Ok(vec![result]),
                Err(error) => end_job(*rank, &error.to_string()),
            };
        }
        let (gateway, ends) = Gateway::new(&tags, process, spin, self.wire.takes_devices());
        std::thread::scope(|scope| {
            let body = &body;
            let ranks = scope.spawn(move || run_ends(ends, states, body));
            // Ends the process when a rank fails.
            gateway.serve(&mut self.wire);
            ranks.join().expect("panics of ranks are caught where they run")
        })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if std::thread::panicking() || !self.wire.is_idle() {
            wire::abort();
        }
        self.wire.close();
    }
}

/// Reports the failure and ends all processes of the job.
fn end_job(rank: Rank, cause: &str) -> ! {
    eprintln!("lockstep: rank {} failed: {cause}; the job ends", rank.0);
    wire::abort()
}

/// A failure of a message, which ends the job.
#[derive(Debug)]
enum Fault {
    /// A piece is longer or shorter than its receive.
    Length { sent: usize, expected: usize },
    /// A failure of the device on either side.
    Device(DeviceError),
}

impl From<DeviceError> for Fault {
    fn from(error: DeviceError) -> Fault {
        Fault::Device(error)
    }
}

fn broken(rank: Rank, fault: Fault) -> TransportError {
    let cause = match fault {
        Fault::Length { sent, expected } => {
            format!("a message of {sent} elements arrived where {expected} were expected")
        }
        Fault::Device(error) => error.to_string(),
    };
    TransportError::Aborted { rank, cause }
}
