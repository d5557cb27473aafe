//! Simulates threads that decode on the cores that ranks compute on. As in the executor, the threads of a process take
//! the samples of its oldest batch first.
//!
//! Ranks are bound to cores and these threads are not. Where ranks fill the cores, a thread takes turns with one rank: as
//! the system's scheduler does, it goes to a core whose rank waits, else stays where it is. So a rank may fall behind, and
//! others wait for it. Where ranks compute on GPUs, threads have the host's cores to themselves; there batches share them.

use std::collections::VecDeque;

use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::{InputError, Rank};

use super::input::{DECODE, Ended, STREAMS};
use super::{Engine, Job};
use crate::fluid::Fluid;
use crate::machine::Resources;
use crate::trace::TraceWork;

/// Seconds of work after which a thread that decodes may change its core, as far as a batch has no more parts than
/// [`MOST_PARTS`] for each thread.
const PART_S: f64 = 0.002;
const MOST_PARTS: f64 = 256.0;
/// The place in a token of the core that an activity runs on, counted from 1.
const CORE: u32 = 40;

/// The decoding threads of each process with ranks on a CPU.
#[derive(Debug)]
pub(crate) struct Decoders {
    /// By rank.
    of_rank: Vec<Decoding>,
    /// By process.
    processes: Vec<Threads>,
    /// By rank: threads that decode on the core of the rank.
    on_core: Vec<u32>,
}

/// What threads do for a rank.
#[derive(Debug, Clone, Copy)]
struct Decoding {
    /// The rank's process; `None` where it computes on a GPU.
    process: Option<u32>,
    /// Threads that decode its batch, and how many of them have not finished.
    threads: u32,
    busy: u32,
    /// Parts of the batch, and how many of them no thread has begun.
    parts: u32,
    left: u32,
}

/// The threads of a process.
#[derive(Debug, Clone, Default)]
struct Threads {
    idle: u32,
    /// Ranks with batches that no thread has begun, in the order of their requests.
    waiting: VecDeque<u32>,
    /// Ranks that fill the cores of its CPU; none where threads have other cores.
    cores: Vec<u32>,
    /// The rank on whose core a thread of it decoded last.
    at: u32,
}

impl Decoders {
    /// The idle threads of all processes; `None` where no rank has samples decoded on its cores.
    pub(super) fn new<F: Fluid>(resources: &Resources<'_, F>, ranks: u32) -> Option<Decoders> {
        let platform = resources.platform;
        let input = platform.conditions.input.as_ref()?;
        let (placement, hosting) = (platform.placement, platform.hosting);
        let on_cpu =
            |rank| matches!(platform.cluster.devices()[placement.device(rank).0 as usize].kind, DeviceKind::Cpu(_));
        let process = |rank| on_cpu(rank).then(|| hosting.process(rank));
        let decoding = |rank| Decoding { process: process(Rank(rank)), threads: 1, busy: 0, parts: 1, left: 0 };
        let of_rank: Vec<Decoding> = (0..ranks).map(decoding).collect();
        if of_rank.iter().all(|rank| rank.process.is_none()) {
            return None;
        }
        let host = |process: u32| placement.host(hosting.ranks(process)[0]);
        let mut on_host = vec![0; platform.cluster.hosts().len()];
        (0..hosting.processes()).for_each(|process| on_host[host(process).0 as usize] += 1);
        let threads = |process| (input.threads / on_host[host(process).0 as usize]).max(1);
        let idle = |process| {
            let first = hosting.ranks(process)[0].0;
            let (waiting, cores) = (VecDeque::new(), resources.bound_beside(first));
            Threads { idle: threads(process), waiting, cores, at: first }
        };
        let processes = (0..hosting.processes()).map(idle).collect();
        Some(Decoders { of_rank, processes, on_core: vec![0; ranks as usize] })
    }

    /// Threads that decode the batch of `rank` at present.
    pub(super) fn threads_on(&self, rank: u32) -> u32 {
        self.of_rank[rank as usize].threads
    }

    /// An activity of the batch of `rank` has ended.
    pub(super) fn ends(&mut self, rank: u32) -> Ended {
        let of = &mut self.of_rank[rank as usize];
        let Some(process) = of.process else { return Ended::Batch };
        if of.left > 0 {
            return Ended::Part;
        }
        of.busy -= 1;
        self.processes[process as usize].idle += 1;
        if of.busy > 0 { Ended::Thread } else { Ended::Batch }
    }

    /// The activity with this token has left its core, if it was a thread's on a rank's core.
    pub(super) fn leave_core(&mut self, token: u64) {
        if let Some(core) = (token >> CORE).checked_sub(1) {
            self.on_core[core as usize] -= 1;
        }
    }

    /// The rank on whose core a thread of the process of `rank` continues; `None` where it has other cores. `computes`
    /// says whether a rank uses its core now.
    fn choose_core(&mut self, rank: u32, computes: impl Fn(u32) -> bool) -> Option<u32> {
        let process = self.of_rank[rank as usize].process?;
        let of = &mut self.processes[process as usize];
        let load = |core: u32| u32::from(computes(core)) + self.on_core[core as usize];
        let least = of.cores.iter().map(|core| load(*core)).min()?;
        if load(of.at) > least {
            let others = of.cores.iter().copied().filter(|core| *core != of.at && load(*core) == least);
            of.at = others.min_by_key(|core| core.wrapping_sub(of.at)).unwrap_or(of.at);
        }
        self.on_core[of.at as usize] += 1;
        Some(of.at)
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
            let Threads { idle, waiting, cores, .. } = &mut decoders.processes[process as usize];
            let Some(next) = waiting.front().copied().filter(|_| *idle > 0) else { return Ok(()) };
            waiting.pop_front();
            let (idle, bound) = (*idle, !cores.is_empty());
            let state = &self.ranks[next as usize];
            let task = state.input[DECODE].cursor.task(&self.plan.roles[state.role as usize].input[DECODE]);
            let job = task.and_then(|task| self.job(state.jobs, task)).map(|(job, _)| job);
            // What takes no time is one event.
            let job = job.filter(|job| job.seconds > 0.0);
            let threads = job.map_or(1, |job| job.threads.min(idle));
            let each = job.filter(|_| bound).map_or(1.0, |job| job.seconds / f64::from(threads) / PART_S);
            let parts = threads * each.ceil().clamp(1.0, MOST_PARTS) as u32;
            let left = if job.is_some() { parts } else { 0 };
            if let Some(decoders) = &mut self.decoders {
                decoders.processes[process as usize].idle -= threads;
                let of = &mut decoders.of_rank[next as usize];
                (of.threads, of.busy, of.parts, of.left) = (threads, threads, parts, left);
            }
            self.ranks[next as usize].input[DECODE].begin(self.now);
            self.begin_input(next, DECODE)?;
        }
    }

    /// A thread begins a part of the batch of `rank`.
    pub(super) fn decode_part(&mut self, rank: u32) -> Result<(), InputError> {
        let state = &self.ranks[rank as usize];
        let task = state.input[DECODE].cursor.task(&self.plan.roles[state.role as usize].input[DECODE]);
        let Some((Job { class, seconds, .. }, work)) = task.and_then(|task| self.job(state.jobs, task)) else {
            return Ok(());
        };
        let Some(decoders) = &mut self.decoders else { return Ok(()) };
        let units = &self.units;
        let core = decoders.choose_core(rank, |core| units[2 * core as usize].busy.is_some());
        let of = &mut decoders.of_rank[rank as usize];
        of.left = of.left.saturating_sub(1);
        let parts = of.parts;
        let class = core.map_or(Ok(class), |core| self.resources.on_core(class, core))?;
        let work =
            if let TraceWork::Job { list, task, .. } = work { TraceWork::Job { list, task, parts } } else { work };
        let token = (self.units.len() + STREAMS * rank as usize + DECODE) as u64;
        let token = token | core.map_or(0, |core| u64::from(core) + 1) << CORE;
        self.resources.fluid.about(work);
        self.resources.fluid.start(class, seconds / f64::from(parts), token)?;
        Ok(())
    }
}
