//! Implements the incremental system: an event costs as much as the component that it changes.
//!
//! Starts and ends only record which classes they touched; `update_speeds.rs` updates the shares when their result is
//! needed, so any number of events at one instant is solved once.

use lockstep_topology::{InputError, Time};

use crate::trace::Trace;

use super::classes::{Link, Member, NONE};
use super::resource::{FREE, Fill, Resource, SHARED};
use super::system::System;
use super::tap::{check, left};
use super::{ActivityId, ClassId, Finished, Fluid, ResourceId, Use};
use super::{check_capacity, check_work, normalise, picoseconds};

impl System {
    /// Removes the members of `class` that are done now; the first is done according to the schedule.
    pub(super) fn take_done(&mut self, class: u32) {
        let pace = &mut self.classes.paces[class as usize];
        let others = &mut self.classes.others[class as usize];
        pace.catch_up(self.now);
        loop {
            let member = pace.pop(others);
            self.done.push((member.number, member.token));
            self.active -= 1;
            if pace.members == 0 || picoseconds(pace.first.mark - pace.progress, pace.speed) > 0 {
                break;
            }
        }
    }

    /// Reports what has ended at the present instant, in order of start.
    fn report(&mut self, finished: &mut Vec<Finished>) {
        if self.done.len() > 1 {
            self.done.sort_unstable();
        }
        finished.extend(self.done.drain(..).map(|(_, token)| Finished { time: self.now, token }));
    }
}

impl Trace for System {}

impl Fluid for System {
    fn add_resource(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        check_capacity(capacity)?;
        self.resources.push(Resource { capacity, nominal: capacity, cell: NONE, ..Resource::default() });
        self.fills.push(Fill::default());
        self.holders.push(FREE);
        Ok(ResourceId((self.resources.len() - 1) as u32))
    }

    fn add_wire(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        let wire = self.add_resource(capacity)?;
        self.fills[wire.0 as usize].by_speed = true;
        Ok(wire)
    }

    fn set_capacity(&mut self, resource: ResourceId, capacity: f64) -> Result<(), InputError> {
        check_capacity(capacity)?;
        self.update_speeds();
        self.upcoming = None;
        let Resource { capacity: shared, nominal, tapped, .. } = &mut self.resources[resource.0 as usize];
        (*nominal, *shared) = (capacity, left(capacity, *tapped));
        self.capacities += 1;
        let cell = self.resources[resource.0 as usize].cell;
        if cell != NONE {
            self.cells.change(cell);
            return Ok(());
        }
        self.rebound(resource.0);
        if !matches!(self.holders[resource.0 as usize], FREE | SHARED) {
            // Settling handles it with the others.
            self.touch(self.holders[resource.0 as usize]);
        }
        Ok(())
    }

    fn class(&mut self, cap: f64, uses: &[Use]) -> Result<ClassId, InputError> {
        normalise(cap, uses, self.resources.len(), &mut self.uses)?;
        let cell = self.cell_of(&self.uses)?;
        let class = self.classes.intern(cap, &self.uses, &self.fills);
        self.classes.cells[class as usize] = cell;
        Ok(ClassId(class))
    }

    fn enclose(&mut self, resources: &[ResourceId]) {
        self.add_cell(resources);
    }

    fn tapping(&mut self, cap: f64, uses: &[Use], taps: &[Use]) -> Result<ClassId, InputError> {
        let mut sorted = Vec::new();
        normalise(cap, taps, self.resources.len(), &mut sorted)?;
        normalise(cap, uses, self.resources.len(), &mut self.uses)?;
        check(&self.uses, &sorted, |id| self.resources[id.0 as usize].role)?;
        let cell = self.cell_of(&self.uses)?;
        let class = ClassId(self.classes.intern(cap, &self.uses, &self.fills));
        self.classes.cells[class.0 as usize] = cell;
        if self.classes.taps[class.0 as usize].uses != sorted && self.classes.paces[class.0 as usize].members == 0 {
            self.set_taps(class, sorted);
        }
        Ok(class)
    }

    fn release(&mut self, class: ClassId) {
        self.upcoming = None;
        let group = &mut self.classes.groups[class.0 as usize];
        group.pins = group.pins.saturating_sub(1);
        if group.pins == 0 && self.classes.paces[class.0 as usize].members == 0 {
            match self.classes.cells[class.0 as usize] {
                // Settling drops it.
                NONE => self.touch(class.0),
                cell => self.left_cell(cell, class.0),
            }
        }
    }

    fn start(&mut self, class: ClassId, work: f64, token: u64) -> Result<ActivityId, InputError> {
        check_work(work)?;
        self.upcoming = None;
        self.started += 1;
        self.active += 1;
        let number = self.started;
        let group = &self.classes.groups[class.0 as usize];
        if work == 0.0 || (group.uses == 0 && group.cap == f64::INFINITY) {
            self.at_once.push((number, token));
        } else if let cell = self.classes.cells[class.0 as usize]
            && cell != NONE
        {
            self.start_in(cell, class.0, (work, number, token));
        } else {
            if self.classes.paces[class.0 as usize].members == 0 && self.is_free(class.0) {
                self.start_alone(class.0, Member { mark: work, number, token });
                return Ok(ActivityId { class: class.0, number });
            }
            let pace = &mut self.classes.paces[class.0 as usize];
            pace.catch_up(self.now);
            if pace.members == 0 {
                // Small marks are exact marks.
                pace.progress = 0.0;
            }
            let member = Member { mark: pace.progress + work, number, token };
            pace.push(member, &mut self.classes.others[class.0 as usize]);
            self.touch(class.0);
        }
        Ok(ActivityId { class: class.0, number })
    }

    fn cancel(&mut self, activity: ActivityId) -> Option<f64> {
        let ActivityId { class, number } = activity;
        self.upcoming = None;
        if let Some(at) = self.at_once.iter().position(|(other, _)| *other == number) {
            self.at_once.remove(at);
            self.active -= 1;
            return Some(0.0);
        }
        let pace = &mut self.classes.paces[class as usize];
        let mark = pace.take(number, &mut self.classes.others[class as usize])?.mark;
        pace.catch_up(self.now);
        let left = (mark - pace.progress).max(0.0);
        self.active -= 1;
        let cell = self.classes.cells[class as usize];
        if cell != NONE {
            self.left_cell(cell, class);
        } else if self.classes.groups[class as usize].alone {
            self.end_alone(class);
        } else {
            self.touch(class);
        }
        Some(left)
    }

    fn now(&self) -> Time {
        self.now
    }

    fn next_completion(&mut self) -> Option<Time> {
        if !self.at_once.is_empty() {
            return Some(self.now);
        }
        self.next_due()
    }

    fn advance(&mut self, to: Time, finished: &mut Vec<Finished>) {
        self.active -= self.at_once.len();
        self.done.append(&mut self.at_once);
        loop {
            // Completions at this instant join those with nothing to do.
            let due = self.next_due().filter(|due| *due <= to);
            if !self.done.is_empty() && due != Some(self.now) {
                self.report(finished);
            }
            let Some(due) = due else { break };
            self.now = due;
            self.upcoming = None;
            while let Some((_, first)) = self.schedule.first().filter(|(time, _)| *time == due) {
                self.schedule.remove(first);
                self.classes.groups[first as usize].leads = false;
                let mut class = first;
                while class != NONE {
                    let next = self.classes.paces[class as usize].next_due;
                    self.take_done(class);
                    self.touch(class);
                    class = next;
                }
            }
            self.complete_alone();
            self.complete_in_cells();
            self.report(finished);
            if due == to {
                // The caller may start more at this instant; one settling then serves all.
                break;
            }
        }
        self.now = self.now.max(to);
    }

    fn active(&self) -> usize {
        self.active
    }

    fn speed(&mut self, class: ClassId) -> f64 {
        self.update_speeds();
        self.classes.paces[class.0 as usize].speed
    }

    fn span_of(&mut self, class: ClassId, work: f64, crowd: u32) -> Time {
        let bound = match self.classes.cells[class.0 as usize] {
            NONE => self.bound(class.0),
            _ => self.limit(&self.classes.groups[class.0 as usize]),
        };
        let links = &self.classes.links[self.classes.groups[class.0 as usize].range()];
        let share = |link: &Link| self.resources[link.resource as usize].capacity / (f64::from(crowd) * link.per_speed);
        // One alone runs at its bound, to the bit.
        let speed = if crowd > 1 { links.iter().map(share).fold(bound, f64::min) } else { bound };
        if work > 0.0 { Time(picoseconds(work, speed)) } else { Time::ZERO }
    }

    fn load(&mut self, resource: ResourceId) -> f64 {
        self.update_speeds();
        if self.resources[resource.0 as usize].cell != NONE {
            return self.load_in_cell(resource.0);
        }
        let holder = self.holders[resource.0 as usize];
        let tapped = self.resources[resource.0 as usize].tapped;
        if !matches!(holder, FREE | SHARED) {
            return tapped + self.load_alone(holder, resource.0);
        }
        let users = &self.resources[resource.0 as usize].users;
        let shared: f64 = users
            .iter()
            .map(|user| {
                let pace = &self.classes.paces[user.group as usize];
                f64::from(pace.members) * pace.speed * self.classes.links[user.link as usize].per_speed
            })
            .sum();
        tapped + shared
    }
}
