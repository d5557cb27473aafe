//! Updates the speeds after changes: finds the resources that they touch, and which of those can now be filled.
//!
//! A class is in the lists of its resources while it has members; the demand that its members could make at their
//! bounds tells whether a resource can bind any class at all. What follows for the speeds is in `component.rs`.

use lockstep_topology::Time;

use super::resource::{FREE, Resource, SHARED, User};
use super::system::System;

impl System {
    /// Updates speeds and predictions for what has changed.
    #[inline]
    pub(super) fn update_speeds(&mut self) {
        if !(self.touched.is_empty() && self.sapped.is_empty()) {
            self.update_changed();
        }
        if !self.cells.is_current() {
            self.update_cells();
        }
    }

    fn update_changed(&mut self) {
        while !(self.touched.is_empty() && self.sapped.is_empty()) {
            if !self.touched.is_empty() {
                self.update_touched();
            }
            // Classes that share tapped resources tap nothing, so this ends after the second time.
            self.sap();
        }
    }

    fn update_touched(&mut self) {
        self.instant += 1;
        self.attach_touched();
        for (number, _) in &self.work.changed {
            let resource = &mut self.resources[*number as usize];
            resource.tight = resource.could_fill();
        }
        let System { classes, resources, work, .. } = self;
        let is_tight = |number: u32| resources[number as usize].tight;
        for (number, was_tight) in &work.changed {
            if is_tight(*number) != *was_tight {
                let users = &resources[*number as usize].users;
                users.iter().for_each(|user| classes.redraft(user.group, is_tight));
            }
        }
        work.alive.iter().for_each(|class| classes.redraft(*class, is_tight));
        let repairs = self.work.kept_by != 0 && self.work.choice.repairs();
        if self.is_confined_to_kept() || (repairs && self.absorb()) {
            let mut kept = self.refresh_kept();
            if !(repairs && self.repair(&mut kept)) {
                self.solve(&mut kept);
            }
            self.work.kept = kept;
        } else {
            self.solve_changed();
        }
        self.work.alive.clear();
        self.work.changed.clear();
        self.work.left = false;
    }

    /// Adds the touched classes to their resources' lists, or removes them, as they have members or not.
    fn attach_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for class in touched.drain(..) {
            let (group, pace) = self.classes.both(class);
            group.touched = false;
            // Its members, or at least which of them is first, have changed.
            pace.due = Time::MAX;
            if pace.members == 0 {
                pace.speed = 0.0;
                let pins = group.pins;
                self.unschedule(class);
                self.detach(class);
                self.retap(class);
                if pins == 0 {
                    self.classes.forget(class);
                }
                continue;
            }
            let (before, members) = (group.attached, pace.members);
            self.work.alive.push(class);
            if before == 0 {
                self.attach(class, members);
            } else if before != members {
                self.recount(class, f64::from(members) - f64::from(before), members);
            }
        }
        self.touched = touched;
    }

    /// Enters a class with `members` members into the lists of its resources; a class that was alone on one of them is
    /// entered too.
    pub(super) fn attach(&mut self, class: u32, members: u32) {
        let bound = self.bound(class);
        if self.classes.groups[class as usize].alone {
            self.give_up(class);
        }
        let mut joined = false;
        for number in self.classes.groups[class as usize].range() {
            let link = &mut self.classes.links[number];
            let Resource { users, lowest, .. } = &mut self.resources[link.resource as usize];
            link.slot = users.len() as u32;
            let limit = bound * link.per_speed;
            *lowest = if users.is_empty() { limit } else { lowest.min(limit) };
            users.push(User { group: class, link: number as u32, limit });
            let holder = &mut self.holders[link.resource as usize];
            if !matches!(*holder, FREE | SHARED) {
                self.joined.push(*holder);
                joined = true;
            }
            *holder = SHARED;
        }
        self.work.uneven += usize::from(!self.classes.groups[class as usize].even);
        self.recount(class, f64::from(members), members);
        while joined && let Some(other) = self.joined.pop() {
            // It may have held several of these resources.
            if self.classes.groups[other as usize].alone {
                self.work.alive.push(other);
                self.attach(other, 1);
            }
        }
    }

    /// Removes a class from the lists of its resources, if it is in.
    pub(super) fn detach(&mut self, class: u32) {
        let group = &mut self.classes.groups[class as usize];
        let (before, range) = (group.attached, group.range());
        if before == 0 {
            return;
        }
        if self.work.kept_by != 0 && group.seen == self.work.kept_by {
            self.work.left = true;
            let place = group.place as usize;
            let groups = &mut self.work.kept.groups;
            groups.swap_remove(place);
            if let Some(moved) = groups.get(place).copied() {
                self.classes.groups[moved as usize].place = place as u32;
            }
        }
        self.classes.groups[class as usize].seen = 0;
        self.work.uneven -= usize::from(!self.classes.groups[class as usize].even);
        self.recount(class, -f64::from(before), 0);
        for number in range {
            let link = self.classes.links[number];
            let resource = &mut self.resources[link.resource as usize];
            resource.users.swap_remove(link.slot as usize);
            if let Some(moved) = resource.users.get(link.slot as usize) {
                self.classes.links[moved.link as usize].slot = link.slot;
            }
            if resource.users.is_empty() {
                resource.demand = 0.0;
                self.holders[link.resource as usize] = FREE;
            }
        }
    }

    /// Records that a class now counts `more` members, `members` in all.
    fn recount(&mut self, class: u32, more: f64, members: u32) {
        let group = &mut self.classes.groups[class as usize];
        group.attached = members;
        let bound = group.bound;
        for number in group.range() {
            let link = self.classes.links[number];
            let resource = &mut self.resources[link.resource as usize];
            resource.demand += more * link.per_speed * bound;
            resource.crowd += more;
            self.note(link.resource);
        }
    }

    /// Records that the demand for a resource, or its capacity, has changed.
    #[inline]
    pub(super) fn note(&mut self, number: u32) {
        let resource = &mut self.resources[number as usize];
        if resource.changed != self.instant {
            resource.changed = self.instant;
            self.work.changed.push((number, resource.tight));
        }
    }
}
