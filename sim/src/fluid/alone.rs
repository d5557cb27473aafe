//! Handles activities that have all their resources to themselves: they run at their class's bound, without solving.
//!
//! Most transfers and nearly all kernels never contend. Such an activity only marks what it holds and schedules its
//! end; when another joins it on a resource it enters the lists, with its progress, and is solved like all others. Its
//! speed and its end are those that the solver would find, to the bit.

use lockstep_topology::Time;

use super::classes::{Group, Member};
use super::resource::FREE;
use super::system::System;

impl System {
    /// Whether a class without members could have all its resources to itself.
    pub(super) fn is_free(&self, class: u32) -> bool {
        let group = &self.classes.groups[class as usize];
        let links = &self.classes.links[group.range()];
        !group.touched && links.iter().all(|link| self.holders[link.resource as usize] == FREE)
    }

    /// The largest speed that a class's cap and capacities allow.
    pub(super) fn bound(&mut self, class: u32) -> f64 {
        let group = &mut self.classes.groups[class as usize];
        if group.bound_as_of != self.capacities || group.sapped {
            group.bound_as_of = self.capacities;
            let links = &self.classes.links[group.range()];
            group.sapped = links.iter().any(|link| self.resources[link.resource as usize].role.tapped);
            let limit = self.limit(&self.classes.groups[class as usize]);
            self.classes.groups[class as usize].bound = limit;
        }
        self.classes.groups[class as usize].bound
    }

    /// The same for the present cap and capacities.
    pub(super) fn limit(&self, group: &Group) -> f64 {
        let links = &self.classes.links[group.range()];
        let limits = links.iter().map(|link| self.resources[link.resource as usize].capacity / link.per_speed);
        limits.fold(group.cap, f64::min)
    }

    /// Starts the one activity of a class that is free.
    pub(super) fn start_alone(&mut self, class: u32, member: Member) {
        let bound = self.bound(class);
        let (group, pace) = self.classes.both(class);
        group.alone = true;
        pace.restart(member, bound, self.now);
        if pace.due < Time::MAX {
            self.alone.push(pace.due, class);
        }
        self.hold(class, class);
        self.retap(class);
    }

    /// A class is no longer alone: it has ended, or is about to enter the lists.
    pub(super) fn give_up(&mut self, class: u32) {
        self.classes.groups[class as usize].alone = false;
        self.hold(class, FREE);
    }

    /// The one activity of a class that was alone was removed.
    pub(super) fn end_alone(&mut self, class: u32) {
        self.give_up(class);
        let (group, pace) = self.classes.both(class);
        pace.speed = 0.0;
        let pins = group.pins;
        self.retap(class);
        if pins == 0 {
            // Settling drops it.
            self.touch(class);
        }
    }

    /// Settles the shares; returns when the next activity ends.
    pub(super) fn next_due(&mut self) -> Option<Time> {
        if let Some(known) = self.upcoming {
            return known;
        }
        self.update_speeds();
        self.alone_due = self.next_alone();
        let shared = self.schedule.first().map(|(time, _)| time);
        let next = shared.into_iter().chain(self.alone_due).chain(self.cells.next_due()).min();
        self.upcoming = Some(next);
        next
    }

    /// Ends activities that are alone and end now.
    pub(super) fn complete_alone(&mut self) {
        while self.alone_due == Some(self.now) {
            let Some((_, class)) = self.alone.pop() else { break };
            let Member { number, token, .. } = self.classes.paces[class as usize].first;
            self.classes.paces[class as usize].members = 0;
            self.done.push((number, token));
            self.active -= 1;
            self.end_alone(class);
            self.alone_due = self.next_alone();
        }
    }

    /// The use of a resource by the activity that is alone on it.
    pub(super) fn load_alone(&self, class: u32, resource: u32) -> f64 {
        let links = &self.classes.links[self.classes.groups[class as usize].range()];
        let uses = links.iter().filter(|link| link.resource == resource).map(|link| link.per_speed);
        self.classes.paces[class as usize].speed * uses.sum::<f64>()
    }

    fn hold(&mut self, class: u32, holder: u32) {
        for link in &self.classes.links[self.classes.groups[class as usize].range()] {
            self.holders[link.resource as usize] = holder;
        }
    }

    /// The first end of those that are alone.
    fn next_alone(&mut self) -> Option<Time> {
        // An entry counts while its class is still alone and ends then; others became stale when another class joined.
        let counts = |class: u32, time: Time| {
            self.classes.groups[class as usize].alone && self.classes.paces[class as usize].due == time
        };
        while let Some((time, class)) = self.alone.peek() {
            if counts(class, time) {
                return Some(time);
            }
            if time <= self.now {
                self.alone.pop();
            } else {
                self.alone.purge(|time, class| counts(*class, time));
            }
        }
        None
    }
}
