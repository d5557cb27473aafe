//! `Launch`: starts the ranks of a run, as threads of this process or in the processes that `mpirun` started.
//!
//! The only place in the command line that depends on the cargo feature `mpi`.

use std::ops::Range;
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::transport::{Transport, TransportError, memory};
use lockstep_exec::{ExecError, Pins, Run, RunOptions, State, check_run, share_state};
use lockstep_experiment::{Configuration, Experiment, TransportKind};
use lockstep_models::Program;
use lockstep_report::failure::{Failure, STALLED};
use lockstep_report::log::print_line;
use lockstep_topology::{InputError, blocks};

use crate::devices::devices;
use crate::host::Cores;
use crate::run_failure::run_failure;

#[cfg(feature = "mpi")]
use {
    lockstep_exec::transport::mpi::Processes,
    lockstep_exec::{ASIDE, patiently},
    std::sync::atomic::AtomicU64,
};

/// Whether this binary can run over MPI.
pub const HAS_MPI: bool = cfg!(feature = "mpi");

/// What a process waits for that none of its ranks can report.
#[cfg(feature = "mpi")]
const OTHERS: &str = "another process of the job has not reached this point";

/// Ends this process because `what` has lasted longer than `patience`.
pub(crate) fn end_late(patience: Duration, what: &str) {
    print_line(&format!("the run has stalled: for {patience:?} {what}"));
    std::process::exit(STALLED);
}

/// The processes of a job.
pub enum Launch {
    /// This process, with one thread per rank.
    Threads,
    /// The processes that `mpirun` started.
    #[cfg(feature = "mpi")]
    Mpi {
        /// This process's part.
        processes: Box<Processes>,
        /// Limit of operations that wait for all processes.
        patience: Duration,
    },
}

impl Launch {
    /// Launches with the experiment's transport; a process that never joins ends the others after ten times the stall
    /// limit.
    ///
    /// # Errors
    /// MPI in a binary without it, or an unsuitable library.
    #[cfg_attr(not(feature = "mpi"), allow(unused_variables))]
    pub fn new(experiment: &Experiment, stall_limit: Duration) -> Result<Launch, Failure> {
        match experiment.transport {
            TransportKind::Threads => Ok(Launch::Threads),
            #[cfg(feature = "mpi")]
            TransportKind::Mpi => {
                let patience = stall_limit * ASIDE;
                let processes = patiently(patience, &AtomicU64::new(0), || end_late(patience, OTHERS), Processes::join);
                Ok(Launch::Mpi { processes: Box::new(processes.map_err(run_failure)?), patience })
            }
            #[cfg(not(feature = "mpi"))]
            TransportKind::Mpi => {
                let message = "this binary was built without MPI: install an MPI library (apt-get install libopenmpi-dev \
                               openmpi-bin libclang-dev), build with cargo build --release --features mpi, and start with \
                               mpirun -n RANKS; or use threads";
                Err(experiment.locate(InputError::flag("transport", "mpi", message)).into())
            }
        }
    }

    /// The experiment as these processes run it.
    pub fn experiment(&self, experiment: &Experiment) -> Experiment {
        let processes = match self {
            Launch::Threads => None,
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => Some(processes.count()),
        };
        Experiment { processes, ..experiment.clone() }
    }

    /// Whether this process prints: the only one, or rank 0's.
    pub fn prints(&self) -> bool {
        match self {
            Launch::Threads => true,
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => processes.process() == 0,
        }
    }

    /// Continues only if all processes can: each passes its own result, so none waits for one that failed.
    ///
    /// # Errors
    /// The first failing process gets its own failure, all others that a process elsewhere failed.
    pub fn all<T, E: Into<Failure>>(&self, own: Result<T, E>) -> Result<T, Failure> {
        match self {
            Launch::Threads => own.map_err(E::into),
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, patience } => {
                let unwell = processes.first_unwell(own.is_ok(), *patience, || end_late(*patience, OTHERS));
                match (own, unwell) {
                    (Ok(own), None) => Ok(own),
                    (Err(error), Some(first)) if first == processes.process() => Err(error.into()),
                    _ => Err(Failure::Elsewhere),
                }
            }
        }
    }

    /// Does work in rank 0's process alone; the others sleep until it is done, and fail if it fails.
    ///
    /// # Errors
    /// Rank 0's process gets its failure, all others that a process elsewhere failed.
    pub fn first<T>(&mut self, work: impl FnOnce() -> Result<T, Failure>) -> Result<Option<T>, Failure> {
        match self {
            Launch::Threads => work().map(Some),
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => {
                let own = (processes.process() == 0).then(work);
                let well = processes.gather_asleep(u32::from(!matches!(own, Some(Err(_)))));
                match own {
                    Some(own) => own.map(Some),
                    None if well[0] == 1 => Ok(None),
                    None => Err(Failure::Elsewhere),
                }
            }
        }
    }

    /// Cores of a host: the fewest of the processes' hosts.
    pub fn cores(&self) -> u32 {
        let own = if matches!(self, Launch::Threads) { Cores::find() } else { Cores::of_host() }.count() as u32;
        let all = self.texts(&own.to_string());
        all.iter().filter_map(|cores| cores.parse().ok()).min().unwrap_or(own)
    }

    /// Broadcasts the number of rank 0's process; the others' are ignored.
    pub fn maximum(&self, own: u32) -> u32 {
        match self {
            Launch::Threads => own,
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => processes.gather_asleep(own)[0],
        }
    }

    /// Gathers a text from each process, in order; every process calls it.
    pub fn texts(&self, own: &str) -> Vec<String> {
        match self {
            Launch::Threads => vec![own.to_owned()],
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => {
                let lengths = processes.gather(own.len() as u32);
                let mut texts = vec![Vec::new(); lengths.len()];
                let words = lengths.iter().max().map_or(0, |longest| longest.div_ceil(4) as usize);
                for word in 0..words {
                    let byte = |at: usize| own.as_bytes().get(4 * word + at).copied().unwrap_or(0);
                    let all = processes.gather(u32::from_le_bytes([0, 1, 2, 3].map(byte)));
                    texts.iter_mut().zip(all).for_each(|(text, word)| text.extend(word.to_le_bytes()));
                }
                let cut =
                    |(text, length): (Vec<u8>, u32)| String::from_utf8_lossy(&text[..length as usize]).into_owned();
                texts.into_iter().zip(lengths).map(cut).collect()
            }
        }
    }

    /// The MPI library's name for itself; empty without MPI.
    pub fn library(&self) -> String {
        match self {
            Launch::Threads => String::new(),
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => processes.library(),
        }
    }

    /// For each process the first one on the same host, by the host's name.
    pub fn hosts(&self) -> Vec<u32> {
        match self {
            Launch::Threads => vec![0],
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => {
                let name = crate::host::HostInfo::find().name;
                // FNV-1a.
                let hash = name
                    .bytes()
                    .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
                let all = processes.gather_asleep(hash);
                let first = |hash: &u32| all.iter().position(|other| other == hash).unwrap_or(0) as u32;
                all.iter().map(first).collect()
            }
        }
    }

    /// Refuses configurations that the processes cannot run, before anything is allocated for the first of them.
    ///
    /// # Errors
    /// Ranks that cannot be divided among the processes that `mpirun` started, and what [`check_run`] refuses.
    pub fn check(&self, experiment: &Experiment, configurations: &[Configuration]) -> Result<(), InputError> {
        let devices = devices(experiment)?;
        let check = |configuration: &Configuration| {
            let (ranks, servers) = (configuration.job.ranks(), configuration.job.servers());
            let processes = blocks(ranks, servers, self.processes())
                .map_err(|message| InputError::flag("ranks", ranks.to_string(), message))?;
            let apart = !matches!(self, Launch::Threads) && self.processes() == ranks;
            let threads = experiment.threads_per_rank as usize;
            check_run(&configuration.program()?, self.own(&processes), &*devices, threads, apart)
        };
        configurations.iter().try_for_each(check).map_err(|error| experiment.locate(error))
    }

    /// Whether `ranks` ranks can be divided among the processes.
    ///
    /// # Errors
    /// The mismatch, with a cure.
    pub fn check_ranks(&self, ranks: u32) -> Result<(), String> {
        // Not listed, where they divide: there may be billions of them.
        if ranks.is_multiple_of(self.processes().max(1)) {
            return Ok(());
        }
        blocks(ranks, 0, self.processes()).map(drop)
    }

    /// The ranks of this process, with rank r in process `processes[r]`, ascending.
    fn own(&self, processes: &[u32]) -> Range<u32> {
        let own = self.process();
        processes.partition_point(|process| *process < own) as u32
            ..processes.partition_point(|process| *process <= own) as u32
    }

    /// The ranks of this process, if `ranks` are divided among all.
    pub fn here(&self, ranks: u32) -> Range<u32> {
        let each = ranks / self.processes();
        self.process() * each..(self.process() + 1) * each
    }

    /// The processors of each of this process's ranks, if `ranks` with a thread each are divided among all.
    ///
    /// # Errors
    /// Ranks that cannot be divided.
    pub fn pins(&self, ranks: u32) -> Result<Pins, TransportError> {
        match self {
            Launch::Threads => Ok(Pins::new(ranks as usize, 1)),
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => {
                let hosts = blocks(ranks, 0, processes.count()).map_err(TransportError::Unsupported)?;
                Ok(processes.pins(&hosts, 1))
            }
        }
    }

    /// Runs `body` as each of `ranks` ranks; `states` are those of [`Launch::here`], and memory that messages read and
    /// write belongs in them.
    ///
    /// # Errors
    /// The first rank that fails.
    pub fn run_ranks<S: Send, T: Send>(
        &mut self,
        ranks: u32,
        states: Vec<S>,
        body: impl Fn(&mut dyn Transport, &mut S) -> Result<T, TransportError> + Sync,
    ) -> Result<Vec<T>, TransportError> {
        match self {
            Launch::Threads => {
                let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
                memory::run(states, if ranks as usize <= cores { memory::SPIN } else { 0 }, body)
            }
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => {
                let hosts = blocks(ranks, 0, processes.count()).map_err(TransportError::Unsupported)?;
                processes.run(&hosts, 0, states, body)
            }
        }
    }

    /// Gives all processes the state of rank 0's; the others' are ignored.
    ///
    /// # Errors
    /// A process that fails.
    pub fn share(&mut self, own: Option<State>) -> Result<State, Failure> {
        let shared = self.run_ranks(self.processes(), vec![own], |end, own| share_state(end, own.take()));
        shared.map_err(run_failure)?.pop().ok_or(Failure::Elsewhere)
    }

    /// Number of processes.
    pub fn processes(&self) -> u32 {
        match self {
            Launch::Threads => 1,
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => processes.count(),
        }
    }

    /// The number of this process.
    pub(crate) fn process(&self) -> u32 {
        match self {
            Launch::Threads => 0,
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => processes.process(),
        }
    }

    /// The process of each rank, where the workers of a device, `learners` by device, share that of the device.
    ///
    /// # Errors
    /// Devices that cannot be divided among the processes.
    pub fn hosts_of(&self, learners: &[u32], servers: u32) -> Result<Vec<u32>, String> {
        let places = blocks(learners.len() as u32 + servers, servers, self.processes())?;
        let each = learners.iter().copied().chain(std::iter::repeat(1));
        Ok(places.iter().zip(each).flat_map(|(process, ranks)| vec![*process; ranks as usize]).collect())
    }

    /// Runs a program; only rank 0's process gets its result. `hosts`: the process of each rank, equally many in each
    /// if not given.
    ///
    /// # Errors
    /// See [`lockstep_exec::run`].
    pub fn run(
        &mut self,
        program: &Program,
        hosts: Option<&[u32]>,
        data: &Dataset,
        options: &RunOptions<'_>,
    ) -> Result<Option<Run>, ExecError> {
        match self {
            Launch::Threads => {
                debug_assert!(hosts.is_none_or(|hosts| hosts.iter().all(|host| *host == 0)), "there is one process");
                lockstep_exec::run(program, data, options).map(Some)
            }
            #[cfg(feature = "mpi")]
            Launch::Mpi { processes, .. } => {
                let (ranks, servers) = (program.ranks(), program.ranks() - program.workers());
                let equal = || {
                    blocks(ranks, servers, processes.count())
                        .map_err(|message| InputError::flag("ranks", ranks.to_string(), message))
                };
                let hosts = hosts.map_or_else(equal, |hosts| Ok(hosts.to_vec()))?;
                lockstep_exec::run_processes(processes, &hosts, program, data, options)
            }
        }
    }
}
