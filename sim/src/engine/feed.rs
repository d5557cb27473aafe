//! A rank's feed: when its next batch is on its device, given when the ones before were taken.

use std::collections::VecDeque;

use lockstep_topology::Time;

use super::Engine;
use crate::fluid::Fluid;
use crate::input::{Input, Stages, TransformAt};

/// What has happened to a rank's batches so far.
#[derive(Debug)]
pub(crate) struct Feed {
    stages: Stages,
    prefetch: usize,
    transform_at: TransformAt,
    /// Whether the device transforms.
    on_device: bool,
    /// Batches that the rank has asked for.
    number: u64,
    /// When the last one was produced, and copied.
    produced: Time,
    copied: Time,
    /// When the last `prefetch` ones were used up, the oldest first.
    taken: VecDeque<Time>,
}

impl Feed {
    pub(crate) fn new(stages: Stages, input: &Input) -> Feed {
        Feed {
            stages,
            prefetch: input.prefetch as usize,
            transform_at: input.transform_at,
            on_device: input.transform_at == TransformAt::Device,
            number: 0,
            produced: Time::ZERO,
            copied: Time::ZERO,
            taken: VecDeque::new(),
        }
    }

    /// When the rank, which asks for its next batch `now`, can compute on it.
    fn next(&mut self, now: Time) -> Time {
        // A batch's buffer is that of the one so many before.
        let free = match self.prefetch {
            0 => now,
            ahead if self.taken.len() == ahead => self.taken.pop_front().unwrap_or(Time::ZERO),
            _ => Time::ZERO,
        };
        let produce = self.stages.produce[usize::from(self.on_device)];
        self.number += 1;
        self.produced = self.produced.max(free) + produce;
        let copied_before = self.copied;
        self.copied = self.produced.max(copied_before) + self.stages.copy;
        let transformed = if self.on_device { self.stages.device } else { Time::ZERO };
        // The first batch finds nothing ahead of it and is late in any case.
        let late = self.number > 1 && self.copied > now && self.produced > copied_before;
        self.on_device |= late && self.transform_at == TransformAt::WhenLate;
        let end = self.copied.max(now) + transformed + self.stages.shuffle;
        self.taken.push_back(end);
        end
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// When the load that `rank` begins now is through; `None` where its next task is no load, or costs say what it takes.
    pub(super) fn fed(&mut self, rank: u32) -> Option<Time> {
        let (state, role) = (&self.ranks[rank as usize], self.role(rank));
        let task = state.compute.task(&role.compute)?;
        if !role.tasks[task as usize].loads {
            return None;
        }
        let now = self.now;
        Some(self.feeds.get_mut(rank as usize)?.as_mut()?.next(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time(millis * 1_000_000_000)
    }

    /// Milliseconds from one batch to the next in the long run, of a rank that computes for `step` on each.
    fn pace(prefetch: usize, step: u64, produce: [u64; 2], copy: u64, device: u64, transform_at: TransformAt) -> f64 {
        let stages = Stages::of_test(produce.map(ms), ms(copy), ms(device));
        let on_device = transform_at == TransformAt::Device;
        let (number, taken) = (0, VecDeque::new());
        let (produced, copied) = (Time::ZERO, Time::ZERO);
        let mut feed = Feed { stages, prefetch, transform_at, on_device, number, produced, copied, taken };
        let (mut now, mut seen) = (Time::ZERO, Vec::new());
        for _ in 0..200 {
            now = feed.next(now);
            seen.push(now);
            now += ms(step);
        }
        (seen[199].0 - seen[99].0) as f64 / 100.0 / 1e9
    }

    /// The formula above, over all kinds of stages.
    #[test]
    fn batches_come_as_fast_as_the_slowest_stage() {
        for prefetch in 0..5 {
            for (step, produce, copy) in [(10, 4, 3), (10, 14, 3), (10, 4, 13), (10, 8, 7), (1, 1, 1), (5, 0, 0)] {
                let stages = produce + copy;
                let expected = match prefetch {
                    0 => (step + stages) as f64,
                    ahead => (step as f64).max(produce as f64).max(copy as f64).max(stages as f64 / ahead as f64),
                };
                let found = pace(prefetch, step, [produce; 2], copy, 0, TransformAt::Host);
                assert!(
                    (found - expected).abs() < 0.3,
                    "{prefetch}: {step}, {produce}, {copy}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn transformations_move_to_the_device_where_threads_are_late() {
        // 14 ms with the transformation, 6 ms without: the device, which takes 2 ms for it, then bounds at 12.
        assert!((pace(2, 10, [14, 6], 1, 2, TransformAt::WhenLate) - 12.0).abs() < 0.1);
        assert!((pace(2, 10, [14, 6], 1, 2, TransformAt::Host) - 14.0).abs() < 0.1);
        // In time they stay where they are; a slow copy does not move them either.
        assert!((pace(2, 10, [9, 6], 1, 2, TransformAt::WhenLate) - 10.0).abs() < 0.1);
        assert!((pace(3, 10, [9, 6], 11, 2, TransformAt::WhenLate) - 11.0).abs() < 0.3);
    }
}
