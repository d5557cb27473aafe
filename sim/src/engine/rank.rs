//! Simulates one rank: its streams, iteration by iteration.
//!
//! The compute stream runs task by task. Exchanges start in program order among themselves, each when what it is
//! `after` is done and its own previous run is. A rank asks the driver for its next iteration once its compute stream
//! has finished this one and all exchanges have started, but for those that the compute stream of the next one waits
//! for; so it never runs ahead of its exchanges, and those may overlap
//! iterations. Tasks of the synchronisation stream run as soon as what they are `after` is done, where messages are
//! handled.

use lockstep_models::{ClaimAnswer, Decision, Need, Observation, Span, Stream};
use lockstep_topology::cluster::{DeviceId, DeviceKind};
use lockstep_topology::{InputError, Rank as RankId, Time};

use super::input::InputStream;
use super::path::Peer;
use super::{Engine, Job};
use crate::fluid::Fluid;
use crate::noise::{Noise, TracePosition};
use crate::plan::{Cursor, Plan, RolePlan, Slot, TaskPlan};
use crate::platform::Platform;
use crate::trace::TraceWork;

/// A rank's state.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) role: u32,
    device: DeviceId,
    /// Whether messages are handled beside the compute stream (on a GPU) or between its tasks (on a CPU).
    pub(crate) apart: bool,
    /// Whether no other rank is on its device.
    pub(super) sole: bool,
    /// The ranks of its device, including it; none where some of them represent others.
    pub(super) mates: Vec<u32>,
    /// The index of its list among the engine's job lists.
    pub(super) jobs: u32,
    /// Iterations that the driver has let it begin.
    pub(crate) begun: u32,
    /// Whether it had nothing left to do when it began the last of them.
    pub(super) begun_free: bool,
    /// Whether the driver has stopped it.
    pub(super) stopped: bool,
    pub(crate) compute: Cursor,
    pub(crate) exchange: Cursor,
    pub(crate) receive: Cursor,
    pub(crate) synchronisation: Cursor,
    /// Reads, decodes and uploads.
    pub(super) input: [InputStream; Stream::INPUT.len()],
    /// Since when its next load waits only for its batch.
    pub(super) asked: Option<Time>,
    /// Whether its device transforms samples because threads were late.
    pub(super) was_late: bool,
    /// When the next compute task could have begun.
    pub(super) ready: Option<Time>,
    /// When the next task that synchronises could have begun.
    synchronisation_ready: Option<Time>,
    /// The last repetition whose batch it has claimed, as iteration and repetition.
    claimed: Option<(u32, u32)>,
    /// Whether learners prepare batches for each other.
    pub(super) shares: bool,
    /// Runs of each task that are done, over iterations and repetitions.
    pub(crate) done: Vec<u64>,
    /// Exchanges in flight.
    pub(crate) flights: Vec<u32>,
    /// Whether something is done that exchanges may wait for.
    changed: bool,
    /// Ranks that it has sent to, by rank.
    pub(crate) peers: Vec<Peer>,
    /// The present factor on the time of its work.
    pub(super) slowdown: f64,
    /// Its position in the record of its host's noise, if there is one.
    pub(super) noise: Option<TracePosition>,
}

/// All ranks before anything has happened.
pub(super) fn all(plan: &Plan, platform: &Platform<'_>, jobs: &[u32]) -> Vec<Rank> {
    let mut ranks = Vec::with_capacity(jobs.len());
    for (role, role_plan) in plan.roles.iter().enumerate() {
        for &rank in &role_plan.ranks {
            let device = platform.placement.device(RankId(rank));
            let state = Rank {
                role: role as u32,
                device,
                apart: !matches!(platform.cluster.devices()[device.0 as usize].kind, DeviceKind::Cpu(_)),
                sole: platform.ranks_beside(device) == 1,
                mates: Vec::new(),
                jobs: jobs[rank as usize],
                begun: 0,
                begun_free: false,
                stopped: false,
                compute: Cursor::default(),
                exchange: Cursor::default(),
                receive: Cursor::default(),
                synchronisation: Cursor::default(),
                input: Default::default(),
                asked: None,
                was_late: false,
                ready: None,
                synchronisation_ready: None,
                claimed: None,
                shares: false,
                done: vec![0; role_plan.tasks.len()],
                flights: Vec::new(),
                changed: true,
                peers: Vec::new(),
                slowdown: 1.0,
                noise: None,
            };
            ranks.push((rank, state));
        }
    }
    ranks.sort_unstable_by_key(|(rank, _)| *rank);
    let mut ranks: Vec<Rank> = ranks.into_iter().map(|(_, state)| state).collect();
    if let Some(noise) = platform.costs.noise() {
        hear(&mut ranks, noise, platform);
    }
    let mut on = vec![Vec::new(); platform.cluster.devices().len()];
    for (rank, state) in (0..).zip(&ranks) {
        on[state.device.0 as usize].push(rank);
    }
    for state in &mut ranks {
        let mates = &on[state.device.0 as usize];
        if mates.len() == platform.ranks_beside(state.device) as usize {
            state.mates.clone_from(mates);
        }
    }
    ranks
}

/// Gives each rank on a CPU its position in the noise.
fn hear(ranks: &mut [Rank], noise: &Noise, platform: &Platform<'_>) {
    let devices = platform.cluster.devices();
    let mut index = vec![0; devices.len()];
    for rank in ranks.iter_mut().filter(|rank| !rank.apart) {
        let cores = platform.cluster.cores_of(&devices[rank.device.0 as usize]);
        let index = &mut index[cores.0 as usize];
        rank.noise = Some(noise.place(platform.conditions.trial, cores.0, *index, platform.ranks_beside(rank.device)));
        *index += 1;
    }
}

impl Rank {
    /// The tasks that `task` waits for in the run that `cursor` has reached.
    pub(crate) fn missing<'p>(
        &'p self,
        role: &'p RolePlan,
        task: u32,
        cursor: Cursor,
    ) -> impl Iterator<Item = u32> + 'p {
        let TaskPlan { needs, of_pool, .. } = &role.tasks[task as usize];
        let open = move |need: &&Need| {
            let is_open = self.done[need.task] < need.runs(cursor.iteration, cursor.repetition);
            is_open && !(self.shares && *of_pool == Some(need.task as u32))
        };
        needs.iter().filter(open).map(|need| need.task as u32)
    }

    /// Whether it did all that the driver let it begin.
    pub(crate) fn finished(&self, role: &RolePlan) -> bool {
        self.stopped && self.flights.is_empty() && self.through(role, 0) && self.synchronised(role, self.begun)
    }

    /// Whether it has synchronised all iterations before `iteration`.
    pub(super) fn synchronised(&self, role: &RolePlan, iteration: u32) -> bool {
        role.synchronisation.is_empty() || self.synchronisation.iteration >= iteration
    }

    /// Whether it has computed all these, and has started all their exchanges, receives up to `late` iterations before.
    fn through(&self, role: &RolePlan, late: u32) -> bool {
        let through =
            |cursor: Cursor, stream: &[Slot], late: u32| stream.is_empty() || cursor.iteration + late >= self.begun;
        through(self.compute, &role.compute, 0)
            && through(self.exchange, &role.exchange, 0)
            && through(self.receive, &role.receive, late)
    }

    /// The exchange of a stream that starts next, if it can start now.
    fn next_exchange(&self, role: &RolePlan, (cursor, stream): (Cursor, &[Slot])) -> Option<u32> {
        let task = cursor.task(stream)?;
        let previous = role.tasks[task as usize].run(cursor.iteration, cursor.repetition);
        let free = cursor.iteration < self.begun && self.done[task as usize] == previous;
        (free && self.missing(role, task, cursor).next().is_none()).then_some(task)
    }
}

impl<F: Fluid> Engine<'_, F> {
    pub(crate) fn role(&self, rank: u32) -> &RolePlan {
        &self.plan.roles[self.ranks[rank as usize].role as usize]
    }

    /// Asks the driver whether `rank` begins its next iteration.
    fn begin(&mut self, rank: u32) -> Result<(), InputError> {
        let idle = self.role(rank).tasks.is_empty();
        let state = &mut self.ranks[rank as usize];
        let (iterations, later) = self.record.skipped;
        let observation = Observation { rank, iteration: state.begun + iterations, at: self.now + later };
        match self.driver.next(&observation) {
            Decision::Run { .. } if !idle => {
                self.periods.begin(state.begun);
                let role = &self.plan.roles[state.role as usize];
                state.begun_free = state.flights.is_empty() && state.synchronised(role, state.begun);
                state.begun += 1;
                self.iteration_begins(observation.iteration)?;
            }
            _ => {
                state.stopped = true;
                self.stopped += 1;
            }
        }
        self.touch(2 * rank);
        Ok(())
    }

    /// Begins the iterations and starts the exchanges of `rank` that can.
    pub(super) fn start_ready(&mut self, rank: u32) -> Result<(), InputError> {
        let plan = self.plan;
        let role = &plan.roles[self.ranks[rank as usize].role as usize];
        if self.ring.is_some() {
            self.start_freed()?;
        }
        while std::mem::take(&mut self.ranks[rank as usize].changed) {
            self.start_input(rank)?;
            loop {
                let state = &mut self.ranks[rank as usize];
                if let Some(task) = state.next_exchange(role, (state.receive, &role.receive)) {
                    let cursor = state.receive;
                    state.receive.step(&role.receive);
                    self.start_exchange(rank, task, cursor)?;
                } else if let Some(task) = state.next_exchange(role, (state.exchange, &role.exchange)) {
                    let cursor = state.exchange;
                    state.exchange.step(&role.exchange);
                    self.start_exchange(rank, task, cursor)?;
                } else if !state.stopped && state.through(role, role.receives_late) {
                    self.begin(rank)?;
                } else {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Records that a run of `task` is done.
    pub(super) fn complete(&mut self, rank: u32, span: Span) {
        let state = &mut self.ranks[rank as usize];
        state.done[span.task as usize] += 1;
        state.changed = true;
        self.record.add(state.role, span);
        if self.ring.is_some() {
            self.hand_on(rank, span.task);
        }
        self.resources.fluid.ended(span.iteration);
        self.touch(2 * rank);
        if !self.role(rank).synchronisation.is_empty() {
            self.touch(self.exchange_unit(rank));
        }
    }

    /// Since when the next compute task of `rank` can begin; `None` while it cannot.
    pub(super) fn compute_ready(&mut self, rank: u32) -> Option<Time> {
        let state = &self.ranks[rank as usize];
        if state.ready.is_none() && state.compute.iteration < state.begun {
            if !self.pass_over(rank) {
                return None;
            }
            let (state, role) = (&self.ranks[rank as usize], self.role(rank));
            let task = state.compute.task(&role.compute)?;
            let uploaded_by = role.tasks[task as usize].uploaded_by;
            let waits_for = {
                let of_others =
                    uploaded_by.filter(|_| state.shares && self.ring.as_ref().is_some_and(|ring| !ring.has(rank)));
                let mut missing = state.missing(role, task, state.compute).chain(of_others);
                (missing.next(), missing.next())
            };
            let state = &mut self.ranks[rank as usize];
            match waits_for {
                (None, _) => {
                    state.ready = Some(self.now);
                    if uploaded_by.is_some() {
                        self.has_batch(rank);
                    }
                }
                (upload, None) if upload == uploaded_by => {
                    state.asked.get_or_insert(self.now);
                }
                _ => {}
            }
        }
        self.ranks[rank as usize].ready
    }

    /// Claims the batch of the repetition that `rank` is about to begin, and skips tasks that the first one does not do.
    /// False while it is not its turn.
    fn pass_over(&mut self, rank: u32) -> bool {
        let plan = self.plan;
        let role = &plan.roles[self.ranks[rank as usize].role as usize];
        loop {
            let state = &mut self.ranks[rank as usize];
            let cursor @ Cursor { iteration, repetition, position } = state.compute;
            let Some(slot) = role.compute.get(position as usize) else { return true };
            let task = &role.tasks[slot.task as usize];
            if slot.claims && state.claimed != Some((iteration, repetition)) {
                // It claims a batch before that is ready.
                if state.missing(role, slot.task, cursor).any(|other| Some(other) != task.uploaded_by) {
                    return true;
                }
                let answer = self.driver.claim(&Observation { rank, iteration, at: self.now });
                let ClaimAnswer::Take(batch) = answer else { return false };
                if let (Some(ring), Some(pools)) = (&mut self.ring, self.driver.pools()) {
                    ring.take(rank, pools.preparer(iteration, batch));
                }
                let state = &mut self.ranks[rank as usize];
                state.claimed = Some((iteration, repetition));
                // A rank that waits for its turn checks again.
                if let Some(next) = self.driver.turn(rank) {
                    self.touch(2 * next);
                }
            }
            if !task.skips_first || repetition > 0 {
                return true;
            }
            let state = &mut self.ranks[rank as usize];
            state.done[slot.task as usize] += 1;
            state.compute.step(&role.compute);
            state.changed = true;
        }
    }

    /// Since when the next task of `rank` that synchronises can begin; `None` while it cannot.
    pub(super) fn synchronisation_ready(&mut self, rank: u32) -> Option<Time> {
        let state = &self.ranks[rank as usize];
        if state.synchronisation_ready.is_none() && state.synchronisation.iteration < state.begun {
            let role = self.role(rank);
            let task = state.synchronisation.task(&role.synchronisation)?;
            if state.missing(role, task, state.synchronisation).next().is_none() {
                self.ranks[rank as usize].synchronisation_ready = Some(self.now);
            }
        }
        self.ranks[rank as usize].synchronisation_ready
    }

    /// The next compute task's work.
    pub(super) fn next_job(&self, rank: u32) -> Option<(Job, TraceWork)> {
        let state = &self.ranks[rank as usize];
        self.job(state.jobs, state.compute.task(&self.role(rank).compute)?)
    }

    pub(super) fn job(&self, list: u32, task: u32) -> Option<(Job, TraceWork)> {
        self.job_lists[list as usize][task as usize].map(|job| (job, TraceWork::Job { list, task, parts: 1 }))
    }

    /// The work of the next task that synchronises.
    pub(super) fn next_synchronisation(&self, rank: u32) -> Option<(Job, TraceWork)> {
        let state = &self.ranks[rank as usize];
        self.job(state.jobs, state.synchronisation.task(&self.role(rank).synchronisation)?)
    }

    /// The task of `rank` that synchronises and started at `start` is done.
    pub(super) fn synchronised(&mut self, rank: u32, start: Time) {
        let role = &self.plan.roles[self.ranks[rank as usize].role as usize];
        let state = &mut self.ranks[rank as usize];
        let Cursor { iteration, repetition, .. } = state.synchronisation;
        let Some(task) = state.synchronisation.task(&role.synchronisation) else { return };
        let ready = state.synchronisation_ready.take().unwrap_or(start);
        state.synchronisation.step(&role.synchronisation);
        self.complete(rank, Span { rank, task, iteration, repetition, ready, start, end: self.now });
    }

    /// The compute task of `rank` that started at `start` is done.
    pub(super) fn computed(&mut self, rank: u32, start: Time) {
        let role = &self.plan.roles[self.ranks[rank as usize].role as usize];
        let state = &mut self.ranks[rank as usize];
        let Cursor { iteration, repetition, .. } = state.compute;
        let Some(task) = state.compute.task(&role.compute) else { return };
        let ready = state.ready.take().unwrap_or(start);
        state.compute.step(&role.compute);
        self.complete(rank, Span { rank, task, iteration, repetition, ready, start, end: self.now });
    }
}
