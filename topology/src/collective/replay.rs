//! Replays one lane on all members with expressions for numbers, and keeps vector clocks.
//!
//! Elements are compressed to the segments between the lane's own boundaries, so that the cost of a lane depends on its
//! steps and not on the length of the buffer.

use std::collections::VecDeque;
use std::ops::Range;

use super::blocks::Blocks;
use super::contract::Contract;
use super::fault::{Reason, ScheduleError, Wait};
use super::meaning::Collective;
use super::reduction_order::{ExpressionId, Expressions};
use super::step::{Action, LaneStep};

/// A message posted and perhaps not yet received.
struct Message {
    /// The step that sent it.
    step: u32,
    start: u64,
    end: u64,
    /// The position in `Replay::words` of the sender's clock, followed by the values sent.
    words: usize,
}

/// A range sent, until its sender knows that it has been consumed.
struct Sent {
    range: Range<u64>,
    to: u32,
    step: u32,
    /// The receiver's step, once it was replayed.
    consumed: Option<u32>,
}

/// The replay of lanes, one at a time; its buffers are kept between them.
pub(super) struct Replay<'a> {
    contract: &'a Contract,
    /// The blocks of an alltoallv, whose messages move data instead of summing it.
    pub(super) blocks: Option<Blocks>,
    lane: u32,
    /// Steps of all members, and where those of each begin.
    steps: Vec<LaneStep>,
    first: Vec<usize>,
    /// Boundaries of the segments, and which of the segments between them a step touches.
    bounds: Vec<u64>,
    touched: Vec<bool>,
    /// `values[segment · members + member]`.
    values: Vec<ExpressionId>,
    /// `clock[member · members + other]`: steps of `other` that are certainly done.
    clock: Vec<u32>,
    /// Messages by `from · members + to`.
    queues: Vec<VecDeque<Message>>,
    sent: Vec<Vec<Sent>>,
    words: Vec<u32>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(contract: &'a Contract) -> Replay<'a> {
        let members = contract.members as usize;
        let blocks = match &contract.collective {
            Collective::AllToAllV { counts } => Blocks::new(contract.members, counts),
            _ => None,
        };
        Replay {
            contract,
            blocks,
            lane: 0,
            steps: Vec::new(),
            first: Vec::new(),
            bounds: Vec::new(),
            touched: Vec::new(),
            values: Vec::new(),
            clock: Vec::new(),
            queues: (0..members * members).map(|_| VecDeque::new()).collect(),
            sent: (0..members).map(|_| Vec::new()).collect(),
            words: Vec::new(),
        }
    }

    /// Replays a lane to its end.
    pub(super) fn run<I: Iterator<Item = LaneStep>>(
        &mut self,
        lane: u32,
        steps: impl Fn(u32) -> I,
        expressions: &mut Expressions,
    ) -> Result<(), ScheduleError> {
        let members = self.contract.members;
        self.load(lane, steps)?;
        // each member runs until it waits; a message wakes the one that waits for it
        let mut ready: Vec<u32> = (0..members).rev().collect();
        while let Some(member) = ready.pop() {
            while let Some(step) = self.current(member) {
                match step.action {
                    Action::Send => {
                        self.send(member, step)?;
                        let waits = self.current(step.peer).filter(|other| other.action != Action::Send);
                        if waits.is_some_and(|other| other.peer == member) && step.peer != member {
                            ready.push(step.peer);
                        }
                    }
                    Action::RecvInto | Action::RecvSum => {
                        let queue = &mut self.queues[(step.peer * members + member) as usize];
                        let Some(message) = queue.pop_front() else { break };
                        self.receive(member, step, &message, expressions)?;
                    }
                }
                self.clock[(member * members + member) as usize] += 1;
            }
        }
        self.ended()
    }

    /// The segments that the lane touches, each with what every member holds in it.
    pub(super) fn segments(&self) -> impl Iterator<Item = (Range<u64>, &[ExpressionId])> {
        let ranges = self.bounds.windows(2).map(|pair| pair[0]..pair[1]);
        let values = self.values.chunks(self.contract.members as usize);
        let touched = ranges.zip(values).zip(&self.touched).filter(|(_, touched)| **touched);
        touched.map(|(segment, _)| segment)
    }

    /// The ranges that the lane's receives write, member by member.
    pub(super) fn received(&self) -> impl Iterator<Item = (u32, Range<u64>)> {
        let of = |member: u32| &self.steps[self.first[member as usize]..self.first[member as usize + 1]];
        let receives = move |member| of(member).iter().filter(|step| step.action != Action::Send);
        (0..self.contract.members).flat_map(move |member| receives(member).map(move |step| (member, step.range())))
    }

    /// The step that a member has reached.
    fn current(&self, member: u32) -> Option<LaneStep> {
        let done = self.done(member) as usize;
        self.steps[self.first[member as usize]..self.first[member as usize + 1]].get(done).copied()
    }

    /// Steps that a member has done.
    fn done(&self, member: u32) -> u32 {
        self.clock[(member * self.contract.members + member) as usize]
    }

    /// A fault at the step that `member` has reached.
    fn fault(&self, member: u32, reason: Reason) -> ScheduleError {
        ScheduleError { member, lane: Some(self.lane), step: Some(self.done(member)), reason }
    }

    /// Loads a lane: pulls its steps, checks their ranges and peers, and cuts its elements into segments.
    fn load<I: Iterator<Item = LaneStep>>(&mut self, lane: u32, steps: impl Fn(u32) -> I) -> Result<(), ScheduleError> {
        let Contract { members, elements, .. } = *self.contract;
        self.lane = lane;
        self.steps.clear();
        self.first.clear();
        self.bounds.clear();
        for member in 0..members {
            let first = self.steps.len();
            self.first.push(first);
            self.steps.extend(steps(member));
            for (at, step) in self.steps[first..].iter().enumerate() {
                let fault = |reason| Err(ScheduleError { member, lane: Some(lane), step: Some(at as u32), reason });
                if step.start >= step.end || step.end > elements {
                    return fault(Reason::BadRange { range: step.range(), elements });
                }
                if step.peer >= members || (step.peer == member && self.blocks.is_none()) {
                    return fault(Reason::BadPeer { peer: step.peer });
                }
            }
        }
        self.first.push(self.steps.len());
        self.clock.clear();
        self.clock.resize((members * members) as usize, 0);
        self.sent.iter_mut().for_each(Vec::clear);
        self.words.clear();
        if self.blocks.is_none() {
            self.cut();
        }
        Ok(())
    }

    /// Cuts the lane's elements into segments, and gives each its value before the collective.
    fn cut(&mut self) {
        self.bounds.extend(self.steps.iter().flat_map(|step| [step.start, step.end]));
        self.bounds.sort_unstable();
        self.bounds.dedup();
        if let [first, .., last] = self.bounds[..] {
            self.bounds.extend(self.contract.parts(first..last).map(|part| part.end));
            self.bounds.sort_unstable();
            self.bounds.dedup();
        }
        let segments = self.bounds.len().saturating_sub(1);
        self.touched.clear();
        self.touched.resize(segments, false);
        for at in 0..self.steps.len() {
            let segments = self.spanned(&self.steps[at]);
            self.touched[segments].fill(true);
        }
        let members = self.contract.members;
        self.values.clear();
        for start in &self.bounds[..segments] {
            self.values.extend((0..members).map(|member| self.contract.initial(member, *start)));
        }
    }

    /// The segments of a step.
    fn spanned(&self, step: &LaneStep) -> Range<usize> {
        let at = |element: u64| self.bounds.partition_point(|bound| *bound < element);
        at(step.start)..at(step.end)
    }

    /// Posts a message: the values, and the sender's clock.
    fn send(&mut self, member: u32, step: LaneStep) -> Result<(), ScheduleError> {
        let members = self.contract.members;
        let at = self.done(member);
        let words = self.words.len();
        let clock = (member * members) as usize..((member + 1) * members) as usize;
        self.words.extend_from_slice(&self.clock[clock]);
        // the send itself is known to have been done
        self.words[words + member as usize] += 1;
        if self.blocks.is_none() {
            for segment in self.spanned(&step) {
                let value = self.values[segment * members as usize + member as usize];
                if value == ExpressionId::NOTHING {
                    return Err(self.fault(member, Reason::NoData { element: self.bounds[segment] }));
                }
                self.words.push(value.0);
            }
        }
        let message = Message { step: at, start: step.start, end: step.end, words };
        self.queues[(member * members + step.peer) as usize].push_back(message);
        self.sent[member as usize].push(Sent { range: step.range(), to: step.peer, step: at, consumed: None });
        Ok(())
    }

    /// Consumes a message and stores it in the step's range.
    fn receive(
        &mut self,
        member: u32,
        step: LaneStep,
        message: &Message,
        expressions: &mut Expressions,
    ) -> Result<(), ScheduleError> {
        let members = self.contract.members as usize;
        let (me, at) = (member as usize, self.done(member));
        let fits = match &self.blocks {
            None => (message.start, message.end) == (step.start, step.end),
            Some(blocks) => {
                let (from, to) = (blocks.sent(step.peer, member), blocks.received(step.peer, member));
                let inside = message.start >= from.start && message.end <= from.end && step.start >= to.start;
                let same = inside && message.start - from.start == step.start - to.start;
                same && message.end - message.start == step.elements() && step.action == Action::RecvInto
            }
        };
        if !fits {
            let sent = message.start..message.end;
            let (from, sent_at, received) = (step.peer, message.step, step.range());
            return Err(self.fault(member, Reason::Mismatch { from, sent_at, sent, received }));
        }
        for other in 0..members {
            let known = &mut self.clock[me * members + other];
            *known = (*known).max(self.words[message.words + other]);
        }
        let sent = self.sent[step.peer as usize].iter_mut().find(|sent| sent.step == message.step);
        if let Some(sent) = sent {
            sent.consumed = Some(at);
        }
        if self.blocks.is_some() {
            return Ok(());
        }
        self.still_read(member, step)?;
        for (index, segment) in self.spanned(&step).enumerate() {
            let arrived = ExpressionId(self.words[message.words + members + index]);
            let held = &mut self.values[segment * members + me];
            if step.action == Action::RecvInto {
                *held = arrived;
                continue;
            }
            let element = self.bounds[segment];
            let reason = match *held {
                ExpressionId::NOTHING => Reason::NoData { element },
                own => match expressions.sum(own, arrived) {
                    Ok(sum) => {
                        *held = sum;
                        continue;
                    }
                    Err(contributor) => Reason::SumsTwice { element, contributor },
                },
            };
            return Err(self.fault(member, reason));
        }
        Ok(())
    }

    /// Refuses to write a range that was sent, unless its receiver's step is known to have been done.
    fn still_read(&self, member: u32, step: LaneStep) -> Result<(), ScheduleError> {
        if self.contract.buffered_sends {
            return Ok(());
        }
        let known = |other: u32| self.clock[(member * self.contract.members + other) as usize];
        let unread = self.sent[member as usize].iter().find(|sent| {
            let overlaps = sent.range.start < step.end && step.start < sent.range.end;
            overlaps && sent.consumed.is_none_or(|at| known(sent.to) <= at)
        });
        match unread {
            Some(sent) => Err(self.fault(member, Reason::Overwrites { sent_at: sent.step, reader: sent.to })),
            None => Ok(()),
        }
    }

    /// Checks that every member has ended and every message was received.
    fn ended(&mut self) -> Result<(), ScheduleError> {
        let members = self.contract.members;
        if let Some(stuck) = (0..members).find(|member| self.current(*member).is_some()) {
            let mut waits: Vec<Wait> = Vec::new();
            let mut member = stuck;
            while let Some(step) = self.current(member) {
                if waits.iter().any(|wait| wait.member == member) {
                    break;
                }
                let ended = self.current(step.peer).is_none();
                waits.push(Wait { member, step: self.done(member), peer: step.peer, ended });
                member = step.peer;
            }
            return Err(self.fault(stuck, Reason::Deadlock { waits }));
        }
        for (pair, queue) in self.queues.iter_mut().enumerate() {
            if let Some(message) = queue.pop_front() {
                let (member, to) = (pair as u32 / members, pair as u32 % members);
                let reason = Reason::NeverReceived { to };
                return Err(ScheduleError { member, lane: Some(self.lane), step: Some(message.step), reason });
            }
        }
        Ok(())
    }
}
