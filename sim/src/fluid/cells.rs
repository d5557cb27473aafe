//! Keeps the state of cells: their busy classes, their next ends, and their last solutions.

use lockstep_topology::Time;

use super::schedule::Schedule;

/// Busy classes and resources of a cell whose solutions are kept.
pub(super) const CLASSES: usize = 4;
pub(super) const RESOURCES: usize = 3;
/// Solutions that a cell keeps: a kernel with and without a sum, while messages come, go, do both or neither.
const SOLUTIONS: usize = 8;

/// Speeds in a cell, and the inputs that determine them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Solution {
    pub(super) key: Key,
    pub(super) speeds: [f64; CLASSES],
    /// The index of the solution that followed it the last time.
    pub(super) then: usize,
}

/// The inputs that determine speeds in a cell: each busy class with its members, and the bits of each capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) classes: [u64; CLASSES],
    pub(super) capacities: [u64; RESOURCES],
}

/// Resources that only classes of the cell use.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub(super) resources: Vec<u32>,
    /// Classes with members, in the order in which they became busy.
    pub(super) classes: Vec<u32>,
    /// Whether classes or capacities have changed since its speeds were updated.
    pub(super) changed: bool,
    /// When its first activity is done; [`Time::MAX`] where none is.
    pub(super) due: Time,
    /// When it is in the schedule, which is not later.
    pub(super) scheduled: Time,
    /// The last solutions, the index of the present one, and that of the next.
    pub(super) known: Vec<Solution>,
    pub(super) last: usize,
    pub(super) next: usize,
}

/// All cells.
#[derive(Debug, Clone, Default)]
pub(super) struct Cells {
    pub(super) all: Vec<Cell>,
    pub(super) changed: Vec<u32>,
    /// When the first activity of each cell is done.
    pub(super) schedule: Schedule,
    /// Speeds of the cell that is being updated.
    pub(super) speeds: Vec<f64>,
    /// Its tight resources, and the classes that use them.
    pub(super) tight: Vec<u32>,
    pub(super) members: Vec<u32>,
}

impl Cells {
    /// Whether nothing has changed since the speeds of cells were updated.
    pub(super) fn is_current(&self) -> bool {
        self.changed.is_empty()
    }

    /// When the next activity in a cell is done.
    pub(super) fn next_due(&mut self) -> Option<Time> {
        while let Some((time, cell)) = self.schedule.first() {
            let of = &mut self.all[cell as usize];
            if of.due == time {
                return Some(time);
            }
            // It has become later since.
            of.scheduled = of.due;
            match of.due {
                Time::MAX => self.schedule.remove(cell),
                due => self.schedule.set(cell, due),
            }
        }
        None
    }

    /// Classes or capacities of a cell have changed.
    pub(super) fn change(&mut self, cell: u32) {
        let of = &mut self.all[cell as usize];
        if !std::mem::replace(&mut of.changed, true) {
            self.changed.push(cell);
        }
    }
}

impl Cell {
    /// Keeps a solution instead of the oldest.
    pub(super) fn keep(&mut self, solution: Solution) {
        if let Some(before) = self.known.get_mut(self.last) {
            before.then = self.next;
        }
        self.last = self.next;
        match self.known.get_mut(self.next) {
            Some(place) => *place = solution,
            None => self.known.push(solution),
        }
        self.next = (self.next + 1) % SOLUTIONS;
    }
}
