//! Solves cells: resources that only the cell's own activities use, like a GPU's multiprocessors and memory.
//!
//! Few classes are busy in a cell, and nothing outside it depends on their speeds. So a change needs no search for the
//! component that it reaches: the cell is solved as a whole. The same few classes recur, a kernel with and without a
//! message that is summed beside it, so a cell keeps its last solutions.

use lockstep_topology::{InputError, Time};

use super::cells::{CLASSES, Cell, Cells, Key, RESOURCES, Solution};
use super::classes::{Link, Member, NONE};
use super::resource::{Resource, User};
use super::share::Part;
use super::system::System;
use super::{ResourceId, Use};

impl System {
    /// Makes a cell of resources that no class uses yet.
    pub(super) fn add_cell(&mut self, resources: &[ResourceId]) {
        let cell = self.cells.all.len() as u32;
        let resources: Vec<u32> = resources.iter().map(|id| id.0).collect();
        for number in &resources {
            self.resources[*number as usize].cell = cell;
        }
        self.cells.all.push(Cell { resources, due: Time::MAX, scheduled: Time::MAX, ..Cell::default() });
    }

    /// The cell of a class with these uses, or [`NONE`].
    ///
    /// # Errors
    /// Uses of a cell's resources beside others.
    pub(super) fn cell_of(&self, uses: &[Use]) -> Result<u32, InputError> {
        let cell = |used: &Use| self.resources[used.resource.0 as usize].cell;
        let Some(first) = uses.first() else { return Ok(NONE) };
        match uses.iter().find(|used| cell(used) != cell(first)) {
            None => Ok(cell(first)),
            Some(other) => {
                let what = format!("resources {} and {}", first.resource.0, other.resource.0);
                Err(InputError::new("", what, "are not of one cell, so no activity can use both"))
            }
        }
    }

    /// Starts an activity in a cell.
    pub(super) fn start_in(&mut self, cell: u32, class: u32, (work, number, token): (f64, u64, u64)) {
        let pace = &mut self.classes.paces[class as usize];
        let fresh = pace.members == 0;
        if fresh {
            (pace.progress, pace.last, pace.speed) = (0.0, self.now, 0.0);
        } else {
            pace.catch_up(self.now);
        }
        pace.due = Time::MAX;
        pace.push(Member { mark: pace.progress + work, number, token }, &mut self.classes.others[class as usize]);
        self.cells.change(cell);
        if fresh {
            self.cells.all[cell as usize].classes.push(class);
        }
    }

    /// Members of a class in a cell were removed.
    pub(super) fn left_cell(&mut self, cell: u32, class: u32) {
        self.cells.change(cell);
        let cell = &mut self.cells.all[cell as usize];
        let pace = &mut self.classes.paces[class as usize];
        pace.due = Time::MAX;
        if pace.members == 0 {
            pace.speed = 0.0;
            cell.classes.retain(|other| *other != class);
            if self.classes.groups[class as usize].pins == 0 {
                (cell.last, cell.next) = (0, 0);
                cell.known.clear();
                self.classes.forget(class);
            }
        }
    }

    /// Ends activities in cells that end now.
    pub(super) fn complete_in_cells(&mut self) {
        while self.cells.next_due() == Some(self.now)
            && let Some((_, cell)) = self.cells.schedule.first()
        {
            self.cells.schedule.remove(cell);
            let of = &mut self.cells.all[cell as usize];
            (of.due, of.scheduled) = (Time::MAX, Time::MAX);
            let mut at = 0;
            while let Some(class) = self.cells.all[cell as usize].classes.get(at).copied() {
                if self.classes.paces[class as usize].due == self.now {
                    self.take_done(class);
                    self.left_cell(cell, class);
                }
                at += usize::from(self.cells.all[cell as usize].classes.get(at) == Some(&class));
            }
        }
    }

    /// The use of a resource of a cell by activities and taps.
    pub(super) fn load_in_cell(&self, number: u32) -> f64 {
        let resource = &self.resources[number as usize];
        let taken = |class: &u32| {
            let pace = &self.classes.paces[*class as usize];
            let links = &self.classes.links[self.classes.groups[*class as usize].range()];
            let uses = links.iter().filter(|link| link.resource == number).map(|link| link.per_speed);
            f64::from(pace.members) * pace.speed * uses.sum::<f64>()
        };
        resource.tapped + self.cells.all[resource.cell as usize].classes.iter().map(taken).sum::<f64>()
    }

    /// Updates speeds and ends in changed cells.
    pub(super) fn update_cells(&mut self) {
        while let Some(cell) = self.cells.changed.pop() {
            self.update_cell(cell);
        }
    }

    fn update_cell(&mut self, number: u32) {
        let cell = &mut self.cells.all[number as usize];
        cell.changed = false;
        if cell.classes.is_empty() {
            cell.due = Time::MAX;
            return;
        }
        let Some(key) = self.key(number) else {
            self.solve_cell(number);
            let speeds = std::mem::take(&mut self.cells.speeds);
            self.set_speeds(number, &speeds);
            self.cells.speeds = speeds;
            return;
        };
        let Cell { known, last, .. } = &mut self.cells.all[number as usize];
        let then = known.get(*last).map_or(0, |solution| solution.then);
        let place = match known.get(then) {
            Some(solution) if solution.key == key => Some(then),
            _ => known.iter().position(|solution| solution.key == key),
        };
        let speeds = match place {
            Some(place) => {
                known[*last].then = place;
                *last = place;
                known[place].speeds
            }
            None => {
                self.solve_cell(number);
                let mut speeds = [0.0; CLASSES];
                speeds.iter_mut().zip(&self.cells.speeds).for_each(|(place, speed)| *place = *speed);
                self.cells.all[number as usize].keep(Solution { key, speeds, then: 0 });
                speeds
            }
        };
        self.set_speeds(number, &speeds);
    }

    /// Sets the speeds of a cell's classes, and enters its next end.
    fn set_speeds(&mut self, number: u32, speeds: &[f64]) {
        let cell = &mut self.cells.all[number as usize];
        let mut first = Time::MAX;
        for (class, speed) in cell.classes.iter().zip(speeds) {
            let pace = &mut self.classes.paces[*class as usize];
            if pace.speed != *speed || pace.due == Time::MAX {
                pace.set(*speed, self.now);
            }
            first = first.min(pace.due);
        }
        cell.due = first;
        // A later end is entered when the earlier one comes up.
        if first < cell.scheduled {
            cell.scheduled = first;
            self.cells.schedule.set(number, first);
        }
    }

    /// The inputs that determine the speeds in a cell, if they are few.
    fn key(&self, number: u32) -> Option<Key> {
        let Cell { resources, classes, .. } = &self.cells.all[number as usize];
        if resources.len() > RESOURCES || classes.len() > CLASSES {
            return None;
        }
        let mut key = Key { classes: [0; CLASSES], capacities: [0; RESOURCES] };
        let members = |class: u32| u64::from(class) << 32 | u64::from(self.classes.paces[class as usize].members);
        key.classes.iter_mut().zip(classes).for_each(|(place, class)| *place = members(*class));
        let capacity = |number: u32| self.resources[number as usize].capacity.to_bits();
        key.capacities.iter_mut().zip(resources).for_each(|(place, number)| *place = capacity(*number));
        Some(key)
    }

    /// Finds the speeds in a cell.
    fn solve_cell(&mut self, number: u32) {
        let System { cells, classes, resources, fills, work, .. } = self;
        let Cells { all, speeds, tight, members, .. } = cells;
        let cell = &mut all[number as usize];
        for class in &cell.classes {
            let group = &mut classes.groups[*class as usize];
            let links = &classes.links[group.range()];
            let limit = |link: &Link| resources[link.resource as usize].capacity / link.per_speed;
            group.bound = links.iter().map(limit).fold(group.cap, f64::min);
            group.attached = classes.paces[*class as usize].members;
            let crowd = f64::from(group.attached);
            for (at, link) in group.range().zip(links) {
                let Resource { users, lowest, demand, crowd: all, .. } = &mut resources[link.resource as usize];
                let limit = group.bound * link.per_speed;
                *lowest = if users.is_empty() { limit } else { lowest.min(limit) };
                users.push(User { group: *class, link: at as u32, limit });
                *demand += crowd * limit;
                *all += crowd;
            }
        }
        tight.clear();
        tight.extend(cell.resources.iter().filter(|number| resources[**number as usize].could_fill()));
        members.clear();
        for class in &cell.classes {
            classes.redraft(*class, |number| tight.contains(&number));
            let draft = &mut classes.drafts[*class as usize];
            draft.speed = classes.groups[*class as usize].bound;
            if draft.tight > 0 {
                members.push(*class);
            }
        }
        if !members.is_empty() {
            let groups = &classes.groups;
            let (links, drafts) = (&classes.links, &mut classes.drafts);
            let part = Part { groups, links, drafts, resources, fills, members, tight };
            part.solve(true, &mut work.share);
        }
        speeds.clear();
        speeds.extend(cell.classes.iter().map(|class| classes.drafts[*class as usize].speed));
        for number in &cell.resources {
            let resource = &mut resources[*number as usize];
            resource.users.clear();
            (resource.demand, resource.crowd) = (0.0, 0.0);
        }
    }
}
