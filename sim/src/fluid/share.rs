//! Computes the speeds of one component: progressive filling where each class uses its resources evenly, else sweeps.
//!
//! With even use (u the same on all resources of a class, as for flows) the levels come out in rising order, each from
//! the ones below, so every resource is visited a few times and every class once. With uneven use levels depend on each
//! other in cycles that only a fixed point resolves.

use super::classes::{Group, Link, NONE};
use super::draft::Draft;
use super::levels::Levels;
use super::resource::{Fill, Resource};

/// Sweeps stop when no speed changes by more than this share of itself.
const STILL: f64 = 1e-13;
/// Sweeps after which levels move only half of the way (in the logarithm), in case they oscillate.
const PATIENCE: usize = 200;
/// Sweeps after which the last levels are taken, made feasible.
const LIMIT: usize = 2_000;

/// Lists that are kept between solutions to save their allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    levels: Levels,
    /// The number of the present filling, which drafts carry that have their speed from it.
    turn: u32,
    /// The most that each user of a resource takes, and how many activities it has.
    bounds: Vec<(f64, f64)>,
    /// Classes and users that filling has visited.
    pub(super) looks: u64,
}

impl Scratch {
    /// Begins a filling, for all drafts that do not carry the number returned.
    pub(super) fn begin(&mut self, drafts: &mut [Draft]) -> u32 {
        self.turn = self.turn.wrapping_add(1);
        if self.turn == 0 {
            drafts.iter_mut().for_each(|draft| draft.turn = 0);
            self.turn = 1;
        }
        self.turn
    }
}

/// One component: its classes, its tight resources, and the tables that both index.
pub(super) struct Part<'a> {
    pub(super) groups: &'a [Group],
    pub(super) links: &'a [Link],
    /// The drafts, to which speeds are written.
    pub(super) drafts: &'a mut [Draft],
    pub(super) resources: &'a [Resource],
    pub(super) fills: &'a mut [Fill],
    pub(super) members: &'a [u32],
    pub(super) tight: &'a mut Vec<u32>,
}

impl Part<'_> {
    /// Writes each class's speed; returns whether by filling, which also writes its bottleneck. `uneven` tells whether
    /// any class of the system may be uneven.
    pub(super) fn solve(mut self, uneven: bool, scratch: &mut Scratch) -> bool {
        if let [only] = self.members {
            let group = &self.groups[*only as usize];
            let links = &self.links[group.range()];
            let crowd = f64::from(group.attached);
            let share = |link: &Link| self.resources[link.resource as usize].capacity / (crowd * link.per_speed);
            self.drafts[*only as usize].speed = links.iter().map(share).fold(group.cap, f64::min);
            return false;
        }
        let even = !uneven || self.members.iter().all(|member| self.drafts[*member as usize].even);
        if even {
            for number in self.tight.iter() {
                let Resource { capacity, crowd, .. } = self.resources[*number as usize];
                let fill = &mut self.fills[*number as usize];
                *fill = Fill { rest: capacity, waiting: crowd, ..*fill };
            }
            scratch.begin(self.drafts);
            self.fill(scratch);
        } else {
            self.sweep(scratch);
        }
        even
    }

    /// Progressive filling in the consumptions u·x, for even classes; those that carry the scratch's turn have their
    /// speed, and `fills` has what the others may use.
    ///
    /// A class's bound is checked when the level of one of its resources comes up: below it, it takes its bound first.
    pub(super) fn fill(&mut self, scratch: &mut Scratch) {
        let (levels, turn) = (&mut scratch.levels, scratch.turn);
        levels.restart(self.tight.iter().map(|number| (self.fills[*number as usize].level(), *number)));
        let mut reached = 0.0_f64;
        // Most levels are never reached: their users have speeds from others.
        let mut left = self.members.len();
        let mut looks = 2 * left;
        while left > 0
            && let Some((at, whose)) = levels.first()
        {
            let level = self.fills[whose as usize].level();
            if level > at {
                // Others got lower levels since it was recorded; it fills later, or never.
                if level < f64::INFINITY {
                    levels.raise_first(level);
                } else {
                    levels.remove_first();
                }
                continue;
            }
            let resources = self.resources;
            let Resource { users, lowest, .. } = &resources[whose as usize];
            let mut below = false;
            if *lowest < at {
                looks += users.len();
                for user in users {
                    if user.limit < at && self.drafts[user.group as usize].turn != turn {
                        self.give(user.group, self.groups[user.group as usize].bound, NONE, turn);
                        left -= 1;
                        below = true;
                    }
                }
            }
            if below {
                continue;
            }
            levels.remove_first();
            reached = reached.max(at);
            looks += users.len();
            let mut waiting = self.fills[whose as usize].waiting;
            for user in users {
                let Draft { turn: given, per_speed, attached, .. } = self.drafts[user.group as usize];
                if given != turn {
                    self.give(user.group, reached / per_speed, whose, turn);
                    left -= 1;
                    waiting -= f64::from(attached);
                    if waiting <= 0.0 {
                        break;
                    }
                }
            }
        }
        scratch.looks += looks as u64;
        let rest = if left > 0 { self.members } else { &[] };
        for member in rest {
            let draft = &mut self.drafts[*member as usize];
            if draft.turn != turn {
                (draft.speed, draft.bottleneck) = (self.groups[*member as usize].bound, NONE);
            }
        }
    }

    /// Fixes a class's speed, the level of `bottleneck` or its bound, and subtracts its use from its resources.
    #[inline(always)]
    fn give(&mut self, class: u32, speed: f64, bottleneck: u32, turn: u32) {
        let draft = &mut self.drafts[class as usize];
        (draft.speed, draft.bottleneck, draft.turn) = (speed, bottleneck, turn);
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
                    let (own, taken) = self.fills[*number as usize].weights(self.links[user.link as usize].per_speed);
                    let others = self.links[group.range()].iter().filter(|link| link.resource != *number);
                    let limits = others.map(|link| self.speed_at(link));
                    scratch.bounds.push((own * limits.fold(group.bound, f64::min), taken * f64::from(group.attached)));
                }
                let new = water_level(&scratch.bounds, resource.capacity);
                let level = &mut self.fills[*number as usize].level;
                let both = new.is_finite() && level.is_finite();
                *level = if round >= PATIENCE && both { (new * *level).sqrt() } else { new };
            }
            // The level of one resource alone depends on no other.
            if self.read_levels() <= STILL || self.tight.len() == 1 {
                return;
            }
        }
        self.make_feasible();
    }

    /// The speed that the level of a resource allows.
    #[inline]
    fn speed_at(&self, link: &Link) -> f64 {
        let fill = &self.fills[link.resource as usize];
        fill.level / fill.weights(link.per_speed).0
    }

    /// Sets the speeds that the levels allow; returns the largest relative change.
    fn read_levels(&mut self) -> f64 {
        let mut change = 0.0_f64;
        for member in self.members {
            let group = &self.groups[*member as usize];
            let links = &self.links[group.range()];
            let limits = links.iter().map(|link| self.speed_at(link));
            let speed = limits.fold(group.bound, f64::min);
            let before = std::mem::replace(&mut self.drafts[*member as usize].speed, speed);
            change = change.max((speed - before).abs() / speed);
        }
        change
    }

    /// Slows down the users of any resource that is overcommitted.
    fn make_feasible(&mut self) {
        let resources = self.resources;
        for number in self.tight.iter() {
            let resource = &resources[*number as usize];
            let take = |user: &super::resource::User| {
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

/// The level at which `bounds` (each: its highest level, and what its activities take at each unit of the level) fill
/// `capacity`; infinite if they cannot.
///
/// Newton's steps from below: the sum of min(level, bound) is concave and piecewise linear in the level, so they rise
/// to the answer in as many steps as there are pieces between, usually two or three.
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
