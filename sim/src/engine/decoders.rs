//! Simulates threads that decode on the cores that ranks compute on. As in the executor, the threads of a process take
//! the samples of its oldest batch first, and each of them competes for a core as a rank's thread does.
//!
//! Where ranks compute on GPUs, threads have the host's cores to themselves; there batches share them.

use std::collections::VecDeque;

use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::{InputError, Rank};

use super::input::DECODE;
use super::{Engine, Job};
use crate::fluid::Fluid;
use crate::platform::Platform;

/// The decoding threads of each process with ranks on a CPU.
#[derive(Debug)]
pub(crate) struct Decoders {
    /// By rank.
    of_rank: Vec<Decoding>,
    /// By process.
    processes: Vec<Threads>,
}

/// What threads do for a rank.
#[derive(Debug, Clone, Copy)]
struct Decoding {
    /// The rank's process; `None` where it computes on a GPU.
    process: Option<u32>,
    /// Threads that decode its batch, and how many of them have not finished.
    threads: u32,
    busy: u32,
}

/// The threads of a process.
#[derive(Debug, Clone, Default)]
struct Threads {
    idle: u32,
    /// Ranks with batches that no thread has begun, in the order of their requests.
    waiting: VecDeque<u32>,
}

impl Decoders {
    /// The idle threads of all processes; `None` where no rank has samples decoded on its cores.
    pub(super) fn new(platform: &Platform<'_>, ranks: u32) -> Option<Decoders> {
        let input = platform.conditions.input.as_ref()?;
        let (placement, hosting) = (platform.placement, platform.hosting);
        let on_cpu =
            |rank| matches!(platform.cluster.devices()[placement.device(rank).0 as usize].kind, DeviceKind::Cpu(_));
        let process = |rank| on_cpu(rank).then(|| hosting.process(rank));
        let of_rank: Vec<Decoding> =
            (0..ranks).map(|rank| Decoding { process: process(Rank(rank)), threads: 1, busy: 0 }).collect();
        if of_rank.iter().all(|rank| rank.process.is_none()) {
            return None;
        }
        let host = |process: u32| placement.host(hosting.ranks(process)[0]);
        let mut on_host = vec![0; platform.cluster.hosts().len()];
        (0..hosting.processes()).for_each(|process| on_host[host(process).0 as usize] += 1);
        let threads = |process| (input.threads / on_host[host(process).0 as usize]).max(1);
        let idle = |process| Threads { idle: threads(process), waiting: VecDeque::new() };
        Some(Decoders { of_rank, processes: (0..hosting.processes()).map(idle).collect() })
    }

    /// Threads that decode the batch of `rank` at present.
    pub(super) fn threads_on(&self, rank: u32) -> u32 {
        self.of_rank[rank as usize].threads
    }

    /// A thread has finished its part of the batch of `rank`; whether others have not.
    pub(super) fn is_still_busy_for(&mut self, rank: u32) -> bool {
        let of = &mut self.of_rank[rank as usize];
        let Some(process) = of.process else { return false };
        of.busy -= 1;
        self.processes[process as usize].idle += 1;
        of.busy > 0
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// Requests the next batch of `rank`, unless it is requested; `false` where threads do not decode on its cores.
    pub(super) fn asks_decoders(&mut self, rank: u32) -> Result<bool, InputError> {
        let Some(decoders) = &mut self.decoders else { return Ok(false) };
        let Some(process) = decoders.of_rank[rank as usize].process else { return Ok(false) };
        let waiting = &mut decoders.processes[process as usize].waiting;
        if !waiting.contains(&rank) {
            waiting.push_back(rank);
            self.start_decoding(rank)?;
        }
        Ok(true)
    }

    /// Lets idle threads of the process of `rank` begin the oldest batches.
    pub(super) fn start_decoding(&mut self, rank: u32) -> Result<(), InputError> {
        loop {
            let Some(decoders) = &mut self.decoders else { return Ok(()) };
            let Some(process) = decoders.of_rank[rank as usize].process else { return Ok(()) };
            let Threads { idle, waiting } = &mut decoders.processes[process as usize];
            let Some(next) = waiting.front().copied().filter(|_| *idle > 0) else { return Ok(()) };
            waiting.pop_front();
            let idle = *idle;
            let state = &self.ranks[next as usize];
            let task = state.input[DECODE].cursor.task(&self.plan.roles[state.role as usize].input[DECODE]);
            let job = task.and_then(|task| self.job(state.jobs, task)).map(|(job, _)| job);
            // What takes no time is one event.
            let threads =
                job.map_or(1, |Job { seconds, threads, .. }| if seconds > 0.0 { threads.min(idle) } else { 1 });
            if let Some(decoders) = &mut self.decoders {
                decoders.processes[process as usize].idle -= threads;
                let of = &mut decoders.of_rank[next as usize];
                (of.threads, of.busy) = (threads, threads);
            }
            self.ranks[next as usize].input[DECODE].begin(self.now);
            self.begin_input(next, DECODE)?;
        }
    }
}
