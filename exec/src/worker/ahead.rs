//! Runs a worker's input tasks: threads of the process read and decode the next batch while the worker computes, and
//! their times are recorded when it is loaded. The load copies the batch to the device, so its upload takes no time.

use std::time::{Duration, Instant};

use lockstep_models::{Op, Span, Stream, TaskId};
use lockstep_topology::Time;

use super::compute::samples_of;
use super::{Setup, Worker};
use crate::error::ExecError;
use crate::input::{Feed, MadeTimes, Ring};

/// Longest wait for samples before a worker makes progress on exchanges: with an exchange in flight, and without.
const LOOK: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(100)];
/// Interval between two looks for a place of the ring.
const NO_PLACE: Duration = Duration::from_micros(50);

impl Worker<'_> {
    /// Waits for the input tasks of a load, marks them as done, and returns their spans; empty for other tasks. A batch
    /// that another learner has prepared leaves its spans to that one.
    pub(super) fn take_input(&mut self, load: TaskId, repetition: u32, batch: u64) -> Result<Vec<Span>, ExecError> {
        let Some(input) = self.role.input_of(load) else { return Ok(Vec::new()) };
        let (asked, mut times) = (Instant::now(), None);
        let ring = self.setup.ring.as_ref();
        let prepared = ring.map(|ring| ring.pools().preparer(self.iteration, self.micro_batch));
        if let Some((indices, place)) = self.samples_for(load, self.micro_batch, batch) {
            let mut has_place = ring.is_none();
            while times.is_none() {
                while self.progress()? {}
                if asked.elapsed() > self.setup.guard.limit {
                    return Err(self.give_up(asked.elapsed()));
                }
                let look = LOOK[usize::from(self.slots.iter().all(|slot| !slot.running))];
                let data = self.store.as_ref().map_or(self.setup.data, |store| store.data());
                let Some(replica) = &mut self.memory.replica else { break };
                if let (false, Some(ring), Some(prepared)) = (has_place, ring, prepared) {
                    // Without a place it waits for another learner's load.
                    has_place = replica.take(ring, prepared);
                    if !has_place {
                        std::thread::sleep(NO_PLACE);
                        continue;
                    }
                }
                times = replica.wait_for(data, (&indices, place), Instant::now() + look)?;
            }
        }
        // The first batch cannot be made ahead.
        let first = (self.iteration, repetition) == (0, 0);
        if let (Some(times), Some(replica)) = (times, &self.memory.replica)
            && times.decoded.1 > asked
            && !first
        {
            ring.map_or_else(|| replica.fell_behind(), Ring::fell_behind);
        }
        if ring.is_some() {
            input.into_iter().for_each(|task| self.done[task] += 1);
            return Ok(Vec::new());
        }
        let now = Instant::now();
        let times = times.unwrap_or(MadeTimes { asked: now, read: (now, now), decoded: (now, now) });
        let spans = self.spans_of_input(input, times, (self.iteration, repetition));
        input.into_iter().for_each(|task| self.done[task] += 1);
        Ok(spans.into())
    }

    /// The spans of the input tasks `input` of a batch that was made at `times`.
    fn spans_of_input(
        &mut self,
        input: [TaskId; Stream::INPUT.len()],
        MadeTimes { asked, read: first, decoded }: MadeTimes,
        (iteration, repetition): (u32, u32),
    ) -> [Span; Stream::INPUT.len()] {
        let (clock, rank) = (self.clock, self.transport.rank().0);
        let at = |instant: Instant| Time::from_nanos(instant.saturating_duration_since(clock).as_nanos() as u64);
        let times: [_; Stream::INPUT.len()] = [(asked, first), (first.1, decoded), (decoded.1, (decoded.1, decoded.1))];
        std::array::from_fn(|number| {
            let (task, (ready, (start, end))) = (input[number], times[number]);
            // Threads begin a batch while the last samples of the previous one are in progress.
            let start = at(start).max(self.ended[task]);
            let (end, ready) = (at(end).max(start), at(ready).min(start));
            self.ended[task] = end;
            Span { rank, task: task as u32, iteration, repetition, ready, start, end }
        })
    }

    /// Records what this rank has prepared for the learners of its process, when all of it is loaded.
    pub(super) fn note_prepared(&mut self) {
        let Some(ring) = &self.setup.ring else { return };
        let Some(input) = (0..self.role.tasks.len()).find_map(|task| self.role.input_of(task)) else { return };
        let (rank, each) = (self.transport.rank().0, u64::from(self.setup.program.accumulate));
        // In the order in which they were ready, since threads may finish a later batch first, and it may be loaded then.
        let mut made: Vec<_> = ring.made(rank).into_iter().collect();
        made.sort_by_key(|(_, times)| times.decoded.1);
        for (number, times) in made {
            let spans = self.spans_of_input(input, times, ((number / each) as u32, (number % each) as u32));
            self.spans.extend(spans);
        }
    }

    /// Starts to prepare batches for the learners of this process, where they do so for each other.
    pub(super) fn fill_ring(&mut self) -> Result<(), ExecError> {
        let Setup { ring: Some(ring), program, data, first, options, .. } = self.setup else { return Ok(()) };
        let Some(replica) = &mut self.memory.replica else { return Ok(()) };
        let device = replica.device();
        let setup = self.setup;
        let samples = |(iteration, micro_batch): (u32, u32)| {
            let owner = micro_batch / program.accumulate;
            let of = || samples_of(setup, first + u64::from(iteration), None, (owner, micro_batch));
            (iteration < options.steps).then(of).map(|(indices, places)| (indices, places[0]))
        };
        ring.fill(data, &mut |bytes| device.batch_memory(bytes), samples)
    }

    /// Starts to prepare the batches after the load `task` in `repetition` of step `batch`: the rank's own, or those that
    /// learners of the process will claim.
    pub(super) fn expect_after(&mut self, task: TaskId, repetition: u32, batch: u64) -> Result<(), ExecError> {
        if !Feed::makes(self.setup.data, self.role) {
            return Ok(());
        }
        if let Some(ring) = &self.setup.ring {
            ring.free(ring.pools().preparer(self.iteration, self.micro_batch));
            return self.fill_ring();
        }
        let Some(loads) = self.loads() else { return Ok(()) };
        let Some(now) = loads.iter().position(|load| *load == (task, repetition)) else { return Ok(()) };
        let steps = self.setup.run_length.steps;
        let next = (now + 1..).map(|load| (batch + (load / loads.len()) as u64, loads[load % loads.len()]));
        let next = next.take_while(|(batch, _)| *batch < steps).enumerate();
        let next = next.map_while(|(number, (batch, (task, repetition)))| {
            self.samples_for(task, self.later_micro_batch(number, repetition)?, batch)
        });
        let ahead = self.role.batches_ahead().map_or(Feed::AHEAD, Feed::room);
        let next: Vec<(Vec<u32>, u64)> = next.take(ahead).collect();
        let data = self.store.as_ref().map_or(self.setup.data, |store| store.data());
        let Some(replica) = &mut self.memory.replica else { return Ok(()) };
        replica.expect(data, next.into_iter())
    }

    /// The micro-batch of a load after the next `number` ones, as a number within the global batch: the rank's own, or
    /// the one that a record of claims gives it.
    fn later_micro_batch(&self, number: usize, repetition: u32) -> Option<u32> {
        let (program, rank) = (self.setup.program, self.transport.rank().0);
        match self.setup.replay {
            Some(_) => self.driver(|driver| driver.recorded(rank, number)),
            None => Some(program.source(rank) * program.accumulate + repetition),
        }
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

    /// The loads of an iteration in order, with their repetitions; `None` where it shows only at the claim which
    /// micro-batches they are of.
    fn loads(&self) -> Option<Vec<(TaskId, u32)>> {
        let tasks = &self.role.tasks;
        let is_load = |task: &TaskId| matches!(tasks[*task].op, Op::Load { samples: 1.., .. });
        let (mut loads, mut task) = (Vec::new(), 0);
        while task < tasks.len() {
            match &tasks[task].op {
                Op::Repeat { claimed: true, .. } if self.driver(|driver| driver.pools().is_some()) => return None,
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
