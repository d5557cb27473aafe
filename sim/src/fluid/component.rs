//! Settling: which components an instant's changes reach, and what their new speeds mean for their completions.
//!
//! Two classes belong together when they share a resource that its users could fill; one that they cannot fill even at
//! their bounds (the core of a network without oversubscription) binds nobody and joins nothing. Every class of a
//! component that falls apart uses a changed resource or hangs together with one that does, so a search from the
//! changed resources finds all the pieces, and nothing outside them changes.
//!
//! A large component that mostly stays together is searched once in a while and otherwise kept: solving two pieces as
//! if they were one gives the same speeds.

use lockstep_topology::Time;

use super::classes::NONE;
use super::fast::{System, User};
use super::{picoseconds, share};

/// Demand within this share of the capacity counts as filling it: sums kept by adding and subtracting drift a little.
const MARGIN: f64 = 1e-6;
/// Settlings for which a kept component is used before it is searched anew.
const TURNS: u32 = 64;

/// A component: its classes and tight resources.
#[derive(Debug, Clone, Default)]
pub(super) struct Component {
    pub(super) groups: Vec<u32>,
    pub(super) resources: Vec<u32>,
}

/// What is kept between settlings, most of it to save its allocation.
#[derive(Debug, Clone)]
pub(super) struct Work {
    /// Resources whose demand has changed, and whether they were tight before.
    changed: Vec<(u32, bool)>,
    /// Touched classes that have members.
    alive: Vec<u32>,
    seeds: Vec<u32>,
    /// The component found last.
    pub(super) found: Component,
    kept: Component,
    /// The largest component that the present settling has found, if it is to be kept.
    fresh: Component,
    /// Classes from which on a component is kept.
    pub(super) large: usize,
    /// The search that found the kept component, which its classes and resources carry; zero: none is kept.
    kept_by: u64,
    /// Whether a class of it was detached since the last settling.
    left: bool,
    turns: u32,
    share: share::Scratch,
}

impl Default for Work {
    fn default() -> Work {
        Work {
            changed: Vec::new(),
            alive: Vec::new(),
            seeds: Vec::new(),
            found: Component::default(),
            kept: Component::default(),
            fresh: Component::default(),
            large: 32,
            kept_by: 0,
            left: false,
            turns: 0,
            share: share::Scratch::default(),
        }
    }
}

impl System {
    /// Brings speeds and predictions up to date with what has changed.
    pub(super) fn settle(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        self.instant += 1;
        self.attach_touched();
        for (number, _) in &self.work.changed {
            let resource = &mut self.resources[*number as usize];
            resource.tight = resource.demand > resource.capacity * (1.0 - MARGIN);
        }
        if self.stays_in_kept() {
            let mut kept = self.refresh_kept();
            self.solve(&mut kept);
            self.work.kept = kept;
        } else {
            self.solve_found();
        }
        self.work.alive.clear();
        self.work.changed.clear();
        self.work.left = false;
    }

    /// Enters the touched classes into their resources' lists, or takes them out, as they have members or not.
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

    /// Enters a class with so many members into the lists of its resources.
    fn attach(&mut self, class: u32, members: u32) {
        let group = &mut self.classes.groups[class as usize];
        let links = &mut self.classes.links[group.range()];
        let limits = links.iter().map(|link| self.resources[link.resource as usize].capacity / link.per_speed);
        group.bound = limits.fold(group.cap, f64::min);
        for (link, number) in links.iter_mut().zip(group.first_use..) {
            let users = &mut self.resources[link.resource as usize].users;
            link.slot = users.len() as u32;
            users.push(User { group: class, link: number });
        }
        self.recount(class, f64::from(members), members);
    }

    /// Takes a class out of the lists of its resources, if it is in.
    pub(super) fn detach(&mut self, class: u32) {
        let group = &mut self.classes.groups[class as usize];
        let (before, range) = (group.attached, group.range());
        if before == 0 {
            return;
        }
        self.work.left |= group.seen == self.work.kept_by;
        group.seen = 0;
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
            }
        }
    }

    /// Notes that a class now counts `more` members, `members` in all.
    fn recount(&mut self, class: u32, more: f64, members: u32) {
        let group = &mut self.classes.groups[class as usize];
        group.attached = members;
        for link in &self.classes.links[group.range()] {
            let resource = &mut self.resources[link.resource as usize];
            resource.demand += more * link.per_speed * group.bound;
            if resource.changed != self.instant {
                resource.changed = self.instant;
                self.work.changed.push((link.resource, resource.tight));
            }
        }
    }

    /// Whether all that has changed belongs to the kept component, or joins nothing but it.
    fn stays_in_kept(&self) -> bool {
        let work = &self.work;
        let kept_by = work.kept_by;
        if kept_by == 0 || work.turns == 0 {
            return false;
        }
        // A class that was not attached before carries zero.
        let joins = |class: &u32| {
            let group = &self.classes.groups[*class as usize];
            let kept = |link: &super::classes::Link| {
                let resource = &self.resources[link.resource as usize];
                resource.tight && resource.seen == kept_by
            };
            group.seen == kept_by || (group.seen == 0 && self.classes.links[group.range()].iter().any(kept))
        };
        let inside = |(number, was_tight): &(u32, bool)| {
            let resource = &self.resources[*number as usize];
            resource.seen == kept_by
                || !(*was_tight || resource.tight)
                || match resource.users.as_slice() {
                    [] => true,
                    [only] => {
                        matches!(self.classes.groups[only.group as usize].seen, seen if seen == 0 || seen == kept_by)
                    }
                    _ => false,
                }
        };
        work.changed.iter().all(inside) && work.alive.iter().all(joins)
    }

    /// The kept component without what has left it and with what has joined.
    fn refresh_kept(&mut self) -> Component {
        let mut kept = std::mem::take(&mut self.work.kept);
        let kept_by = self.work.kept_by;
        self.work.turns -= 1;
        kept.groups.retain(|class| self.classes.groups[*class as usize].seen == kept_by);
        kept.resources.retain(|number| {
            let resource = &mut self.resources[*number as usize];
            let stays = resource.tight && resource.seen == kept_by;
            if resource.seen == kept_by && !resource.tight {
                resource.seen = 0;
            }
            stays
        });
        for class in &self.work.alive {
            let group = &mut self.classes.groups[*class as usize];
            if group.seen != kept_by {
                group.seen = kept_by;
                kept.groups.push(*class);
            }
            for link in &self.classes.links[group.range()] {
                let resource = &mut self.resources[link.resource as usize];
                if resource.tight && resource.seen != kept_by {
                    resource.seen = kept_by;
                    kept.resources.push(link.resource);
                }
            }
        }
        kept
    }

    /// Searches from what has changed and solves each component found.
    fn solve_found(&mut self) {
        let mut seeds = std::mem::take(&mut self.work.seeds);
        for (number, was_tight) in &self.work.changed {
            let resource = &mut self.resources[*number as usize];
            if !resource.tight {
                // It belongs to no component any more.
                resource.seen = 0;
            }
            if *was_tight || resource.tight {
                seeds.extend(resource.users.iter().map(|user| user.group));
            }
        }
        seeds.extend(&self.work.alive);
        let (searched, kept_by) = (self.searches, self.work.kept_by);
        let mut fresh_by = 0;
        for seed in seeds.drain(..) {
            if self.classes.groups[seed as usize].seen <= searched {
                fresh_by = self.explore(seed).unwrap_or(fresh_by);
            }
        }
        self.work.seeds = seeds;
        if kept_by != 0 && (self.work.kept_by == 0 || self.work.left || fresh_by != 0) {
            // It may have fallen apart unnoticed; then its pieces shared one entry of the schedule.
            let kept = std::mem::take(&mut self.work.kept);
            for class in &kept.groups {
                if self.classes.groups[*class as usize].seen == kept_by {
                    fresh_by = self.explore(*class).unwrap_or(fresh_by);
                }
            }
            self.work.kept = kept;
            self.work.kept_by = 0;
        }
        if fresh_by != 0 {
            std::mem::swap(&mut self.work.kept, &mut self.work.fresh);
            self.work.fresh.groups.clear();
            // In order of number they lie in order in memory.
            self.work.kept.groups.sort_unstable();
            (self.work.kept_by, self.work.turns) = (fresh_by, TURNS);
        }
    }

    /// Finds and solves the component of a class; the number of the search if it is the largest so far to be kept.
    fn explore(&mut self, seed: u32) -> Option<u64> {
        self.search(seed);
        let mut found = std::mem::take(&mut self.work.found);
        self.solve(&mut found);
        let keep = found.groups.len() >= self.work.large && found.groups.len() > self.work.fresh.groups.len();
        if keep {
            std::mem::swap(&mut found, &mut self.work.fresh);
        }
        self.work.found = found;
        keep.then_some(self.searches)
    }

    /// Lists the component of a class: classes joined by tight resources.
    fn search(&mut self, seed: u32) {
        self.searches += 1;
        let Work { found: Component { groups, resources }, kept_by, .. } = &mut self.work;
        groups.clear();
        resources.clear();
        let mut meet = |class: u32, group: &mut super::classes::Group, groups: &mut Vec<u32>| {
            if group.seen != self.searches {
                if group.seen == *kept_by {
                    // It is found anew, perhaps with more.
                    *kept_by = 0;
                }
                group.seen = self.searches;
                groups.push(class);
            }
        };
        meet(seed, &mut self.classes.groups[seed as usize], groups);
        let mut at = 0;
        while at < groups.len() {
            let range = self.classes.groups[groups[at] as usize].range();
            at += 1;
            for link in &self.classes.links[range] {
                let resource = &mut self.resources[link.resource as usize];
                if resource.tight && resource.seen != self.searches {
                    resource.seen = self.searches;
                    resources.push(link.resource);
                    for user in &resource.users {
                        meet(user.group, &mut self.classes.groups[user.group as usize], groups);
                    }
                }
            }
        }
    }

    /// Finds a component's speeds and enters its next completion into the schedule.
    fn solve(&mut self, component: &mut Component) {
        let System { classes, resources, fills, work, .. } = self;
        let part = share::Part {
            groups: &classes.groups,
            links: &classes.links,
            speeds: &mut classes.next_speeds,
            resources,
            fills,
            members: &component.groups,
            tight: &mut component.resources,
        };
        part.solve(&mut work.share);
        let mut first = Time::MAX;
        let (mut leader, mut peers) = (NONE, NONE);
        for class in &component.groups {
            let (pace, speed) = (&mut self.classes.paces[*class as usize], self.classes.next_speeds[*class as usize]);
            if pace.speed != speed || pace.due == Time::MAX {
                pace.catch_up(self.now);
                pace.speed = speed;
                pace.due = self.now + Time(picoseconds(pace.first.mark - pace.progress, speed));
            }
            if pace.due < first {
                (first, leader, peers) = (pace.due, *class, NONE);
            } else if pace.due == first {
                pace.next_due = peers;
                peers = *class;
            }
            if pace.leads {
                // Of an earlier component.
                self.unschedule(*class);
            }
        }
        if leader != NONE {
            let pace = &mut self.classes.paces[leader as usize];
            (pace.next_due, pace.leads) = (peers, true);
            self.schedule.set(leader, first);
        }
    }

    fn unschedule(&mut self, class: u32) {
        let pace = &mut self.classes.paces[class as usize];
        if std::mem::take(&mut pace.leads) {
            self.schedule.remove(class);
        }
    }
}
