//! The incremental system: an event costs what the component that it changes costs.
//!
//! Starts and ends only note which classes they touched; `settle` (in `settle.rs`) brings the shares up to date when
//! somebody asks for what follows from them, so any number of events at one instant is solved once.

use lockstep_topology::{InputError, Time};

use super::alone::{FREE, SHARED};
use super::classes::{Classes, Link, Member, NONE};
use super::schedule::Schedule;
use super::tap::{Role, check, left};
use super::{ActivityId, ClassId, Finished, Fluid, ResourceId, Use};
use super::{check_capacity, check_work, normalise, picoseconds};
use crate::event::Events;

/// A group's entry in the list of a resource's users: the group, and which of the links is its use.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub(super) group: u32,
    pub(super) link: u32,
    /// What an activity of the group takes of the resource at its bound.
    pub(super) limit: f64,
}

/// A resource and who uses it.
#[derive(Debug, Clone, Default)]
pub(super) struct Resource {
    /// What is there to share, after taps.
    pub(super) capacity: f64,
    /// What there would be without.
    pub(super) nominal: f64,
    /// What taps take, and how many classes do.
    pub(super) tapped: f64,
    pub(super) tapping: u32,
    pub(super) role: Role,
    /// Whether what they take has changed since its users were told.
    pub(super) sapped: bool,
    /// What its users would take of it if each ran at its own bound.
    pub(super) demand: f64,
    /// How many activities use it.
    pub(super) crowd: f64,
    /// Whether that demand may fill it; only then it joins its users into one component.
    pub(super) tight: bool,
    /// The settling (by number) that last noted it as changed.
    pub(super) changed: u64,
    /// The search (by number) that has last come by.
    pub(super) seen: u64,
    /// Not above the limit of any user.
    pub(super) lowest: f64,
    pub(super) users: Vec<User>,
}

/// What progressive filling and the sweeps keep of a resource, apart so that it stays in the cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fill {
    /// Capacity that is not given out yet.
    pub(super) rest: f64,
    /// Activities that have no speed yet.
    pub(super) waiting: f64,
    /// The level, where sweeps look for it.
    pub(super) level: f64,
    /// Whether a repair gives it out.
    pub(super) asked: bool,
}

/// The incremental fluid system; see [the module](crate::fluid) for what it computes.
///
/// ```
/// # use lockstep_sim::fluid::{Fluid, System, Use};
/// // Four ranks of one core each on two cores: half a core each.
/// let mut host = System::new();
/// let cores = host.add_resource(2.0)?;
/// let rank = host.class(1.0, &[Use::one(cores)])?;
/// for token in 0..4 {
///     host.start(rank, 3.0, token)?;
/// }
/// assert_eq!(host.speed(rank), 0.5);
/// assert_eq!(host.next_completion().map(|time| time.as_secs_f64()), Some(6.0));
/// # Ok::<(), lockstep_topology::InputError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct System {
    pub(super) now: Time,
    /// Count settlings, and searches within them; marks compare with them, so nothing needs to be cleared.
    pub(super) instant: u64,
    pub(super) searches: u64,
    pub(super) resources: Vec<Resource>,
    pub(super) fills: Vec<Fill>,
    pub(super) classes: Classes,
    /// Classes whose members changed since the last settling.
    pub(super) touched: Vec<u32>,
    /// Who holds each resource: a class that is alone on it, [`FREE`] or [`SHARED`].
    pub(super) holders: Vec<u32>,
    /// When the classes that are alone are done, and what they no longer wait for.
    pub(super) alone: Events<u32>,
    /// Classes that are no longer alone and wait to be entered into lists.
    pub(super) joined: Vec<u32>,
    /// Resources of which taps take something else than its users know.
    pub(super) sapped: Vec<u32>,
    /// How often a capacity was changed.
    pub(super) capacities: u64,
    /// One group of each component that has a completion ahead, at the component's next one.
    pub(super) schedule: Schedule,
    /// Activities with nothing to do, which end before the clock moves: number and token.
    at_once: Vec<(u64, u64)>,
    /// Numbers and tokens of what ends at one instant, to be put in order.
    pub(super) done: Vec<(u64, u64)>,
    started: u64,
    pub(super) active: usize,
    pub(super) work: super::component::Work,
    uses: Vec<Use>,
}

impl System {
    /// An empty system at time zero.
    pub fn new() -> System {
        System::default()
    }

    pub(super) fn touch(&mut self, class: u32) {
        let group = &mut self.classes.groups[class as usize];
        if !group.touched {
            group.touched = true;
            self.touched.push(class);
        }
    }

    /// Ends the members of `class` that are done now; the first is done by the schedule's word.
    fn complete(&mut self, class: u32) {
        let pace = &mut self.classes.paces[class as usize];
        let others = &mut self.classes.others[class as usize];
        pace.catch_up(self.now);
        loop {
            let member = pace.pop(others);
            self.done.push((member.number, member.token));
            self.active -= 1;
            if pace.members == 0 || picoseconds(pace.first.mark - pace.progress, pace.speed) > 0 {
                break;
            }
        }
        self.touch(class);
    }

    /// Hands out what has ended at the present instant, in order of start.
    fn report(&mut self, finished: &mut Vec<Finished>) {
        if self.done.len() > 1 {
            self.done.sort_unstable();
        }
        finished.extend(self.done.drain(..).map(|(_, token)| Finished { time: self.now, token }));
    }
}

impl Fluid for System {
    fn add_resource(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        check_capacity(capacity)?;
        self.resources.push(Resource { capacity, nominal: capacity, ..Resource::default() });
        self.fills.push(Fill::default());
        self.holders.push(FREE);
        Ok(ResourceId((self.resources.len() - 1) as u32))
    }

    fn set_capacity(&mut self, resource: ResourceId, capacity: f64) -> Result<(), InputError> {
        check_capacity(capacity)?;
        self.settle();
        self.reenter(resource.0);
        let Resource { capacity: shared, nominal, tapped, .. } = &mut self.resources[resource.0 as usize];
        (*nominal, *shared) = (capacity, left(capacity, *tapped));
        self.capacities += 1;
        if !matches!(self.holders[resource.0 as usize], FREE | SHARED) {
            // The settling takes it among the others.
            self.touch(self.holders[resource.0 as usize]);
        }
        Ok(())
    }

    fn class(&mut self, cap: f64, uses: &[Use]) -> Result<ClassId, InputError> {
        normalise(cap, uses, self.resources.len(), &mut self.uses)?;
        Ok(ClassId(self.classes.intern(cap, &self.uses)))
    }

    fn tapping(&mut self, cap: f64, uses: &[Use], taps: &[Use]) -> Result<ClassId, InputError> {
        let mut sorted = Vec::new();
        normalise(cap, taps, self.resources.len(), &mut sorted)?;
        normalise(cap, uses, self.resources.len(), &mut self.uses)?;
        check(&self.uses, &sorted, |id| self.resources[id.0 as usize].role)?;
        let class = ClassId(self.classes.intern(cap, &self.uses));
        if self.classes.taps[class.0 as usize].uses != sorted && self.classes.paces[class.0 as usize].members == 0 {
            self.set_taps(class, sorted);
        }
        Ok(class)
    }

    fn release(&mut self, class: ClassId) {
        let group = &mut self.classes.groups[class.0 as usize];
        group.pins = group.pins.saturating_sub(1);
        if group.pins == 0 && self.classes.paces[class.0 as usize].members == 0 {
            // The settling forgets it.
            self.touch(class.0);
        }
    }

    fn start(&mut self, class: ClassId, work: f64, token: u64) -> Result<ActivityId, InputError> {
        check_work(work)?;
        self.started += 1;
        self.active += 1;
        let number = self.started;
        let group = &self.classes.groups[class.0 as usize];
        if work == 0.0 || (group.uses == 0 && group.cap == f64::INFINITY) {
            self.at_once.push((number, token));
        } else {
            if self.classes.paces[class.0 as usize].members == 0 && self.is_free(class.0) {
                self.start_alone(class.0, Member { mark: work, number, token });
                return Ok(ActivityId { class: class.0, number });
            }
            let pace = &mut self.classes.paces[class.0 as usize];
            pace.catch_up(self.now);
            if pace.members == 0 {
                // Small marks are exact marks.
                pace.progress = 0.0;
            }
            let member = Member { mark: pace.progress + work, number, token };
            pace.push(member, &mut self.classes.others[class.0 as usize]);
            self.touch(class.0);
        }
        Ok(ActivityId { class: class.0, number })
    }

    fn cancel(&mut self, activity: ActivityId) -> Option<f64> {
        let ActivityId { class, number } = activity;
        if let Some(at) = self.at_once.iter().position(|(other, _)| *other == number) {
            self.at_once.remove(at);
            self.active -= 1;
            return Some(0.0);
        }
        let pace = &mut self.classes.paces[class as usize];
        let mark = pace.take(number, &mut self.classes.others[class as usize])?.mark;
        pace.catch_up(self.now);
        let left = (mark - pace.progress).max(0.0);
        self.active -= 1;
        if self.classes.groups[class as usize].alone {
            self.end_alone(class);
        } else {
            self.touch(class);
        }
        Some(left)
    }

    fn now(&self) -> Time {
        self.now
    }

    fn next_completion(&mut self) -> Option<Time> {
        if !self.at_once.is_empty() {
            return Some(self.now);
        }
        self.settle();
        self.next_due()
    }

    fn advance(&mut self, to: Time, finished: &mut Vec<Finished>) {
        self.active -= self.at_once.len();
        self.done.append(&mut self.at_once);
        loop {
            // What is due at this instant already joins what has nothing to do.
            self.settle();
            let due = self.next_due().filter(|due| *due <= to);
            if !self.done.is_empty() && due != Some(self.now) {
                self.report(finished);
            }
            let Some(due) = due else { break };
            self.now = due;
            while let Some((_, first)) = self.schedule.first().filter(|(time, _)| *time == due) {
                self.schedule.remove(first);
                self.classes.groups[first as usize].leads = false;
                let mut class = first;
                while class != NONE {
                    let next = self.classes.paces[class as usize].next_due;
                    self.complete(class);
                    class = next;
                }
            }
            self.complete_alone();
            self.report(finished);
            if due == to {
                // The caller may start more at this instant; one settling then serves all.
                break;
            }
        }
        self.now = self.now.max(to);
    }

    fn active(&self) -> usize {
        self.active
    }

    fn speed(&mut self, class: ClassId) -> f64 {
        self.settle();
        self.classes.paces[class.0 as usize].speed
    }

    fn span_of(&mut self, class: ClassId, work: f64, crowd: u32) -> Time {
        let bound = self.bound(class.0);
        let links = &self.classes.links[self.classes.groups[class.0 as usize].range()];
        let share = |link: &Link| self.resources[link.resource as usize].capacity / (f64::from(crowd) * link.per_speed);
        // One alone runs at its bound, to the bit.
        let speed = if crowd > 1 { links.iter().map(share).fold(bound, f64::min) } else { bound };
        if work > 0.0 { Time(picoseconds(work, speed)) } else { Time::ZERO }
    }

    fn load(&mut self, resource: ResourceId) -> f64 {
        self.settle();
        let holder = self.holders[resource.0 as usize];
        let tapped = self.resources[resource.0 as usize].tapped;
        if !matches!(holder, FREE | SHARED) {
            return tapped + self.load_alone(holder, resource.0);
        }
        let users = &self.resources[resource.0 as usize].users;
        let shared: f64 = users
            .iter()
            .map(|user| {
                let pace = &self.classes.paces[user.group as usize];
                f64::from(pace.members) * pace.speed * self.classes.links[user.link as usize].per_speed
            })
            .sum();
        tapped + shared
    }
}
