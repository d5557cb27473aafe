//! Runs a worker's input tasks: threads of the process read and decode the next batch while the worker computes, and
//! their times are recorded when it is loaded. The load copies the batch to the device, so its upload takes no time.

use std::time::{Duration, Instant};

use lockstep_models::{Op, Span, Stream, TaskId};
use lockstep_topology::Time;

use super::Worker;
use super::compute::samples_of;
use crate::data::{Feed, MadeTimes};
use crate::error::ExecError;

/// Longest wait for samples before a worker makes progress on exchanges: with an exchange in flight, and without.
const LOOK: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(100)];

impl Worker<'_> {
    /// Waits for the input tasks of a load, marks them as done, and returns their spans; empty for other tasks.
    pub(super) fn take_input(&mut self, load: TaskId, repetition: u32, batch: u64) -> Result<Vec<Span>, ExecError> {
        let Some(input) = self.role.input_of(load) else { return Ok(Vec::new()) };
        let (asked, mut times) = (Instant::now(), None);
        if Feed::makes(self.setup.data)
            && let Some((indices, place)) = self.samples_for(load, self.micro_batch, batch)
        {
            while times.is_none() {
                while self.progress()? {}
                if asked.elapsed() > self.setup.guard.limit {
                    return Err(self.give_up(asked.elapsed()));
                }
                let look = LOOK[usize::from(self.slots.iter().all(|slot| !slot.running))];
                let data = self.store.as_ref().map_or(self.setup.data, |store| store.data());
                let Some(replica) = &mut self.memory.replica else { break };
                times = replica.wait_for(data, (&indices, place), Instant::now() + look)?;
            }
        }
        // The first batch cannot be made ahead.
        let first = (self.iteration, repetition) == (0, 0);
        if let (Some(times), Some(replica)) = (times, &self.memory.replica)
            && times.decoded.1 > asked
            && !first
        {
            replica.fell_behind();
        }
        let now = Instant::now();
        let MadeTimes { asked, read: first, decoded } =
            times.unwrap_or(MadeTimes { asked: now, read: (now, now), decoded: (now, now) });
        let clock = self.clock;
        let at = |instant: Instant| Time::from_nanos(instant.saturating_duration_since(clock).as_nanos() as u64);
        let (rank, iteration) = (self.transport.rank().0, self.iteration);
        let times: [_; Stream::INPUT.len()] = [(asked, first), (first.1, decoded), (decoded.1, (decoded.1, decoded.1))];
        let mut spans = Vec::new();
        for (task, (ready, (start, end))) in input.into_iter().zip(times) {
            // Threads begin a batch while the last samples of the previous one are in progress.
            let start = at(start).max(self.ended[task]);
            let (end, ready) = (at(end).max(start), at(ready).min(start));
            spans.push(Span { rank, task: task as u32, iteration, repetition, ready, start, end });
            (self.done[task], self.ended[task]) = (self.done[task] + 1, end);
        }
        Ok(spans)
    }

    /// Starts to prepare the batches after the load `task` in `repetition` of step `batch`. Does nothing for a worker
    /// that claims its batches, since it does not know which ones follow.
    pub(super) fn expect_after(&mut self, task: TaskId, repetition: u32, batch: u64) -> Result<(), ExecError> {
        if !Feed::makes(self.setup.data) {
            return Ok(());
        }
        let Some(loads) = self.loads() else { return Ok(()) };
        let Some(now) = loads.iter().position(|load| *load == (task, repetition)) else { return Ok(()) };
        let (program, steps, rank) = (self.setup.program, self.setup.run_length.steps, self.transport.rank().0);
        let next = (now + 1..).map(|load| (batch + (load / loads.len()) as u64, loads[load % loads.len()]));
        let next = next.take_while(|(batch, _)| *batch < steps).map_while(|(batch, (task, repetition))| {
            self.samples_for(task, program.source(rank) * program.accumulate + repetition, batch)
        });
        let ahead = self.role.batches_ahead().map_or(Feed::AHEAD, |ahead| Feed::AHEAD.min(ahead as usize));
        let next: Vec<(Vec<u32>, u64)> = next.take(ahead).collect();
        let data = self.store.as_ref().map_or(self.setup.data, |store| store.data());
        let Some(replica) = &mut self.memory.replica else { return Ok(()) };
        Ok(replica.expect(data, next.into_iter())?)
    }

    /// The samples that the load `task` takes of a micro-batch in step `batch`, and the place of the first; `None`
    /// after the next shuffle, when the rank holds other samples.
    fn samples_for(&self, task: TaskId, micro_batch: u32, batch: u64) -> Option<(Vec<u32>, u64)> {
        let Op::Load { pass, .. } = self.role.tasks[task].op else { return None };
        let (indices, places) = samples_of(self.setup, batch, pass, (self.transport.rank().0, micro_batch));
        let each = self.setup.program.accumulate;
        let indices = match &self.store {
            Some(store) => {
                let pieces = self.setup.program.pieces(pass, self.transport.rank().0, micro_batch / each);
                store.drawn_for(batch, &pieces, micro_batch % each)?
            }
            None => indices,
        };
        Some((indices, places[0]))
    }

    /// The loads of an iteration in order, with their repetitions; `None` where micro-batches are claimed.
    fn loads(&self) -> Option<Vec<(TaskId, u32)>> {
        let tasks = &self.role.tasks;
        let is_load = |task: &TaskId| matches!(tasks[*task].op, Op::Load { samples: 1.., .. });
        let (mut loads, mut task) = (Vec::new(), 0);
        while task < tasks.len() {
            match &tasks[task].op {
                Op::Repeat { claimed: true, .. } => return None,
                Op::Repeat { count, body, .. } => {
                    let body = task + 1..=task + body;
                    loads.extend((0..*count).flat_map(|run| body.clone().filter(is_load).map(move |task| (task, run))));
                    task = *body.end();
                }
                Op::Schedule(order) => {
                    for step in &order.steps {
                        let of_step = order.tasks_of(step).map(|inner| task + 1 + inner).filter(is_load);
                        loads.extend(of_step.map(|task| (task, step.micro_batch)));
                    }
                    task += order.tasks();
                }
                _ => loads.extend(Some(task).filter(is_load).map(|task| (task, 0))),
            }
            task += 1;
        }
        Some(loads)
    }
}
