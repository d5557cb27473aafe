//! Repairs the speeds of the few classes of a kept component that an instant's changes reach.
//!
//! Speeds are right where each class runs at its bound or uses a full resource, its bottleneck, on which no activity
//! consumes more ([the certificate](crate::fluid)). A change invalidates this for few classes: the users of the
//! resources that it touches. So these alone are filled again, after subtracting what all others take. Then the others'
//! certificates are checked on every resource that was given out. A class is reached as well if its bottleneck is no
//! longer full, if another consumes more on its bottleneck, or if it consumes more on a bottleneck that was found. All
//! reached classes are filled again. When no more are reached every certificate holds, and even use has one set of
//! speeds for which they do.

use super::resource::Fill;
use super::share::Part;
use super::system::System;
use super::work::{Component, Reached};

/// Consumptions within this share of each other are equal: they are sums of rounded terms.
const NEAR: f64 = 1e-12;

impl System {
    /// Joins classes that share what has changed to the kept component, with all that are connected with them, so that
    /// it is repaired and not searched; returns whether they may join, which they may not where levels of uneven use do
    /// not follow from filling.
    pub(super) fn absorb(&mut self) -> bool {
        let (kept_by, filled) = (self.work.kept_by, self.work.kept.filled);
        if kept_by == 0 || !filled || self.work.turns == 0 {
            return false;
        }
        let mut joining = std::mem::take(&mut self.work.joining);
        joining.clear();
        let System { classes, resources, work, .. } = self;
        let mut even = true;
        let mut meet = |class: u32, joining: &mut Vec<u32>| {
            let group = &classes.groups[class as usize];
            even &= group.even;
            let draft = &mut classes.drafts[class as usize];
            if group.seen != kept_by && !std::mem::replace(&mut draft.joins, true) {
                joining.push(class);
            }
        };
        for (number, was_tight) in &work.changed {
            let resource = &resources[*number as usize];
            if *was_tight || resource.tight {
                resource.users.iter().for_each(|user| meet(user.group, &mut joining));
            }
        }
        work.alive.iter().for_each(|class| meet(*class, &mut joining));
        let mut at = 0;
        while at < joining.len() {
            for link in &classes.links[classes.groups[joining[at] as usize].range()] {
                let resource = &resources[link.resource as usize];
                if resource.tight && resource.seen != kept_by {
                    resource.users.iter().for_each(|user| meet(user.group, &mut joining));
                }
            }
            at += 1;
        }
        for class in &joining {
            self.classes.drafts[*class as usize].joins = false;
            if even {
                self.unschedule(*class);
                self.work.kept.join(*class, kept_by, &mut self.classes, &mut self.resources);
            }
        }
        self.work.joining = joining;
        even
    }

    /// Finds the speeds of the kept component from its earlier ones, and its next completion; `false`, without changes,
    /// where the speeds do not determine their bottlenecks or a repair costs too much.
    pub(super) fn repair(&mut self, component: &mut Component) -> bool {
        let alive = &self.work.alive;
        if !component.filled || alive.iter().any(|class| !self.classes.groups[*class as usize].even) {
            return false;
        }
        let mut reached = std::mem::take(&mut self.work.reached);
        reached.groups.clear();
        reached.resources.clear();
        reached.users = 0;
        let mut news = std::mem::take(&mut self.work.joining);
        news.clear();
        for (number, was_tight) in &self.work.changed {
            let resource = &self.resources[*number as usize];
            if *was_tight || resource.tight {
                news.extend(resource.users.iter().map(|user| user.group));
            }
        }
        news.extend(&self.work.alive);
        let mut attempt = self.work.choice.attempt(component.whole());
        let mut found = true;
        while found && !news.is_empty() {
            news.drain(..).for_each(|class| self.reach(class, &mut reached));
            found = attempt.may_read(reached.groups.len(), reached.users);
            if found {
                self.refill(&mut reached);
                self.spoilt(&reached, &mut news);
            }
        }
        self.work.choice.learn(&attempt, found);
        news.clear();
        self.work.joining = news;
        for class in &reached.groups {
            self.classes.drafts[*class as usize].reached = false;
        }
        for number in &reached.resources {
            self.fills[*number as usize].asked = false;
        }
        if found {
            self.set_paces(component, &reached.groups);
        }
        self.work.reached = reached;
        found
    }

    /// Adds a class and its tight resources to what is filled again.
    fn reach(&mut self, class: u32, reached: &mut Reached) {
        let draft = &mut self.classes.drafts[class as usize];
        if std::mem::replace(&mut draft.reached, true) {
            return;
        }
        reached.groups.push(class);
        for link in &self.classes.links[self.classes.groups[class as usize].range()] {
            let number = link.resource as usize;
            if self.resources[number].tight && !std::mem::replace(&mut self.fills[number].asked, true) {
                reached.resources.push(link.resource);
                reached.users += self.resources[number].users.len() as u64;
            }
        }
    }

    /// Gives what the others leave of each resource to the classes that are reached.
    fn refill(&mut self, reached: &mut Reached) {
        let System { classes, resources, fills, work, .. } = self;
        let turn = work.share.begin(&mut classes.drafts);
        for number in &reached.resources {
            let resource = &resources[*number as usize];
            let fill = &mut fills[*number as usize];
            *fill = Fill { rest: resource.capacity, waiting: 0.0, ..*fill };
            for user in &resource.users {
                let draft = &mut classes.drafts[user.group as usize];
                let crowd = f64::from(draft.attached);
                if draft.reached {
                    fill.waiting += crowd;
                } else {
                    draft.turn = turn;
                    fill.rest -= crowd * draft.speed * draft.per_speed;
                }
            }
        }
        let mut part = Part {
            groups: &classes.groups,
            links: &classes.links,
            drafts: &mut classes.drafts,
            resources,
            fills,
            members: &reached.groups,
            tight: &mut reached.resources,
        };
        part.fill(&mut work.share);
    }

    /// Lists classes that are not reached and whose speed is not right given those that have been found.
    fn spoilt(&self, reached: &Reached, news: &mut Vec<u32>) {
        for number in &reached.resources {
            let resource = &self.resources[*number as usize];
            let (mut load, mut top, mut level) = (0.0_f64, 0.0_f64, f64::INFINITY);
            for user in &resource.users {
                let draft = &self.classes.drafts[user.group as usize];
                let takes = draft.speed * draft.per_speed;
                load += f64::from(draft.attached) * takes;
                top = top.max(takes);
                if draft.reached && draft.bottleneck == *number {
                    level = level.min(takes);
                }
            }
            let full = load >= resource.capacity * (1.0 - NEAR);
            for user in &resource.users {
                let draft = &self.classes.drafts[user.group as usize];
                let takes = draft.speed * draft.per_speed;
                let unheld = draft.bottleneck == *number && (!full || top > takes * (1.0 + NEAR));
                if !draft.reached && (unheld || takes > level * (1.0 + NEAR)) {
                    news.push(user.group);
                }
            }
        }
    }
}
