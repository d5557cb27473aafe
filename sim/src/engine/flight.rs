//! `Flight`: tracks an exchange in flight on one member: its lanes, and messages posted before their receive.
//!
//! A flight is created when its member starts it or when the first message for it is posted, whichever is first.

use std::collections::VecDeque;

use lockstep_topology::{Lane, LaneStep, Time};

use super::inbox::Inbox;
use crate::plan::Plan;

/// A lane that has started.
#[derive(Debug)]
pub(crate) struct LaneRun {
    steps: Lane,
    /// The receive that it waits in.
    pub(crate) waiting: Option<LaneStep>,
    /// The message that this receive takes.
    pub(crate) matched: Option<u32>,
    /// Sends that have not been received.
    pub(crate) outstanding: u32,
    /// Whether the next step waits for these.
    pub(crate) blocked: bool,
    /// Whether all its steps are done.
    pub(crate) ended: bool,
}

impl LaneRun {
    pub(super) fn new(steps: Lane) -> LaneRun {
        LaneRun { steps, waiting: None, matched: None, outstanding: 0, blocked: false, ended: false }
    }

    pub(super) fn next(&mut self) -> Option<LaneStep> {
        self.steps.next()
    }

    /// Skips the next `rounds` rounds of a ring.
    pub(super) fn pass_over(&mut self, rounds: u32) {
        self.steps.pass_over(2 * rounds);
    }

    /// Whether nothing is left to do.
    pub(crate) fn through(&self) -> bool {
        self.ended && self.outstanding == 0
    }
}

/// One exchange on one member.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) rank: u32,
    pub(crate) group_exchange: u32,
    /// The number of the run of the exchange, over iterations and repetitions.
    pub(crate) run: u64,
    /// The number of its start among all flights; `None` before it.
    pub(crate) serial: Option<u64>,
    pub(crate) task: u32,
    pub(crate) iteration: u32,
    pub(crate) repetition: u32,
    pub(crate) start: Time,
    /// The lane that starts next.
    pub(crate) next: u32,
    /// Lanes started so far, from `base` on; those before are finished.
    lanes: VecDeque<LaneRun>,
    base: u32,
    /// Posted messages that no lane waits for yet.
    pub(crate) inbox: Inbox,
    /// The member it last sent to, and that member's flight.
    pub(super) sent_to: (u32, u32),
    /// Messages received, and the count at which rings are checked (`steady.rs`); 0: never.
    pub(super) received: u32,
    pub(super) mark: u32,
    /// Whether it has not ended.
    pub(super) open: bool,
}

impl Flight {
    pub(super) fn new(rank: u32, group_exchange: u32, run: u64) -> Flight {
        Flight { rank, group_exchange, run, sent_to: (0, u32::MAX), open: true, ..Flight::default() }
    }

    /// Adds the next lane.
    pub(super) fn start_lane(&mut self, steps: Lane) {
        self.lanes.push_back(LaneRun::new(steps));
        self.next += 1;
    }

    /// A lane that has started and may be unfinished.
    pub(crate) fn lane(&mut self, lane: u32) -> Option<&mut LaneRun> {
        self.lanes.get_mut(lane.checked_sub(self.base)? as usize)
    }

    /// The unfinished lanes, with their indices.
    pub(crate) fn active_lanes(&self) -> impl Iterator<Item = (u32, &LaneRun)> {
        (self.base..).zip(&self.lanes).filter(|(_, lane)| !lane.through())
    }

    /// Lanes from the lowest unfinished one to the last one started: what the window counts.
    pub(super) fn span(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// Drops the finished lanes below the lowest unfinished one.
    pub(super) fn retire(&mut self) {
        while self.lanes.front().is_some_and(LaneRun::through) {
            self.lanes.pop_front();
            self.base += 1;
        }
    }
}

/// The flights of each exchange's members.
#[derive(Debug)]
pub(crate) struct OpenExchanges {
    /// By exchange and member: runs in flight and their flights; there are never many.
    open: Vec<Vec<Vec<(u64, u32)>>>,
}

impl OpenExchanges {
    pub(super) fn new(plan: &Plan) -> OpenExchanges {
        let ranks = plan.ranks();
        let members = |group_exchange: &crate::plan::GroupExchange| {
            vec![Vec::new(); group_exchange.schedule.members().min(ranks) as usize]
        };
        OpenExchanges { open: plan.group_exchanges.iter().map(members).collect() }
    }

    pub(super) fn find(&self, group_exchange: u32, member: u32, run: u64) -> Option<u32> {
        let open = &self.open[group_exchange as usize][member as usize];
        open.iter().find(|(other, _)| *other == run).map(|(_, flight)| *flight)
    }

    pub(super) fn add(&mut self, group_exchange: u32, member: u32, run: u64, flight: u32) {
        self.open[group_exchange as usize][member as usize].push((run, flight));
    }

    pub(super) fn remove(&mut self, group_exchange: u32, member: u32, run: u64) {
        self.open[group_exchange as usize][member as usize].retain(|(other, _)| *other != run);
    }
}
