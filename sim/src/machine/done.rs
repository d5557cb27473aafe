//! `Done`: records the work that activities of each class have done: sums, and the last of it one by one if requested.

use crate::fluid::ClassId;

/// Limit on the work that is recorded one by one: 24 MB.
const LONGEST_LOG: usize = 1 << 20;

/// The work of one or several equal activities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    class: ClassId,
    work: f64,
    count: u32,
    /// The iteration of a task of the compute stream; zero for anything else.
    pub(crate) iteration: u32,
}

/// Work done, by class.
#[derive(Debug, Default)]
pub(crate) struct Done {
    sums: Vec<f64>,
    log: Option<Vec<Taken>>,
}

impl Done {
    /// Extends the sums to the first `classes` classes.
    pub(super) fn know(&mut self, classes: usize) {
        self.sums.resize(classes.max(self.sums.len()), 0.0);
    }

    /// By class.
    pub(crate) fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Records that an activity of `class` does `work`.
    pub(crate) fn take(&mut self, class: ClassId, work: f64) {
        self.note(Taken { class, work, count: 1, iteration: 0 });
    }

    /// The same of a task of the compute stream in `iteration`.
    pub(crate) fn take_in(&mut self, iteration: u32, class: ClassId, work: f64) {
        self.note(Taken { class, work, count: 1, iteration });
    }

    /// Records that `count` activities of `class` do `work` each: one is added after the other, as if they were events.
    pub(crate) fn take_often(&mut self, class: ClassId, work: f64, count: u32) {
        self.note(Taken { class, work, count, iteration: 0 });
    }

    fn note(&mut self, taken: Taken) {
        self.add(&taken);
        if let Some(log) = &mut self.log {
            if log.len() < LONGEST_LOG {
                log.push(taken);
            } else {
                self.log = None;
            }
        }
    }

    /// Adds the same once more.
    pub(crate) fn add(&mut self, &Taken { class, work, count, .. }: &Taken) {
        let sum = &mut self.sums[class.0 as usize];
        *sum = (0..count).fold(*sum, |sum, _| sum + work);
    }

    /// Records that everything done since `before` is done `times` times more.
    pub(crate) fn take_again(&mut self, before: &[f64], times: u32) {
        let before = before.iter().copied().chain(std::iter::repeat(0.0));
        self.sums.iter_mut().zip(before).for_each(|(sum, before)| *sum += (*sum - before) * f64::from(times));
    }

    /// From now on work is recorded one by one.
    pub(crate) fn begin_log(&mut self) {
        let mut log = self.log.take().unwrap_or_default();
        log.clear();
        self.log = Some(log);
    }

    /// The work done since, unless that is too much to record.
    pub(crate) fn end_log(&mut self) -> Option<Vec<Taken>> {
        self.log.take()
    }
}
