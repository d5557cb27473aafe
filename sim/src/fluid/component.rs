//! Settling: which components an instant's changes reach, and what their new speeds mean for their completions.
//!
//! Two classes belong together when they share a resource that its users could fill; one that they cannot fill even at
//! their bounds (the core of a network without oversubscription) binds nobody and joins nothing. Every class of a
//! component that falls apart uses a changed resource or hangs together with one that does, so a search from the
//! changed resources finds all the pieces, and nothing outside them changes.

use lockstep_topology::Time;

use super::classes::NONE;
use super::fast::{System, User};
use super::{picoseconds, share};

/// Demand within this share of the capacity counts as filling it: sums kept by adding and subtracting drift a little.
const MARGIN: f64 = 1e-6;

/// Lists that are kept between settlings to save their allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Work {
    /// Resources whose demand has changed, and whether they were tight before.
    changed: Vec<(u32, bool)>,
    /// Classes to search from.
    seeds: Vec<u32>,
    /// The component's classes and tight resources, in the order found.
    pub(super) groups: Vec<u32>,
    pub(super) resources: Vec<u32>,
    pub(super) share: share::Scratch,
}

impl System {
    /// Brings speeds and predictions up to date with what has changed.
    pub(super) fn settle(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        self.instant += 1;
        self.attach_touched();
        let mut changed = std::mem::take(&mut self.work.changed);
        for (number, was_tight) in changed.drain(..) {
            let resource = &mut self.resources[number as usize];
            resource.tight = resource.demand > resource.capacity * (1.0 - MARGIN);
            if was_tight || resource.tight {
                self.work.seeds.extend(resource.users.iter().map(|user| user.group));
            }
        }
        self.work.changed = changed;
        let mut seeds = std::mem::take(&mut self.work.seeds);
        for seed in seeds.drain(..) {
            if self.classes.groups[seed as usize].seen != self.instant {
                self.search(seed);
                self.solve();
                self.predict();
            }
        }
        self.work.seeds = seeds;
    }

    /// Enters the touched classes into their resources' lists, or takes them out, as they have members or not.
    fn attach_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for class in touched.drain(..) {
            let members = self.classes.members[class as usize].len() as u32;
            let group = &mut self.classes.groups[class as usize];
            group.touched = false;
            // Its members, or at least which of them is next, have changed.
            group.due = Time::MAX;
            if members == 0 {
                self.detach(class);
                self.schedule.remove(class);
                let group = &mut self.classes.groups[class as usize];
                (group.speed, group.progress) = (0.0, 0.0);
                if group.pins == 0 {
                    self.classes.forget(class);
                }
                continue;
            }
            self.work.seeds.push(class);
            match group.attached {
                0 => self.attach(class, members),
                before if before != members => self.recount(class, f64::from(members) - f64::from(before), members),
                _ => {}
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
        let before = self.classes.groups[class as usize].attached;
        if before == 0 {
            return;
        }
        self.recount(class, -f64::from(before), 0);
        for number in self.classes.groups[class as usize].range() {
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

    /// Lists the component of a class: classes joined by tight resources.
    fn search(&mut self, seed: u32) {
        let work = &mut self.work;
        work.groups.clear();
        work.resources.clear();
        work.groups.push(seed);
        self.classes.groups[seed as usize].seen = self.instant;
        let mut at = 0;
        while at < work.groups.len() {
            let range = self.classes.groups[work.groups[at] as usize].range();
            at += 1;
            for link in &self.classes.links[range] {
                let resource = &mut self.resources[link.resource as usize];
                if !resource.tight || resource.seen == self.instant {
                    continue;
                }
                resource.seen = self.instant;
                work.resources.push(link.resource);
                for user in &resource.users {
                    let group = &mut self.classes.groups[user.group as usize];
                    if group.seen != self.instant {
                        group.seen = self.instant;
                        work.groups.push(user.group);
                    }
                }
            }
        }
    }

    /// Finds the component's speeds.
    fn solve(&mut self) {
        let System { classes, resources, fills, work, .. } = self;
        let part = share::Part {
            groups: &mut classes.groups,
            links: &classes.links,
            resources,
            fills,
            members: &work.groups,
            tight: &mut work.resources,
        };
        part.solve(&mut work.share);
    }

    /// Takes over the component's new speeds and enters its next completion into the schedule.
    fn predict(&mut self) {
        let mut first = Time::MAX;
        let (mut leader, mut peers) = (NONE, NONE);
        for class in &self.work.groups {
            let group = &mut self.classes.groups[*class as usize];
            if group.speed != group.next_speed || group.due == Time::MAX {
                group.catch_up(self.now);
                group.speed = group.next_speed;
                let mark = self.classes.members[*class as usize].peek().map_or(f64::INFINITY, |member| member.mark);
                group.due = self.now + Time(picoseconds(mark - group.progress, group.speed));
            }
            // Whoever does not lead loses the entry that it may have from an earlier component.
            let loser = if group.due < first {
                (first, peers) = (group.due, NONE);
                std::mem::replace(&mut leader, *class)
            } else {
                if group.due == first {
                    group.next_due = peers;
                    peers = *class;
                }
                *class
            };
            self.schedule.remove(loser);
        }
        if leader != NONE {
            self.classes.groups[leader as usize].next_due = peers;
            self.schedule.set(leader, first);
        }
    }
}
