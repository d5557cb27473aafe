//! Finds the components that an instant's changes reach, and the new completions that follow from their speeds.
//!
//! Two classes belong to one component when they share a resource that its users could fill; one that they cannot fill
//! even at their bounds (the core of a network without oversubscription) binds no transfer and connects nothing. Every
//! class of a component that falls apart uses a changed resource or is connected with one that does, so a search from
//! the changed resources finds all the pieces, and nothing outside them changes.
//!
//! A large component that mostly stays together is searched once in a while and otherwise kept: solving two pieces as
//! if they were one gives the same speeds.

use super::classes::{Group, Link, NONE};
use super::share;
use super::system::System;
use super::work::{Component, Work};

impl System {
    /// Whether all changes are in the kept component, or connect to nothing else.
    pub(super) fn is_confined_to_kept(&self) -> bool {
        let work = &self.work;
        let kept_by = work.kept_by;
        if kept_by == 0 || work.turns == 0 {
            return false;
        }
        // A class that was not attached before carries zero.
        let joins = |class: &u32| {
            let group = &self.classes.groups[*class as usize];
            let kept = |link: &Link| {
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

    /// The kept component without classes that have left it and with those that have joined.
    pub(super) fn refresh_kept(&mut self) -> Component {
        let mut kept = std::mem::take(&mut self.work.kept);
        let kept_by = self.work.kept_by;
        self.work.turns -= 1;
        let slack = |(number, was_tight): &(u32, bool)| *was_tight && !self.resources[*number as usize].tight;
        if self.work.changed.iter().any(slack) {
            kept.resources.retain(|number| {
                let resource = &mut self.resources[*number as usize];
                let stays = resource.tight && resource.seen == kept_by;
                if resource.seen == kept_by && !resource.tight {
                    resource.seen = 0;
                }
                stays
            });
        }
        for class in &self.work.alive {
            kept.join(*class, kept_by, &mut self.classes, &mut self.resources);
        }
        kept
    }

    /// Searches from the changes and solves each component found.
    pub(super) fn solve_changed(&mut self) {
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
            if self.classes.groups[seed as usize].seen > searched {
                continue;
            }
            if self.classes.drafts[seed as usize].tight == 0 {
                self.run_apart(seed);
            } else {
                fresh_by = self.explore(seed).unwrap_or(fresh_by);
            }
        }
        self.work.seeds = seeds;
        if kept_by != 0 && (self.work.kept_by == 0 || self.work.left || fresh_by != 0) {
            // It may have fallen apart without notice; then its pieces shared one entry of the schedule.
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
            // In order of number they are in order in memory.
            self.work.kept.groups.sort_unstable();
            for (place, class) in (0..).zip(&self.work.kept.groups) {
                self.classes.groups[*class as usize].place = place;
            }
            (self.work.kept_by, self.work.turns) = (fresh_by, self.work.keeping.stretch);
        }
    }

    /// A class none of whose resources could be filled is a component by itself, and runs at its bound.
    fn run_apart(&mut self, class: u32) {
        self.searches += 1;
        let group = &mut self.classes.groups[class as usize];
        if group.seen == self.work.kept_by {
            self.work.kept_by = 0;
        }
        group.seen = self.searches;
        self.classes.drafts[class as usize].speed = group.bound;
        self.lead_alone(class);
    }

    /// Finds and solves the component of a class; returns the number of the search if it is the largest so
    /// far to be kept.
    fn explore(&mut self, seed: u32) -> Option<u64> {
        self.search(seed);
        let mut found = std::mem::take(&mut self.work.found);
        for class in &found.groups {
            // Of an earlier component.
            self.unschedule(*class);
        }
        found.leader = NONE;
        self.solve(&mut found);
        let keep = found.groups.len() >= self.work.keeping.large && found.groups.len() > self.work.fresh.groups.len();
        if keep {
            std::mem::swap(&mut found, &mut self.work.fresh);
        }
        self.work.found = found;
        keep.then_some(self.searches)
    }

    /// Lists the component of a class: classes connected by tight resources.
    fn search(&mut self, seed: u32) {
        self.searches += 1;
        let Work { found: Component { groups, resources, .. }, kept_by, .. } = &mut self.work;
        groups.clear();
        resources.clear();
        let mut meet = |class: u32, group: &mut Group, groups: &mut Vec<u32>| {
            if group.seen != self.searches {
                if group.seen == *kept_by {
                    // It is found again, perhaps with more.
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
    pub(super) fn solve(&mut self, component: &mut Component) {
        let System { classes, resources, fills, work, .. } = self;
        let part = share::Part {
            groups: &classes.groups,
            links: &classes.links,
            drafts: &mut classes.drafts,
            resources,
            fills,
            members: &component.groups,
            tight: &mut component.resources,
        };
        work.share.looks = 0;
        component.filled = part.solve(work.uneven > 0, &mut work.share);
        component.solved = component.groups.len().max(1) as u64;
        component.cost = work.share.looks + component.solved;
        self.set_all_paces(component);
    }

    pub(super) fn unschedule(&mut self, class: u32) {
        if std::mem::take(&mut self.classes.groups[class as usize].leads) {
            self.schedule.remove(class);
        }
    }
}
