//! `Collector`: takes rows from many threads, orders, completes and writes them, and adds them to the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::answer::SweepAnswer;
use super::file::RowsFile;
use lockstep_experiment::shard::SweepShard;
use lockstep_experiment::sweep::{Sweep, SweepFamily, SweepPlan};
use lockstep_report::SweepRow;
use lockstep_report::failure::Failure;

/// Rows that may wait for an earlier one; a thread that is farther ahead waits too.
const AHEAD: u32 = 4096;

/// The state that all threads and an interrupt share.
pub struct Collector {
    sweep: Sweep,
    plan: SweepPlan,
    shard: Option<SweepShard>,
    /// The points of the rows, ascending.
    order: Vec<u32>,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of finished rows; those before it are in the file.
    done: u32,
    /// Rows that wait for an earlier one; without a row: the same as another.
    waiting: BTreeMap<u32, Option<SweepRow>>,
    /// Rows that later ones repeat.
    repeated: BTreeMap<u32, SweepRow>,
    repeat: BTreeSet<u32>,
    /// Images/s and rank of the first row of each family.
    first: BTreeMap<SweepFamily, f64>,
    answer: SweepAnswer,
    file: Option<RowsFile>,
    /// Refused rows before the first accepted one: a sweep without any accepted point leaves no file.
    held: Vec<SweepRow>,
    stopped: Option<Failure>,
    /// Whether later rows are left out.
    closed: bool,
}

impl Collector {
    /// A collector of the rows of `plan`.
    pub fn new(sweep: Sweep, plan: SweepPlan) -> Collector {
        Collector::of(sweep, plan, None)
    }

    /// A collector of the rows of a shard: of points that are predicted, without columns that depend on rows of
    /// other shards.
    pub fn of(sweep: Sweep, plan: SweepPlan, shard: Option<SweepShard>) -> Collector {
        let repeat = plan.same_as.values().copied().collect();
        let order = shard.map_or_else(|| (0..plan.points.len() as u32).collect(), |shard| points_of(shard, &plan));
        let state = Mutex::new(State { repeat, ..State::default() });
        Collector { sweep, plan, shard, order, state, moved: Condvar::new() }
    }

    /// Keeps every row from now on, refused ones too, for a page that shows them all.
    pub fn keep_rows(&self) {
        self.lock().answer.kept = Some(Vec::new());
    }

    /// The sweep.
    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// Its points.
    pub fn plan(&self) -> &SweepPlan {
        &self.plan
    }

    /// The shard, if it is one.
    pub fn shard(&self) -> Option<SweepShard> {
        self.shard
    }

    /// The points whose rows are collected, in the order of their rows.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a row that the file already holds.
    pub fn known(&self, row: SweepRow) {
        let mut state = self.lock();
        state.finish(&self.sweep, &self.plan, &row);
        state.done += 1;
    }

    /// From now on rows are written to `file`.
    pub fn write_to(&self, file: RowsFile) {
        self.lock().file = Some(file);
    }

    /// The number of finished rows, all of which come before the others.
    pub fn done(&self) -> u32 {
        self.lock().done
    }

    /// Waits until row `row` is close enough to the finished ones; false if the sweep has stopped.
    pub(super) fn may_start(&self, row: u32) -> bool {
        let mut state = self.lock();
        while state.stopped.is_none() && row >= state.done.saturating_add(AHEAD) {
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.stopped.is_none()
    }

    /// Takes the row at `place` in the order; `None`: the row of the equal point has its figures.
    pub(super) fn put(&self, place: u32, row: Option<SweepRow>, label: impl Fn(u32, u32) -> SweepRow) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.waiting.insert(place, row);
        loop {
            let next = state.done;
            let Some(row) = state.waiting.remove(&next) else { break };
            let row = row.unwrap_or_else(|| {
                let point = self.order[next as usize];
                let earlier = &state.repeated[&self.plan.same_as[&point]];
                label(point, earlier.setting.ranks).with_figures_of(earlier)
            });
            let row = if self.shard.is_some() { row } else { state.complete(&self.sweep, &self.plan, row) };
            // A shard does not know whether the sweep has a point that can be predicted.
            if let Err(failure) = state.write(&row, self.shard.is_none()) {
                state.stopped.get_or_insert(failure);
                break;
            }
            state.finish(&self.sweep, &self.plan, &row);
            state.done += 1;
        }
        drop(state);
        self.moved.notify_all();
    }

    /// Leaves out all later rows, because the result so far is being reported.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    /// Ends the sweep.
    pub(super) fn stop(&self, failure: Failure) {
        self.lock().stopped.get_or_insert(failure);
        self.moved.notify_all();
    }

    /// The error that ended the sweep early, if one did; else flushes everything to the disk.
    pub(super) fn end(&self) -> Result<(), Failure> {
        let mut state = self.lock();
        match state.stopped.take() {
            Some(failure) => Err(failure),
            None => Ok(state.file.as_ref().map_or(Ok(()), RowsFile::sync)?),
        }
    }

    /// The answer so far, and the file with the number of rows written to it; nothing is added while `use_it` runs.
    pub fn with<T>(&self, use_it: impl FnOnce(&SweepAnswer, Option<(&RowsFile, u32)>) -> T) -> T {
        let state = self.lock();
        let written = state.done - state.held.len() as u32;
        use_it(&state.answer, state.file.as_ref().map(|file| (file, written)))
    }
}

/// The points of a shard: only predicted points are assigned, since the others only repeat their figures.
pub(super) fn points_of(shard: SweepShard, plan: &SweepPlan) -> Vec<u32> {
    let predicted: Vec<u32> = (0..plan.points.len() as u32).filter(|point| !plan.same_as.contains_key(point)).collect();
    shard.rows(predicted.len() as u32).map(|row| predicted[row as usize]).collect()
}

impl State {
    /// The row with its efficiency.
    fn complete(&self, sweep: &Sweep, plan: &SweepPlan, row: SweepRow) -> SweepRow {
        let (point, ranks) = (&plan.points[row.point as usize], row.setting.ranks);
        let Some(each) = row.images_per_s.map(|images| images / f64::from(ranks)) else { return row };
        let first = [1, 2].iter().find_map(|size| self.first.get(&sweep.family(point, *size)));
        let efficiency = match first {
            Some(first) => Some(each / first),
            None => sweep.compares(point, ranks).then_some(1.0),
        };
        SweepRow { scaling_efficiency: efficiency.filter(|efficiency| efficiency.is_finite()), ..row }
    }

    fn write(&mut self, row: &SweepRow, holds: bool) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if holds && row.step_time_s.is_none() && self.answer.none_predicted() {
            self.held.push(row.clone());
            return Ok(());
        }
        for row in self.held.drain(..) {
            file.add(&row)?;
        }
        Ok(file.add(row)?)
    }

    /// Records what later rows and the answer need of a row.
    fn finish(&mut self, sweep: &Sweep, plan: &SweepPlan, row: &SweepRow) {
        let (index, ranks) = (row.point as u32, row.setting.ranks);
        if let Some(images_per_s) = row.images_per_s {
            let family = sweep.family(&plan.points[index as usize], ranks);
            self.first.entry(family).or_insert(images_per_s / f64::from(ranks));
        }
        if self.repeat.contains(&index) {
            self.repeated.insert(index, row.clone());
        }
        self.answer.add(sweep, plan, row);
    }
}
