//! `Tracked`: runs the fast solver together with the derivatives of all moments and speeds.
//!
//! Each activity has done p(t) = G(t) + x·t of its class's work, where G(t) is the change of p at a given time.
//! When speeds change at a moment τ, p does not jump, so G takes up (x before − x after)·τ′. An activity that
//! starts at s with work W ends where p has grown by W: its end e has x·e′ = G(s) + x·s′ + W′ − G(e), with the
//! speeds at that moment.

use lockstep_models::Program;
use lockstep_topology::cluster::LinkId;
use lockstep_topology::{InputError, Time};

use super::shadow::{PathBy, Shadow, Shadows, TakesBy};
use super::speeds::Speeds;
use crate::engine::MESSAGE;
use crate::engine::path::Key;
use crate::fluid::{ActivityId, ClassId, Finished, Fluid, ResourceId, System, Use, normalise};
use crate::orbits::Orbits;
use crate::platform::Platform;
use crate::trace::{Dual, Seconds, Slot, Took, Trace, TraceWork};

/// No class.
const NONE: u32 = u32::MAX;

/// A job's derivatives, once it has started.
type JobBy = Option<Box<(Dual, TakesBy)>>;

/// The solver, without activities.
pub(crate) struct Tracked<'a> {
    inner: System,
    /// The platform, and those with one figure changed.
    own: &'a Platform<'a>,
    changed: &'a [Platform<'a>],
    shadows: Option<Shadows<'a>>,
    speeds: Speeds,
    now: Dual,
    slots: [Vec<Dual>; 11],
    /// The class of the activity with each token, and the derivative of the mark at which it is done; of units and
    /// of messages.
    marks: [Vec<(u32, Dual)>; 2],
    jobs: Vec<Vec<JobBy>>,
    paths: Vec<PathBy>,
    wholes: Vec<(u32, Dual)>,
    about: Option<TraceWork>,
    ends: Vec<Dual>,
    /// Whether something happened that is not differentiated.
    varies: bool,
}

impl Clone for Tracked<'_> {
    /// A solver without activities, on the same platforms.
    fn clone(&self) -> Self {
        Tracked::new(self.own, self.changed)
    }
}

impl<'a> Tracked<'a> {
    pub(crate) fn new(own: &'a Platform<'a>, changed: &'a [Platform<'a>]) -> Tracked<'a> {
        Tracked {
            inner: System::new(),
            own,
            changed,
            shadows: None,
            speeds: Speeds::default(),
            now: Dual::ZERO,
            slots: std::array::from_fn(|_| Vec::new()),
            marks: [Vec::new(), Vec::new()],
            jobs: Vec::new(),
            paths: Vec::new(),
            wholes: Vec::new(),
            about: None,
            ends: Vec::new(),
            varies: false,
        }
    }

    fn slot(&mut self, slot: Slot) -> &mut Dual {
        let (kind, index) = match slot {
            Slot::Now => return &mut self.now,
            Slot::Message(index) => (0, index),
            Slot::Announced(index) => (1, index),
            Slot::Seen(index) => (2, index),
            Slot::Port(index) => (3, index),
            Slot::Done(index) => (4, index),
            Slot::Wake(index) => (5, index),
            Slot::Touched(index) => (6, index),
            Slot::Through(index) => (7, index),
            Slot::Free(index) => (8, index),
            Slot::Sent(index) => (9, index),
            Slot::Begins => (10, 0),
        };
        let (all, index) = (&mut self.slots[kind], index as usize);
        if all.len() <= index {
            all.resize(index + 1, Dual::ZERO);
        }
        &mut all[index]
    }

    /// The derivative of a job's seconds; its class uses the job's resources from now on.
    fn job(&mut self, list: usize, task: usize, class: ClassId) -> Dual {
        let list = self.shadows.as_ref().map_or(list, |shadows| shadows.like(list));
        if self.jobs.len() <= list {
            self.jobs.resize_with(list + 1, Vec::new);
        }
        let jobs = &mut self.jobs[list];
        if jobs.len() <= task {
            jobs.resize_with(task + 1, || None);
        }
        let Some(shadows) = &self.shadows else { return Dual::ZERO };
        let (seconds, takes) = &**jobs[task].get_or_insert_with(|| Box::new(shadows.job(list, task)));
        self.speeds.takes(class.0, takes);
        *seconds
    }

    /// The derivative of the work that starts now.
    fn work_by(&mut self, class: ClassId) -> Dual {
        match self.about.take() {
            None => Dual::ZERO,
            Some(TraceWork::Job { list, task, parts }) => {
                self.job(list as usize, task as usize, class).times(1.0 / f64::from(parts))
            }
            Some(TraceWork::Receive { path, bytes, sums }) => {
                let path = &self.paths[path as usize];
                self.speeds.takes(class.0, &path.receive);
                path.overhead.plus(bytes as f64, if sums { &path.sum } else { &path.copy })
            }
            Some(TraceWork::Bytes { path }) => {
                if let Some(carry) = &self.paths[path as usize].carry {
                    self.speeds.takes(class.0, carry);
                }
                Dual::ZERO
            }
        }
    }

    fn mark(&mut self, token: u64) -> &mut (u32, Dual) {
        let (all, index) = (&mut self.marks[usize::from(token & MESSAGE != 0)], token as u32 as usize);
        if all.len() <= index {
            all.resize(index + 1, (NONE, Dual::ZERO));
        }
        &mut all[index]
    }
}

impl Trace for Tracked<'_> {
    const TRACES: bool = true;

    fn keep(&mut self, slot: Slot, after: Slot, took: Took) {
        let mut at = *self.slot(after);
        match took {
            Took::Nothing => {}
            Took::Path { path, sends, latencies } => {
                let path = &self.paths[path as usize];
                at.add(f64::from(sends), &path.send);
                at.add(f64::from(latencies), &path.latency);
            }
            Took::Bytes { path, bytes } => at.add(bytes, &self.paths[path as usize].byte),
            Took::Queued { path, bytes } => at.add(bytes, &self.paths[path as usize].queued),
            Took::Whole { group_exchange } => {
                if let Some((_, by)) = self.wholes.iter().find(|(known, _)| *known == group_exchange) {
                    at.add(1.0, by);
                }
            }
        }
        *self.slot(slot) = at;
    }

    fn about(&mut self, work: TraceWork) {
        self.about = Some(work);
    }

    fn ended(&mut self, iteration: u32) {
        let iteration = iteration as usize;
        if self.ends.len() <= iteration {
            self.ends.resize(iteration + 1, Dual::ZERO);
        }
        self.ends[iteration] = self.now;
    }

    fn ends(&mut self) -> Option<Vec<Dual>> {
        (!self.varies && self.speeds.clear()).then(|| std::mem::take(&mut self.ends))
    }

    fn prepare(&mut self, program: Option<&Program>, threads: u32, orbits: &Orbits) -> Result<(), InputError> {
        let changed = self.changed.iter().map(|platform| Shadow::new(platform, orbits)).collect();
        let mut shadows = Shadows { own: Shadow::new(self.own, orbits), changed };
        if let Some(program) = program {
            shadows.each(|shadow| shadow.price(program, threads))?;
        }
        self.shadows = Some(shadows);
        Ok(())
    }

    fn path(&mut self, key: Key, links: &[LinkId]) -> Result<(), InputError> {
        if let Some(shadows) = &mut self.shadows {
            shadows.each(|shadow| shadow.path(key, links))?;
            self.varies |= shadows.last_path_varies();
            self.paths.push(shadows.last_path());
        }
        Ok(())
    }

    fn whole(&mut self, group_exchange: u32, seconds: &Seconds<'_>) -> Result<(), InputError> {
        if let Some(shadows) = &mut self.shadows {
            shadows.each(|shadow| shadow.whole(group_exchange, seconds))?;
            self.wholes.push((group_exchange, shadows.of_whole(group_exchange)));
        }
        Ok(())
    }
}

impl Fluid for Tracked<'_> {
    fn add_resource(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        self.speeds.add_resource(capacity, false);
        self.inner.add_resource(capacity)
    }

    fn add_wire(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        self.speeds.add_resource(capacity, true);
        self.inner.add_wire(capacity)
    }

    fn enclose(&mut self, resources: &[ResourceId]) {
        self.inner.enclose(resources);
    }

    fn set_capacity(&mut self, resource: ResourceId, capacity: f64) -> Result<(), InputError> {
        self.varies = true;
        self.inner.set_capacity(resource, capacity)
    }

    fn class(&mut self, cap: f64, uses: &[Use]) -> Result<ClassId, InputError> {
        self.tapping(cap, uses, &[])
    }

    fn tapping(&mut self, cap: f64, uses: &[Use], taps: &[Use]) -> Result<ClassId, InputError> {
        let class = match taps {
            [] => self.inner.class(cap, uses)?,
            taps => self.inner.tapping(cap, uses, taps)?,
        };
        let (mut sorted, mut tapped) = (Vec::new(), Vec::new());
        normalise(cap, uses, self.speeds.resources(), &mut sorted)?;
        normalise(cap, taps, self.speeds.resources(), &mut tapped)?;
        self.speeds.add_class(class.0, cap, &sorted, &tapped);
        Ok(class)
    }

    fn release(&mut self, class: ClassId) {
        self.inner.release(class);
    }

    fn start(&mut self, class: ClassId, work: f64, token: u64) -> Result<ActivityId, InputError> {
        let activity = self.inner.start(class, work, token)?;
        let work_by = self.work_by(class);
        let now = self.now;
        if work == 0.0 || self.speeds.is_free(class.0) {
            *self.mark(token) = (NONE, now);
        } else {
            let shadows = &self.shadows;
            let capacity = |resource: usize| shadows.as_ref().map_or(Dual::ZERO, |all| all.capacity(resource));
            let by = self.speeds.start(class.0, self.inner.now(), &now, &capacity).plus(1.0, &work_by);
            *self.mark(token) = (class.0, by);
        }
        Ok(activity)
    }

    fn cancel(&mut self, activity: ActivityId) -> Option<f64> {
        self.varies = true;
        self.inner.cancel(activity)
    }

    fn stop(&mut self, activity: ActivityId) {
        if self.inner.cancel(activity).is_some() {
            let now = self.now;
            self.speeds.leave(activity.class, &now);
        }
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn next_completion(&mut self) -> Option<Time> {
        let next = self.inner.next_completion();
        self.speeds.follow(&mut self.inner);
        next
    }

    fn advance(&mut self, to: Time, finished: &mut Vec<Finished>) {
        let before = finished.len();
        self.inner.advance(to, finished);
        for done in &finished[before..] {
            let (class, mark) = *self.mark(done.token);
            let end = if class == NONE { mark } else { self.speeds.end(class, to, &mark) };
            let index = done.token as u32;
            let slot = if done.token & MESSAGE == 0 { Slot::Done(index) } else { Slot::Message(index) };
            *self.slot(slot) = end;
        }
        // Activities that end at one moment end by the speeds before it.
        for done in &finished[before..] {
            let class = self.mark(done.token).0;
            if class != NONE {
                let index = done.token as u32;
                let slot = if done.token & MESSAGE == 0 { Slot::Done(index) } else { Slot::Message(index) };
                let end = *self.slot(slot);
                self.speeds.leave(class, &end);
            }
        }
    }

    fn active(&self) -> usize {
        self.inner.active()
    }

    fn speed(&mut self, class: ClassId) -> f64 {
        self.inner.speed(class)
    }

    fn span_of(&mut self, class: ClassId, work: f64, crowd: u32) -> Time {
        self.inner.span_of(class, work, crowd)
    }

    fn load(&mut self, resource: ResourceId) -> f64 {
        self.inner.load(resource)
    }
}
