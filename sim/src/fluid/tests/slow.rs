//! `SlowSystem`: recomputes everything from the definition at each change, activity by activity.
//!
//! It has no groups, no components and no marks, only the levels that the module's definition names; the fast system is
//! tested against it.

use lockstep_topology::{InputError, Time};

use crate::fluid::resource::Role;
use crate::fluid::tap::{check, left};
use crate::fluid::{ActivityId, ClassId, Finished, Fluid, ResourceId, Use};
use crate::fluid::{check_capacity, check_work, normalise, picoseconds, work_between};

/// Sweeps over the levels stop when no speed changes by more than this share of itself.
const STILL: f64 = 1e-13;
/// Sweeps after which it gives up; a system without a reachable fixed point has none to test the fast system against.
const LIMIT: usize = 2_000;

#[derive(Debug, Clone)]
struct Activity {
    class: u32,
    number: u64,
    token: u64,
    left: f64,
    speed: f64,
    due: Time,
}

/// The fluid system by definition; every change costs at least activities × resources.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlowSystem {
    now: Time,
    capacities: Vec<f64>,
    /// Which resources are wires.
    wires: Vec<bool>,
    classes: Vec<(f64, Vec<Use>)>,
    /// Of each class.
    taps: Vec<Vec<Use>>,
    activities: Vec<Activity>,
    started: u64,
    stale: bool,
}

impl SlowSystem {
    /// An empty system at time zero.
    pub(crate) fn new() -> SlowSystem {
        SlowSystem::default()
    }

    fn solve(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        // Resources of tapping classes are shared as if nothing was tapped; the others get what is left.
        let nominal = self.capacities.clone();
        self.share();
        let tapped: Vec<f64> = (0..nominal.len()).map(|resource| self.tapped(resource)).collect();
        if tapped.iter().any(|tapped| *tapped > 0.0) {
            self.capacities = nominal.iter().zip(tapped).map(|(capacity, tapped)| left(*capacity, tapped)).collect();
            self.share();
            self.capacities = nominal;
        }
        for activity in &mut self.activities {
            let span = if activity.left == 0.0 { 0 } else { picoseconds(activity.left, activity.speed) };
            activity.due = self.now + Time(span);
        }
    }

    /// The use of a resource by taps.
    fn tapped(&self, resource: usize) -> f64 {
        let of = |activity: &Activity| {
            let taps = self.taps[activity.class as usize].iter().filter(|tap| tap.resource.0 as usize == resource);
            taps.map(|tap| tap.per_speed * activity.speed).sum::<f64>()
        };
        self.activities.iter().map(of).sum()
    }

    /// Speeds from the definition.
    fn share(&mut self) {
        // The first sweep has none before it to compare with.
        self.activities.iter_mut().for_each(|activity| activity.speed = 0.0);
        let mut levels = vec![f64::INFINITY; self.capacities.len()];
        for _ in 0..LIMIT {
            for resource in 0..levels.len() {
                let bounds = self.activities.iter().filter_map(|activity| self.bound(activity, resource, &levels));
                levels[resource] = water_level(bounds.collect(), self.capacities[resource]);
            }
            let mut change = 0.0_f64;
            for at in 0..self.activities.len() {
                let (cap, uses) = &self.classes[self.activities[at].class as usize];
                let limits = uses.iter().map(|used| levels[used.resource.0 as usize] / self.weight(used));
                let speed = limits.fold(*cap, f64::min);
                let activity = &mut self.activities[at];
                if speed != activity.speed {
                    change = change.max((speed - activity.speed).abs() / speed);
                    activity.speed = speed;
                }
            }
            if change <= STILL {
                break;
            }
        }
    }

    /// What counts of a use at the level of its resource: on wires the speed.
    fn weight(&self, used: &Use) -> f64 {
        if self.wires[used.resource.0 as usize] { 1.0 } else { used.per_speed }
    }

    /// The level of a resource at which only its cap and the other resources limit an activity, and what that takes at
    /// each unit of the level; `None` if it does not use it.
    fn bound(&self, activity: &Activity, resource: usize, levels: &[f64]) -> Option<(f64, f64)> {
        let (cap, uses) = &self.classes[activity.class as usize];
        let here = uses.iter().find(|used| used.resource.0 as usize == resource)?;
        let others = uses.iter().filter(|used| used.resource.0 as usize != resource);
        let limits = others.map(|used| levels[used.resource.0 as usize] / self.weight(used));
        let weight = self.weight(here);
        Some((weight * limits.fold(*cap, f64::min), here.per_speed / weight))
    }

    /// Moves the clock, with everything progressing at its present speed.
    fn progress(&mut self, to: Time) {
        for activity in &mut self.activities {
            activity.left = (activity.left - work_between(activity.speed.min(f64::MAX), self.now, to)).max(0.0);
        }
        self.now = to;
    }
}

/// The level at which `bounds` fill `capacity`, from the smallest up; infinite if they cannot.
fn water_level(mut bounds: Vec<(f64, f64)>, capacity: f64) -> f64 {
    bounds.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut rest = capacity;
    for (at, (bound, taken)) in bounds.iter().enumerate() {
        let waiting: f64 = bounds[at..].iter().map(|(_, taken)| taken).sum();
        if bound * waiting >= rest {
            return rest / waiting;
        }
        rest -= bound * taken;
    }
    f64::INFINITY
}

impl crate::trace::Trace for SlowSystem {}

impl Fluid for SlowSystem {
    fn add_resource(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        check_capacity(capacity)?;
        self.capacities.push(capacity);
        self.wires.push(false);
        Ok(ResourceId((self.capacities.len() - 1) as u32))
    }

    fn add_wire(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        let wire = self.add_resource(capacity)?;
        self.wires[wire.0 as usize] = true;
        Ok(wire)
    }

    fn set_capacity(&mut self, resource: ResourceId, capacity: f64) -> Result<(), InputError> {
        check_capacity(capacity)?;
        self.capacities[resource.0 as usize] = capacity;
        self.stale = true;
        Ok(())
    }

    fn class(&mut self, cap: f64, uses: &[Use]) -> Result<ClassId, InputError> {
        let mut sorted = Vec::new();
        normalise(cap, uses, self.capacities.len(), &mut sorted)?;
        let known = self.classes.iter().position(|class| class.0 == cap && class.1 == sorted);
        Ok(ClassId(known.unwrap_or_else(|| {
            self.classes.push((cap, sorted));
            self.taps.push(Vec::new());
            self.classes.len() - 1
        }) as u32))
    }

    fn tapping(&mut self, cap: f64, uses: &[Use], taps: &[Use]) -> Result<ClassId, InputError> {
        let mut sorted = Vec::new();
        normalise(cap, taps, self.capacities.len(), &mut sorted)?;
        let class = self.class(cap, uses)?;
        let of = |id: ResourceId, uses: &[Use]| uses.iter().any(|used| used.resource == id);
        let role = |id| Role {
            tapped: self.taps.iter().any(|taps| of(id, taps)),
            shared: self.classes.iter().zip(&self.taps).any(|((_, uses), taps)| !taps.is_empty() && of(id, uses)),
        };
        check(&self.classes[class.0 as usize].1, &sorted, role)?;
        if !self.activities.iter().any(|activity| activity.class == class.0) {
            self.taps[class.0 as usize] = sorted;
        }
        Ok(class)
    }

    /// Nothing: classes are few where this system is used.
    fn release(&mut self, _class: ClassId) {}

    fn start(&mut self, class: ClassId, work: f64, token: u64) -> Result<ActivityId, InputError> {
        check_work(work)?;
        self.started += 1;
        let (number, class) = (self.started, class.0);
        self.activities.push(Activity { class, number, token, left: work, speed: 0.0, due: Time::MAX });
        self.stale = true;
        Ok(ActivityId { class, number })
    }

    fn cancel(&mut self, activity: ActivityId) -> Option<f64> {
        let at = self.activities.iter().position(|known| known.number == activity.number)?;
        self.stale = true;
        Some(self.activities.remove(at).left)
    }

    fn now(&self) -> Time {
        self.now
    }

    fn next_completion(&mut self) -> Option<Time> {
        self.solve();
        self.activities.iter().map(|activity| activity.due).min().filter(|due| *due < Time::MAX)
    }

    fn advance(&mut self, to: Time, finished: &mut Vec<Finished>) {
        while let Some(due) = self.next_completion().filter(|due| *due <= to) {
            self.progress(due);
            let done = self.activities.iter().filter(|activity| activity.due == due);
            finished.extend(done.map(|activity| Finished { time: due, token: activity.token }));
            self.activities.retain(|activity| activity.due != due);
            self.stale = true;
        }
        self.progress(self.now.max(to));
    }

    fn active(&self) -> usize {
        self.activities.len()
    }

    fn speed(&mut self, class: ClassId) -> f64 {
        self.solve();
        self.activities.iter().find(|activity| activity.class == class.0).map_or(0.0, |activity| activity.speed)
    }

    fn span_of(&mut self, class: ClassId, work: f64, crowd: u32) -> Time {
        let (cap, uses) = &self.classes[class.0 as usize];
        let crowd = f64::from(crowd);
        let limits = uses.iter().map(|used| self.capacities[used.resource.0 as usize] / (crowd * used.per_speed));
        if work > 0.0 { Time(picoseconds(work, limits.fold(*cap, f64::min))) } else { Time::ZERO }
    }

    fn load(&mut self, resource: ResourceId) -> f64 {
        self.solve();
        let uses = |activity: &Activity| {
            let uses = self.classes[activity.class as usize].1.iter();
            let own = uses.filter(|used| used.resource == resource).map(|used| used.per_speed).sum::<f64>();
            if own > 0.0 { own * activity.speed } else { 0.0 }
        };
        self.activities.iter().map(uses).sum::<f64>() + self.tapped(resource.0 as usize)
    }
}
