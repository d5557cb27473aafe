//! Finds what binds each class of a component, its cap or a full resource, and the resulting derivatives of speeds.

use super::{Resource, Share, Speeds};
use crate::fluid::LEAST_LEFT;
use crate::trace::Dual;

/// Relative difference below which levels, loads and capacities are equal.
const EQUAL: f64 = 1e-9;
/// Sweeps over resources whose levels depend on each other.
const SWEEPS: usize = 64;

impl Speeds {
    /// The capacity that taps leave of a resource, and its derivative.
    fn left(&self, resource: &Resource) -> (f64, Dual) {
        let capacity = resource.by.unwrap_or_default();
        let (mut tapped, mut by) = (0.0, capacity);
        for class in &resource.tappers {
            let class = &self.classes[*class as usize];
            let members = f64::from(class.members);
            for share in
                class.taps.iter().filter(|share| std::ptr::eq(resource, &self.resources[share.resource as usize]))
            {
                tapped += members * class.speed * share.per_speed;
                by.add(-members * class.speed, &share.by);
                by.add(-members * share.per_speed, &class.speed_by);
            }
        }
        let floor = resource.capacity * LEAST_LEFT;
        if resource.capacity - tapped < floor {
            (floor, capacity.times(LEAST_LEFT))
        } else {
            (resource.capacity - tapped, by)
        }
    }

    /// Computes the derivatives of the speeds of `members`, which share these resources with each other alone.
    pub(super) fn differentiate(&mut self, members: &[u32], shared: &[u32]) {
        let mut open: Vec<u32> = Vec::new();
        for number in members {
            let class = &mut self.classes[*number as usize];
            class.full = None;
            if class.speed >= class.cap * (1.0 - EQUAL) {
                class.speed_by = class.cap_by;
            } else {
                class.speed_by = Dual::ZERO;
                open.push(*number);
            }
        }
        if open.is_empty() {
            return;
        }
        // Full resources with their levels, the lowest first, and the classes at each level.
        let mut full: Vec<Full> = Vec::new();
        for number in shared {
            let resource = &self.resources[*number as usize];
            let (left, left_by) = self.left(resource);
            let (mut load, mut level) = (0.0, 0.0_f64);
            for user in &resource.users {
                let class = &self.classes[*user as usize];
                let Some(share) = class.share(*number) else { continue };
                load += f64::from(class.members) * share.per_speed * class.speed;
                level = level.max(share.weight(resource) * class.speed);
            }
            if load >= left * (1.0 - EQUAL) {
                full.push(Full { number: *number, level, left_by, bound: Vec::new() });
            }
        }
        full.sort_by(|a, b| a.level.total_cmp(&b.level).then(a.number.cmp(&b.number)));
        for class in open {
            let known = &self.classes[class as usize];
            let holds = |full: &&mut Full| {
                let resource = &self.resources[full.number as usize];
                let level = known.share(full.number).map(|share| share.weight(resource) * known.speed);
                level.is_some_and(|level| level >= full.level * (1.0 - EQUAL))
            };
            match full.iter_mut().find(holds) {
                Some(full) => {
                    full.bound.push(class);
                    self.classes[class as usize].full = Some(full.number);
                }
                None => self.unclear = true,
            }
        }
        full.retain(|full| !full.bound.is_empty());
        for _ in 0..SWEEPS {
            let mut change: f64 = 0.0;
            for full in &full {
                change = change.max(self.refill(full));
            }
            if full.len() == 1 || change < EQUAL {
                return;
            }
        }
        self.unclear = true;
    }

    /// Changes the speeds of the classes at the level of a full resource so that it stays full; returns the largest
    /// relative change.
    fn refill(&mut self, full: &Full) -> f64 {
        let (mut rest, mut bound) = (full.left_by, 0.0);
        let by_speed = self.resources[full.number as usize].by_speed;
        for user in &self.resources[full.number as usize].users {
            let class = &self.classes[*user as usize];
            let Some(share) = class.share(full.number) else { continue };
            let members = f64::from(class.members);
            let bound_here = class.full == Some(full.number);
            match (bound_here, by_speed) {
                (true, false) => bound += members,
                (true, true) => bound += members * share.per_speed,
                (false, _) => rest.add(-members * share.per_speed, &class.speed_by),
            }
            if by_speed || !bound_here {
                rest.add(-members * class.speed, &share.by);
            }
        }
        let level_by = rest.times(1.0 / bound);
        let mut change: f64 = 0.0;
        for class in &full.bound {
            let class = &mut self.classes[*class as usize];
            let Some(share) = class.share(full.number) else { continue };
            let by = match by_speed {
                true => level_by,
                false => level_by.plus(-class.speed, &share.by).times(1.0 / share.per_speed),
            };
            let moved = by.plus(-1.0, &class.speed_by).0.iter().fold(0.0, |most: f64, by| most.max(by.abs()));
            change = change.max(moved / class.speed);
            class.speed_by = by;
        }
        change
    }
}

impl Share {
    /// What counts of it at the level of its resource.
    fn weight(&self, resource: &Resource) -> f64 {
        if resource.by_speed { 1.0 } else { self.per_speed }
    }
}

/// A full resource, and the classes that take as much of it as any.
struct Full {
    number: u32,
    level: f64,
    left_by: Dual,
    bound: Vec<u32>,
}
