//! The speeds of one component: progressive filling where each class uses its resources evenly, else sweeps.
//!
//! Even use (u the same on all resources of a class, as flows have) makes the levels come out in rising order, each
//! from the ones below, so every resource is looked at a few times and every class once. Uneven use ties levels into
//! knots that only a fixed point undoes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::classes::{Group, Link, NONE};
use super::draft::Draft;
use super::fast::{Fill, Resource};

/// In place of a speed that is still to be found.
const WAITING: f64 = -1.0;
/// Sweeps stop when no speed changes by more than this share of itself.
const STILL: f64 = 1e-13;
/// Sweeps after which levels move only half of the way (in the logarithm), should they swing.
const PATIENCE: usize = 200;
/// Sweeps after which the last levels are taken as they are, made feasible.
const LIMIT: usize = 2_000;

/// A level that may be the next to be reached: the consumption at which it is, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stop {
    at: f64,
    whose: u32,
}

impl Eq for Stop {}

impl Ord for Stop {
    /// Reversed, so that the binary heap's greatest is the lowest level.
    fn cmp(&self, other: &Stop) -> Ordering {
        other.at.total_cmp(&self.at).then(other.whose.cmp(&self.whose))
    }
}

impl PartialOrd for Stop {
    fn partial_cmp(&self, other: &Stop) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Lists that are kept between solutions to save their allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    levels: BinaryHeap<Stop>,
    /// What each user of a resource takes at most, and how many it is.
    bounds: Vec<(f64, f64)>,
}

/// One component: its classes, its tight resources, and the tables that both number into.
pub(super) struct Part<'a> {
    pub(super) groups: &'a [Group],
    pub(super) links: &'a [Link],
    /// Where each class's speed goes.
    pub(super) drafts: &'a mut [Draft],
    pub(super) resources: &'a [Resource],
    pub(super) fills: &'a mut [Fill],
    pub(super) members: &'a [u32],
    pub(super) tight: &'a mut Vec<u32>,
}

impl Part<'_> {
    /// Writes each class's speed; returns whether by filling, which also writes its neck.
    pub(super) fn solve(mut self, scratch: &mut Scratch) -> bool {
        if let [only] = self.members {
            let group = &self.groups[*only as usize];
            let links = &self.links[group.range()];
            let crowd = f64::from(group.attached);
            let share = |link: &Link| self.resources[link.resource as usize].capacity / (crowd * link.per_speed);
            self.drafts[*only as usize].speed = links.iter().map(share).fold(group.cap, f64::min);
            return false;
        }
        let even = self.prepare();
        if even {
            for number in self.tight.iter() {
                let Resource { capacity, crowd, .. } = self.resources[*number as usize];
                let fill = &mut self.fills[*number as usize];
                *fill = Fill { rest: capacity, waiting: crowd, ..*fill };
            }
            self.fill(scratch);
        } else {
            self.sweep(scratch);
        }
        even
    }

    /// Writes the speeds of even classes among which the rests of their resources are shared out.
    pub(super) fn refill(mut self, scratch: &mut Scratch) {
        self.prepare();
        self.fill(scratch);
    }

    /// Marks every class as without speed; returns whether all use is even.
    fn prepare(&mut self) -> bool {
        let mut even = true;
        for member in self.members {
            let draft = &mut self.drafts[*member as usize];
            draft.speed = WAITING;
            even &= draft.even;
        }
        even
    }

    /// Progressive filling in the consumptions u·x, for even classes.
    ///
    /// A class's bound is looked at when the level of one of its resources comes up: below it, it takes its bound first.
    fn fill(&mut self, scratch: &mut Scratch) {
        let mut start = std::mem::take(&mut scratch.levels).into_vec();
        start.clear();
        for number in self.tight.iter() {
            start.push(Stop { at: self.fills[*number as usize].level(), whose: *number });
        }
        let mut levels = BinaryHeap::from(start);
        let mut reached = 0.0_f64;
        // Most levels are never reached: their users have settled at others.
        let mut left = self.members.len();
        while left > 0
            && let Some(mut stop) = levels.peek_mut()
        {
            let level = self.fills[stop.whose as usize].level();
            if level > stop.at {
                // Others have settled below since it was noted; it fills later, or never.
                if level < f64::INFINITY {
                    stop.at = level;
                } else {
                    PeekMut::pop(stop);
                }
                continue;
            }
            let resources = self.resources;
            let Resource { users, lowest, .. } = &resources[stop.whose as usize];
            let mut below = false;
            if *lowest < stop.at {
                for user in users {
                    if user.limit < stop.at && self.drafts[user.group as usize].speed == WAITING {
                        self.give(user.group, self.groups[user.group as usize].bound, NONE);
                        left -= 1;
                        below = true;
                    }
                }
            }
            if below {
                continue;
            }
            let Stop { at, whose } = PeekMut::pop(stop);
            reached = reached.max(at);
            for user in users {
                let Draft { speed, per_speed, .. } = self.drafts[user.group as usize];
                if speed == WAITING {
                    self.give(user.group, reached / per_speed, whose);
                    left -= 1;
                }
            }
        }
        scratch.levels = levels;
        for member in self.members {
            let draft = &mut self.drafts[*member as usize];
            if draft.speed == WAITING {
                (draft.speed, draft.neck) = (self.groups[*member as usize].bound, NONE);
            }
        }
    }

    /// Fixes a class's speed, which is the level of `neck` or its bound, and takes what it uses off its resources.
    fn give(&mut self, class: u32, speed: f64, neck: u32) {
        let draft = &mut self.drafts[class as usize];
        (draft.speed, draft.neck) = (speed, neck);
        let crowd = f64::from(draft.attached);
        let take = crowd * speed * draft.per_speed;
        let fills = &mut *self.fills;
        let mut take_of = |resource: u32| {
            let fill = &mut fills[resource as usize];
            fill.rest -= take;
            fill.waiting -= crowd;
        };
        match draft.tight() {
            Some(tight) => tight.iter().for_each(|resource| take_of(*resource)),
            None => {
                let links = &self.links[self.groups[class as usize].range()];
                links.iter().for_each(|link| take_of(link.resource));
            }
        }
    }

    /// Gauss-Seidel sweeps over the levels, for any use.
    fn sweep(&mut self, scratch: &mut Scratch) {
        // The order is part of the definition, where more than one fixed point exists.
        self.tight.sort_unstable();
        for member in self.members {
            let group = &self.groups[*member as usize];
            // The first sweep has none before it to compare with.
            self.drafts[*member as usize].speed = 0.0;
            for link in &self.links[group.range()] {
                self.fills[link.resource as usize].level = f64::INFINITY;
            }
        }
        for round in 0..LIMIT {
            for number in self.tight.iter() {
                let resource = &self.resources[*number as usize];
                scratch.bounds.clear();
                for user in &resource.users {
                    let group = &self.groups[user.group as usize];
                    let own = self.links[user.link as usize].per_speed;
                    let others = self.links[group.range()].iter().filter(|link| link.resource != *number);
                    let limits = others.map(|link| self.fills[link.resource as usize].level / link.per_speed);
                    scratch.bounds.push((own * limits.fold(group.bound, f64::min), f64::from(group.attached)));
                }
                let new = water_level(&scratch.bounds, resource.capacity);
                let level = &mut self.fills[*number as usize].level;
                let both = new.is_finite() && level.is_finite();
                *level = if round >= PATIENCE && both { (new * *level).sqrt() } else { new };
            }
            if self.read_levels() <= STILL {
                return;
            }
        }
        self.make_feasible();
    }

    /// Sets the speeds that the levels allow; returns the largest relative change.
    fn read_levels(&mut self) -> f64 {
        let mut change = 0.0_f64;
        for member in self.members {
            let group = &self.groups[*member as usize];
            let links = &self.links[group.range()];
            let limits = links.iter().map(|link| self.fills[link.resource as usize].level / link.per_speed);
            let speed = limits.fold(group.bound, f64::min);
            let before = std::mem::replace(&mut self.drafts[*member as usize].speed, speed);
            change = change.max((speed - before).abs() / speed);
        }
        change
    }

    /// Slows down the users of any resource that is given out more than once over.
    fn make_feasible(&mut self) {
        let resources = self.resources;
        for number in self.tight.iter() {
            let resource = &resources[*number as usize];
            let take = |user: &super::fast::User| {
                let crowd = f64::from(self.groups[user.group as usize].attached);
                crowd * self.drafts[user.group as usize].speed * self.links[user.link as usize].per_speed
            };
            let over = resource.users.iter().map(take).sum::<f64>() / resource.capacity;
            if over > 1.0 {
                resource.users.iter().for_each(|user| self.drafts[user.group as usize].speed /= over);
            }
        }
    }
}

impl Fill {
    /// What each waiting activity gets of the rest; infinite where none waits.
    fn level(&self) -> f64 {
        if self.waiting > 0.0 { self.rest / self.waiting } else { f64::INFINITY }
    }
}

/// The level at which `bounds` (each: largest consumption, how many) fill `capacity`; infinite if they cannot.
///
/// Newton's steps from below: the sum of min(level, bound) is concave and piecewise linear in the level, so they rise
/// to the answer in as many steps as pieces lie between, usually two or three.
fn water_level(bounds: &[(f64, f64)], capacity: f64) -> f64 {
    let mut level = 0.0;
    loop {
        let (mut below, mut above) = (0.0, 0.0);
        for (bound, crowd) in bounds {
            if *bound <= level {
                below += bound * crowd;
            } else {
                above += crowd;
            }
        }
        if above == 0.0 {
            return f64::INFINITY;
        }
        let next = (capacity - below) / above;
        if next <= level {
            return level;
        }
        level = next;
    }
}
