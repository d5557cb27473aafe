//! One rank: its two streams, iteration by iteration.
//!
//! The compute stream runs task by task. Exchanges start in program order among themselves, each when what it is `after`
//! is done. A rank asks the driver when its compute stream is through an iteration (a role without compute tasks: when all
//! its exchanges of the iteration have started), and exchanges of an iteration wait for that answer.

use lockstep_models::{Decision, Observation, Span};
use lockstep_topology::cluster::{DeviceId, DeviceKind};
use lockstep_topology::{InputError, Rank as RankId, Time};

use super::completions::Completions;
use super::path::Peer;
use super::{Engine, Job};
use crate::fluid::Fluid;
use crate::plan::{Cursor, Plan, RolePlan};
use crate::platform::Platform;

/// A rank's state.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) role: u32,
    pub(crate) device: DeviceId,
    /// Whether messages are handled beside the compute stream (on a GPU) or between its tasks (on a CPU).
    pub(crate) apart: bool,
    /// Which of the engine's job lists is its own.
    jobs: u32,
    /// Iterations that the driver has let it begin.
    pub(crate) begun: u32,
    /// Whether the driver has told it to stop.
    stopped: bool,
    pub(crate) compute: Cursor,
    pub(crate) exchange: Cursor,
    /// When the next compute task could have begun.
    ready: Option<Time>,
    pub(crate) done: Vec<Completions>,
    /// Exchanges in flight.
    pub(crate) flights: Vec<u32>,
    /// Whether something is done that exchanges may wait for.
    changed: bool,
    /// Ranks that it has sent to, by rank.
    pub(crate) peers: Vec<Peer>,
}

/// All ranks before anything has happened.
pub(super) fn all(plan: &Plan, platform: &Platform<'_>, jobs: &[u32]) -> Vec<Rank> {
    let mut ranks = Vec::with_capacity(jobs.len());
    for (role, role_plan) in plan.roles.iter().enumerate() {
        for rank in role_plan.first..role_plan.first + role_plan.count {
            let device = platform.placement.device(RankId(rank));
            ranks.push(Rank {
                role: role as u32,
                device,
                apart: matches!(platform.cluster.devices()[device.0 as usize].kind, DeviceKind::Gpu(_)),
                jobs: jobs[rank as usize],
                begun: 0,
                stopped: false,
                compute: Cursor::default(),
                exchange: Cursor::default(),
                ready: None,
                done: vec![Completions::default(); role_plan.tasks.len()],
                flights: Vec::new(),
                changed: true,
                peers: Vec::new(),
            });
        }
    }
    ranks
}

impl Rank {
    /// The tasks that `task` waits for in the run that `cursor` stands at.
    pub(crate) fn missing<'p>(
        &'p self,
        role: &'p RolePlan,
        task: u32,
        cursor: Cursor,
    ) -> impl Iterator<Item = u32> + 'p {
        let needs = &role.tasks[task as usize].needs;
        let open = move |need: &&crate::plan::Need| {
            !self.done[need.task as usize].reached(need.runs(cursor.iteration, cursor.repetition))
        };
        needs.iter().filter(open).map(|need| need.task)
    }

    /// Whether it did all that the driver let it begin.
    pub(crate) fn finished(&self, role: &RolePlan) -> bool {
        let through = |cursor: Cursor, stream: &[_]| stream.is_empty() || cursor.iteration >= self.begun;
        self.stopped
            && self.flights.is_empty()
            && through(self.compute, &role.compute)
            && through(self.exchange, &role.exchange)
    }
}

impl<F: Fluid> Engine<'_, F> {
    pub(crate) fn role(&self, rank: u32) -> &RolePlan {
        &self.plan.roles[self.ranks[rank as usize].role as usize]
    }

    /// Asks the driver whether `rank` begins its next iteration.
    pub(super) fn begin(&mut self, rank: u32) {
        let idle = self.role(rank).tasks.is_empty();
        let state = &mut self.ranks[rank as usize];
        let observation = Observation { rank, iteration: state.begun, at: self.now };
        match self.driver.next(&observation) {
            Decision::Run { .. } if !idle => state.begun += 1,
            _ => state.stopped = true,
        }
        state.changed = true;
    }

    /// Starts every exchange of `rank` that can start.
    pub(super) fn settle(&mut self, rank: u32) -> Result<(), InputError> {
        while std::mem::take(&mut self.ranks[rank as usize].changed) {
            loop {
                let role = self.role(rank);
                let state = &self.ranks[rank as usize];
                let cursor = state.exchange;
                let Some(task) = cursor.task(&role.exchange) else { break };
                if cursor.iteration >= state.begun {
                    if !role.compute.is_empty() || state.stopped {
                        break;
                    }
                    self.begin(rank);
                    continue;
                }
                if state.missing(role, task, cursor).next().is_some() {
                    break;
                }
                let role = &self.plan.roles[state.role as usize];
                self.ranks[rank as usize].exchange.step(&role.exchange);
                self.start_exchange(rank, task, cursor)?;
            }
        }
        Ok(())
    }

    /// Notes that a run of `task` is done and records it.
    pub(super) fn complete(&mut self, rank: u32, span: Span) {
        let run = self.role(rank).tasks[span.task as usize].run(span.iteration, span.repetition);
        let state = &mut self.ranks[rank as usize];
        state.done[span.task as usize].add(run);
        state.changed = true;
        self.spans.push(span);
        self.touch(2 * rank);
    }

    /// Since when the next compute task of `rank` can begin; `None` while it cannot.
    pub(super) fn compute_ready(&mut self, rank: u32) -> Option<Time> {
        let state = &self.ranks[rank as usize];
        if state.ready.is_none() && state.compute.iteration < state.begun {
            let role = self.role(rank);
            let task = state.compute.task(&role.compute)?;
            if state.missing(role, task, state.compute).next().is_none() {
                self.ranks[rank as usize].ready = Some(self.now);
            }
        }
        self.ranks[rank as usize].ready
    }

    /// The next compute task's work.
    pub(super) fn next_job(&self, rank: u32) -> Option<Job> {
        let state = &self.ranks[rank as usize];
        let task = state.compute.task(&self.role(rank).compute)?;
        self.job_lists[state.jobs as usize][task as usize]
    }

    /// The compute task of `rank` that started at `start` is done.
    pub(super) fn computed(&mut self, rank: u32, start: Time) {
        let role = &self.plan.roles[self.ranks[rank as usize].role as usize];
        let state = &mut self.ranks[rank as usize];
        let Cursor { iteration, repetition, .. } = state.compute;
        let Some(task) = state.compute.task(&role.compute) else { return };
        let ready = state.ready.take().unwrap_or(start);
        state.compute.step(&role.compute);
        let through = state.compute.iteration > iteration;
        self.complete(rank, Span { rank, task, iteration, repetition, ready, start, end: self.now });
        if through {
            self.begin(rank);
        }
    }
}
