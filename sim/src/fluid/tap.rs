//! Models taps: uses of a resource with priority over those that share it, as transfers use memory bandwidth.
//!
//! A tap never binds its own activity: a link is much slower than the memory at its end, so a fair share of the memory
//! is more than what a transfer needs, and max-min sharing gives each transfer all of that. Fixing it beforehand gives
//! the same sharing with two small systems instead of a large one of all devices that have traffic. What is left has a
//! floor, [`LEAST_LEFT`], so that an unbalanced platform slows others down and does not stop them.

use super::classes::{Link, NONE, Taps};
use super::resource::{FREE, Resource, Role, SHARED, User};
use super::system::System;
use super::{ClassId, ResourceId, Use};
use lockstep_topology::InputError;

/// Share of a resource that taps always leave.
pub(crate) const LEAST_LEFT: f64 = 1.0 / 16.0;

/// The capacity that taps leave.
pub(super) fn left(nominal: f64, tapped: f64) -> f64 {
    (nominal - tapped).max(nominal * LEAST_LEFT)
}

/// Refuses a class by which a resource would be both tapped and shared by classes that tap: sharing could not be solved
/// in two steps.
pub(super) fn check(uses: &[Use], taps: &[Use], role: impl Fn(ResourceId) -> Role) -> Result<(), InputError> {
    let refused = |id: ResourceId, what: &str| {
        Err(InputError::new("", format!("resource {}", id.0), format!("is {what}, which cannot go together")))
    };
    for used in uses.iter().filter(|_| !taps.is_empty()) {
        if role(used.resource).tapped || taps.iter().any(|tap| tap.resource == used.resource) {
            return refused(used.resource, "tapped, and shared by activities that tap");
        }
    }
    match taps.iter().find(|tap| role(tap.resource).shared) {
        Some(tap) => refused(tap.resource, "shared by activities that tap, and tapped"),
        None => Ok(()),
    }
}

impl System {
    /// Enters the taps of a class that has no members.
    pub(super) fn set_taps(&mut self, class: ClassId, taps: Vec<Use>) {
        for tap in &taps {
            self.resources[tap.resource.0 as usize].role.tapped = true;
        }
        for link in
            self.classes.links[self.classes.groups[class.0 as usize].range()].iter().filter(|_| !taps.is_empty())
        {
            self.resources[link.resource as usize].role.shared = true;
        }
        // Bounds are recomputed, and find which classes share what is tapped.
        self.capacities += 1;
        self.classes.groups[class.0 as usize].taps = !taps.is_empty();
        self.classes.taps[class.0 as usize] = Taps { uses: taps, rate: 0.0 };
    }

    /// Recounts the taps of a class, after its members or their speed have changed.
    pub(super) fn retap(&mut self, class: u32) {
        if !self.classes.groups[class as usize].taps {
            return;
        }
        let pace = &self.classes.paces[class as usize];
        let rate = f64::from(pace.members) * pace.speed;
        let taps = &mut self.classes.taps[class as usize];
        let before = std::mem::replace(&mut taps.rate, rate);
        if rate == before {
            return;
        }
        for tap in &taps.uses {
            let resource = &mut self.resources[tap.resource.0 as usize];
            resource.tapped += (rate - before) * tap.per_speed;
            match (before > 0.0, rate > 0.0) {
                (false, true) => resource.tapping += 1,
                (true, false) => resource.tapping -= 1,
                _ => {}
            }
            if resource.tapping == 0 {
                // Sums kept by adding and subtracting drift a little.
                resource.tapped = 0.0;
            }
            if resource.cell != NONE {
                resource.capacity = left(resource.nominal, resource.tapped);
                self.cells.change(resource.cell);
            } else if !std::mem::replace(&mut resource.sapped, true) {
                self.sapped.push(tap.resource.0);
            }
        }
    }

    /// Updates the capacity left for classes that share tapped resources; they are touched if that changes
    /// their speeds.
    pub(super) fn sap(&mut self) {
        let mut sapped = std::mem::take(&mut self.sapped);
        let mut unmoved = false;
        for number in sapped.drain(..) {
            let resource = &mut self.resources[number as usize];
            resource.sapped = false;
            resource.capacity = left(resource.nominal, resource.tapped);
            let holder = self.holders[number as usize];
            match holder {
                FREE => {}
                SHARED if self.are_unmoved(number) => unmoved = true,
                SHARED => self.rebound(number),
                alone => {
                    if self.bound(alone) != self.classes.paces[alone as usize].speed {
                        // Settling handles it with the others.
                        self.touch(alone);
                    }
                }
            }
        }
        self.sapped = sapped;
        if unmoved && self.touched.is_empty() && self.work.kept_by != 0 {
            // Pauses also count settlings without solving.
            self.work.choice.repairs();
        }
    }

    /// Whether the users of a tapped resource run as before: it binds none of them, and could not be filled before.
    fn are_unmoved(&mut self, number: u32) -> bool {
        let resource = &self.resources[number as usize];
        let bound = |user: &User| {
            let group = &self.classes.groups[user.group as usize];
            self.limit(group) == group.bound
        };
        if resource.tight || resource.could_fill() || !resource.users.iter().all(bound) {
            return false;
        }
        // Progress is counted up to each change, so that it is rounded as if they were solved again.
        let System { resources, classes, now, .. } = self;
        resources[number as usize].users.iter().all(|user| classes.paces[user.group as usize].keeps_due(*now))
    }

    /// The capacity of a resource has changed: updates the speeds of its users, with the present bounds.
    pub(super) fn rebound(&mut self, resource: u32) {
        // Changes from here on are recorded for the next settling.
        self.instant += 1;
        self.note(resource);
        for at in 0..self.resources[resource as usize].users.len() {
            let class = self.resources[resource as usize].users[at].group;
            self.rebind(class);
            self.touch(class);
        }
    }

    /// Updates the bound of a class that is in lists.
    fn rebind(&mut self, class: u32) {
        let group = &self.classes.groups[class as usize];
        let (before, bound, crowd) = (group.bound, self.limit(group), f64::from(group.attached));
        if bound == before {
            return;
        }
        for number in group.range() {
            let Link { resource, slot, per_speed } = self.classes.links[number];
            let Resource { users, lowest, demand, .. } = &mut self.resources[resource as usize];
            let limit = bound * per_speed;
            users[slot as usize].limit = limit;
            if users.len() == 1 {
                (*lowest, *demand) = (limit, crowd * per_speed * bound);
            } else {
                *lowest = lowest.min(limit);
                *demand -= crowd * per_speed * before;
                *demand += crowd * per_speed * bound;
            }
            self.note(resource);
        }
        self.classes.groups[class as usize].bound = bound;
    }
}
