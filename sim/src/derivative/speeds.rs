//! Computes the derivatives of speeds: which cap or full resource each class runs at, and how that derivative
//! changes its speed.
//!
//! Speeds are max-min fair, so each class with activities runs at its cap or has a full resource on which none takes
//! more. At the cap its speed changes as the cap does. The n classes at a resource's level λ change so that the
//! resource stays full: n·λ′ = C′ − (what the others there take)′ − …, and u·x = λ for each of them (on a wire x = λ).

mod binding;

use lockstep_topology::Time;

use super::shadow::TakesBy;
use crate::fluid::{ClassId, Fluid, System, Use};
use crate::trace::Dual;

#[derive(Debug)]
struct Resource {
    capacity: f64,
    /// Whether it is a wire, which equalises speeds.
    by_speed: bool,
    /// `None` until it is asked for.
    by: Option<Dual>,
    /// Classes with activities that share it, and that tap it.
    users: Vec<u32>,
    tappers: Vec<u32>,
    /// The last search that visited it.
    seen: u64,
}

/// A use of a resource.
#[derive(Debug, Clone, Copy)]
struct Share {
    resource: u32,
    per_speed: f64,
    by: Dual,
}

#[derive(Debug, Default, Clone)]
struct Class {
    cap: f64,
    cap_by: Dual,
    uses: Vec<Share>,
    taps: Vec<Share>,
    members: u32,
    speed: f64,
    speed_by: Dual,
    /// The resource at whose level it runs, if it is at one.
    full: Option<u32>,
    /// The derivative of its progress at a given time, at `since`.
    progress_by: Dual,
    since: Time,
    seen: u64,
}

/// All speeds.
#[derive(Debug, Default)]
pub(super) struct Speeds {
    resources: Vec<Resource>,
    classes: Vec<Class>,
    /// Classes whose members have changed, and the moment.
    touched: Vec<(u32, Dual)>,
    searches: u64,
    /// Classes and resources of the last component, kept for their allocation.
    found: (Vec<u32>, Vec<u32>),
    /// Whether some speed was at neither its cap nor a full resource.
    unclear: bool,
}

impl Speeds {
    pub(super) fn add_resource(&mut self, capacity: f64, by_speed: bool) {
        let (users, tappers) = (Vec::new(), Vec::new());
        self.resources.push(Resource { capacity, by_speed, by: None, users, tappers, seen: 0 });
    }

    pub(super) fn resources(&self) -> usize {
        self.resources.len()
    }

    pub(super) fn add_class(&mut self, class: u32, cap: f64, uses: &[Use], taps: &[Use]) {
        let at = class as usize;
        if self.classes.len() <= at {
            self.classes.resize(at + 1, Class::default());
        }
        let share = |used: &Use| Share { resource: used.resource.0, per_speed: used.per_speed, by: Dual::ZERO };
        let known = &mut self.classes[at];
        if known.members == 0 {
            let (uses, taps) = (uses.iter().map(share).collect(), taps.iter().map(share).collect());
            *known = Class { cap, uses, taps, ..Class::default() };
        }
    }

    /// Whether activities of a class are done at once.
    pub(super) fn is_free(&self, class: u32) -> bool {
        let class = &self.classes[class as usize];
        class.cap == f64::INFINITY && class.uses.is_empty()
    }

    /// Sets the derivatives of what activities of a class use, from now on.
    pub(super) fn takes(&mut self, class: u32, by: &TakesBy) {
        let class = &mut self.classes[class as usize];
        class.cap_by = by.cap;
        class.uses.iter_mut().zip(&by.uses).for_each(|(share, by)| share.by = *by);
        class.taps.iter_mut().zip(&by.taps).for_each(|(share, by)| share.by = *by);
    }

    /// An activity of `class` starts at a moment: the derivative of its mark besides its work.
    pub(super) fn start(&mut self, class: u32, at: Time, now: &Dual, capacity: &dyn Fn(usize) -> Dual) -> Dual {
        let known = &mut self.classes[class as usize];
        if known.members == 0 {
            (known.speed, known.since) = (0.0, at);
            (known.speed_by, known.progress_by) = (Dual::ZERO, Dual::ZERO);
            for share in &known.uses {
                self.resources[share.resource as usize].users.push(class);
            }
            for share in &known.taps {
                self.resources[share.resource as usize].tappers.push(class);
            }
            for share in known.uses.iter().chain(&known.taps) {
                let resource = share.resource as usize;
                self.resources[resource].by.get_or_insert_with(|| capacity(resource));
            }
        }
        known.members += 1;
        known.catch_up(at);
        self.touched.push((class, *now));
        known.progress_by.plus(known.speed, now)
    }

    /// When an activity ends whose mark has the derivative `mark`.
    pub(super) fn end(&mut self, class: u32, at: Time, mark: &Dual) -> Dual {
        let known = &mut self.classes[class as usize];
        known.catch_up(at);
        mark.plus(-1.0, &known.progress_by).times(1.0 / known.speed)
    }

    /// An activity has ended at a moment.
    pub(super) fn leave(&mut self, class: u32, end: &Dual) {
        let known = &mut self.classes[class as usize];
        known.members -= 1;
        self.touched.push((class, *end));
        if known.members == 0 {
            for share in &known.uses {
                self.resources[share.resource as usize].users.retain(|other| *other != class);
            }
            for share in &known.taps {
                self.resources[share.resource as usize].tappers.retain(|other| *other != class);
            }
        }
    }

    /// Whether the derivatives of all speeds were clear.
    pub(super) fn clear(&self) -> bool {
        !self.unclear
    }

    /// Updates speeds and their derivatives to the present state of `solver`.
    pub(super) fn follow(&mut self, solver: &mut System) {
        if self.touched.is_empty() {
            return;
        }
        let mut touched = std::mem::take(&mut self.touched);
        let mut tapped: Vec<(u32, Dual)> = Vec::new();
        self.searches += 1;
        for (class, moment) in touched.drain(..) {
            self.component(class, &moment, solver, &mut tapped);
        }
        self.touched = touched;
        // Classes that share what is tapped come second, as the tapping class is not affected.
        self.searches += 1;
        let mut none = Vec::new();
        for (resource, moment) in tapped {
            // A class that is not limited by it, and runs as before, is not affected.
            let minds = |class: &u32| {
                let known = &self.classes[*class as usize];
                known.full == Some(resource) || solver.speed(ClassId(*class)) != known.speed
            };
            if !self.resources[resource as usize].users.iter().any(minds) {
                continue;
            }
            for at in 0..self.resources[resource as usize].users.len() {
                let class = self.resources[resource as usize].users[at];
                self.component(class, &moment, solver, &mut none);
            }
        }
    }

    /// The same for all classes connected with `class`; `tapped` collects the resources that they tap.
    fn component(&mut self, class: u32, moment: &Dual, solver: &mut System, tapped: &mut Vec<(u32, Dual)>) {
        if self.classes[class as usize].seen == self.searches {
            return;
        }
        self.classes[class as usize].seen = self.searches;
        let (mut members, mut shared) = std::mem::take(&mut self.found);
        members.clear();
        shared.clear();
        members.push(class);
        let mut next = 0;
        while let Some(class) = members.get(next).copied() {
            next += 1;
            for at in 0..self.classes[class as usize].uses.len() {
                let number = self.classes[class as usize].uses[at].resource;
                let resource = &mut self.resources[number as usize];
                if std::mem::replace(&mut resource.seen, self.searches) == self.searches {
                    continue;
                }
                shared.push(number);
                for user in &resource.users {
                    let other = &mut self.classes[*user as usize];
                    if std::mem::replace(&mut other.seen, self.searches) != self.searches {
                        members.push(*user);
                    }
                }
            }
        }
        let at = solver.now();
        for class in members.iter().copied() {
            let speed = if self.classes[class as usize].members > 0 { solver.speed(ClassId(class)) } else { 0.0 };
            let known = &mut self.classes[class as usize];
            known.catch_up(at);
            known.progress_by.add(known.speed - speed, moment);
            known.speed = speed;
            tapped.extend(known.taps.iter().map(|share| (share.resource, *moment)));
        }
        members.retain(|class| self.classes[*class as usize].members > 0);
        self.differentiate(&members, &shared);
        self.found = (members, shared);
    }
}

impl Class {
    fn share(&self, resource: u32) -> Option<&Share> {
        self.uses.iter().find(|share| share.resource == resource)
    }

    /// Counts its progress up to `at`.
    fn catch_up(&mut self, at: Time) {
        let seconds = at.since(self.since).as_secs_f64();
        if seconds > 0.0 {
            let by = self.speed_by;
            self.progress_by.add(seconds, &by);
        }
        self.since = at;
    }
}
