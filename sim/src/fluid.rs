//! Models activities that share resources: how much each gets, and when each is done.
//!
//! A link's direction, a NIC, a host's memory, its cores and a GPU's multiprocessors are *resources* with a capacity in
//! their own unit (bytes/s, cores, multiprocessors). A transfer, a kernel and a file read are *activities*: while
//! activity i progresses at speed xᵢ (its own unit of work per second, e.g. bytes, or 1.0 for a kernel's full rate) it
//! uses uᵢⱼ·xᵢ of resource j, and xᵢ never exceeds its speed cap.
//!
//! **What is equalised**: consumption, per resource, in that resource's unit. Each resource j has a level λⱼ, the
//! largest consumption that it grants to one activity, and xᵢ = min(capᵢ, minⱼ λⱼ/uᵢⱼ). A resource that its users
//! cannot fill has λⱼ = ∞; any other is full: Σᵢ uᵢⱼ·xᵢ = capacity. That is bottleneck max fairness (Bonald and
//! Roberts, "Multi-resource fairness: objectives, algorithms and performance", SIGMETRICS 2015), and its *certificate*
//! is: **each activity runs at its cap or uses a full resource on which no activity consumes more than it.**
//!
//! On a *wire* speeds are equalised instead, xᵢ ≤ λⱼ: switches and buses take turns among flows by the byte, whatever
//! each byte costs there in headers and waits. No activity that uses a full wire at its level is slower than another.
//! Among wires alone there is one set of levels, found in rising order. An activity that uses both, unlike parts of a
//! wire and of something else, may keep the sweeps from settling: the last levels are then made feasible.
//!
//! - With all u = 1 it is the classical max-min fairness of flows, found by progressive filling; it is unique. The
//!   same holds when each activity uses its resources alike (uᵢⱼ = uᵢ), in the consumptions uᵢ·xᵢ.
//! - Eight ranks of one core each on two cores get a quarter of a core each.
//! - Two activities with u = 0.5 and u = 1 on one resource of capacity 1 get half of it each, so speeds 1 and 0.5; if
//!   the first is capped at speed 0.4 it takes 0.2 and leaves 0.8 to the other.
//! - Where an activity uses its resources unequally (a kernel: 60 multiprocessors and 1e12 bytes/s) the levels depend
//!   on each other. They are the fixed point that Gauss-Seidel sweeps over the resources, in order of their numbers and
//!   starting from λ = ∞, arrive at.
//!
//! Time is integer picoseconds. Speeds and work are real numbers, so a completion is rounded to the nearest picosecond
//! of its exact moment; the remainder, positive or negative (at most half a picosecond's worth), is dropped. Several
//! starts and completions at one instant are solved once, when the result is needed.
//!
//! [`System`] is incremental and fast; the tests' slow system recomputes everything at each change and is its oracle.

mod alone;
mod cell;
mod cells;
mod choice;
mod classes;
mod component;
mod draft;
mod due;
mod fast;
mod levels;
mod repair;
mod resource;
mod schedule;
mod share;
mod system;
mod tap;
#[cfg(test)]
pub(crate) mod tests;
mod update_speeds;
mod work;

pub use system::System;
pub(crate) use tap::LEAST_LEFT;

use lockstep_topology::{InputError, Time};

use crate::trace::Trace;

/// A resource of one system, numbered in order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// A speed cap and a set of uses; activities of one class are equal except for their work and are solved as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(crate) u32);

/// One started activity; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ActivityId {
    pub(crate) class: u32,
    number: u64,
}

/// An activity at speed x takes `per_speed`·x of `resource`, in the resource's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Use {
    /// The resource it loads.
    pub resource: ResourceId,
    /// Consumption per unit of speed: 1.0 for a flow on a link in bytes/s.
    pub per_speed: f64,
}

impl Use {
    /// A use of `resource` of one unit per unit of speed, as a flow has on a link.
    pub fn one(resource: ResourceId) -> Use {
        Use { resource, per_speed: 1.0 }
    }
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// When it was done.
    pub time: Time,
    /// The token given at its start.
    pub token: u64,
}

/// A system of resources and activities with a clock; a discrete-event loop drives it beside its other sources:
///
/// ```
/// # use lockstep_sim::{event::Events, fluid::{Finished, Fluid, System, Use}};
/// # use lockstep_topology::Time;
/// let mut fluid = System::new();
/// let link = fluid.add_resource(1e9)?; // 1 GB/s
/// let flow = fluid.class(f64::INFINITY, &[Use::one(link)])?;
/// let mut events = Events::new();
/// events.push(Time(0), 1_000.0);
/// events.push(Time::from_nanos(500), 1_000.0);
/// let mut finished = Vec::new();
/// while let Some(time) = events.next_time().into_iter().chain(fluid.next_completion()).min() {
///     fluid.advance(time, &mut finished);
///     while events.next_time() == Some(time) {
///         let (_, bytes) = events.pop().expect("an event is due");
///         fluid.start(flow, bytes, 7)?;
///     }
/// }
/// // The first has the link alone for 500 ns and half of it for 1000 ns; the second then ends alone.
/// assert_eq!(finished[0], Finished { time: Time::from_nanos(1_500), token: 7 });
/// assert_eq!(finished[1], Finished { time: Time::from_nanos(2_000), token: 7 });
/// # Ok::<(), lockstep_topology::InputError>(())
/// ```
pub trait Fluid: Trace {
    /// Adds a resource of `capacity` (its unit per second, or cores); refused unless positive and finite.
    fn add_resource(&mut self, capacity: f64) -> Result<ResourceId, InputError>;

    /// The same for a wire, on which speeds are equalised.
    fn add_wire(&mut self, capacity: f64) -> Result<ResourceId, InputError>;

    /// Changes a capacity from now on (a degraded link); refused like in [`Fluid::add_resource`].
    fn set_capacity(&mut self, resource: ResourceId, capacity: f64) -> Result<(), InputError>;

    /// Makes a cell of resources that no class uses yet: no activity may use one of them beside others, though it may
    /// tap them. Results are the same, but found faster.
    fn enclose(&mut self, _resources: &[ResourceId]) {}

    /// The class of activities with this speed cap (positive, may be infinite) and these uses: equal input,
    /// equal class.
    ///
    /// Uses of the same resource add up and uses of zero are dropped; negative ones, NaN and unknown resources are
    /// refused. The class is kept until [`Fluid::release`] was called as often as this.
    fn class(&mut self, cap: f64, uses: &[Use]) -> Result<ClassId, InputError>;

    /// A class whose activities also take from other resources with priority: what they leave (at least a sixteenth) is
    /// shared by the other activities. As [`Fluid::class`]; a resource cannot be both shared and tapped.
    ///
    /// The taps belong to the class: with the same cap and uses, only those given while it has no activities count.
    fn tapping(&mut self, cap: f64, uses: &[Use], taps: &[Use]) -> Result<ClassId, InputError>;

    /// Releases a class: once its last activity ends it is dropped, and its id must not be used again.
    fn release(&mut self, class: ClassId);

    /// Starts an activity with `work` to do (zero: done at once; infinite: until cancelled); negative and NaN refused.
    fn start(&mut self, class: ClassId, work: f64, token: u64) -> Result<ActivityId, InputError>;

    /// Ends an activity now and returns the work it had left; `None` if it is done already.
    fn cancel(&mut self, activity: ActivityId) -> Option<f64>;

    /// Ends an activity now, whatever it has left to do.
    fn stop(&mut self, activity: ActivityId) {
        self.cancel(activity);
    }

    /// The clock: the time of the last [`Fluid::advance`].
    fn now(&self) -> Time;

    /// When the next activity ends; `None` if none does before the clock overflows.
    fn next_completion(&mut self) -> Option<Time>;

    /// Moves the clock to `to` (never back) and appends what ends until then, in order of time and then of start.
    fn advance(&mut self, to: Time, finished: &mut Vec<Finished>);

    /// How many activities are running.
    fn active(&self) -> usize;

    /// The present speed of each activity of a class; zero if it has none.
    fn speed(&mut self, class: ClassId) -> f64;

    /// How long an activity with `work` takes with its resources to itself.
    fn span_alone(&mut self, class: ClassId, work: f64) -> Time {
        self.span_of(class, work, 1)
    }

    /// How long each of `crowd` activities of a class takes, with `work` each, if no others share their resources.
    fn span_of(&mut self, class: ClassId, work: f64, crowd: u32) -> Time;

    /// What all activities together take of a resource at present, in its unit.
    fn load(&mut self, resource: ResourceId) -> f64;

    /// Starts one activity without keeping its class; see [`Fluid::class`] and [`Fluid::start`].
    fn start_once(&mut self, cap: f64, uses: &[Use], work: f64, token: u64) -> Result<ActivityId, InputError> {
        let class = self.class(cap, uses)?;
        let activity = self.start(class, work, token);
        self.release(class);
        activity
    }
}

/// Picoseconds that `work` takes at `speed` units a second, to the nearest; larger values saturate.
fn picoseconds(work: f64, speed: f64) -> u64 {
    // The cast cuts off, saturates, and takes NaN and negative remainders of rounding to zero.
    (work / speed * 1e12 + 0.5) as u64
}

/// Work done at `speed` from `last` to `now`.
fn work_between(speed: f64, last: Time, now: Time) -> f64 {
    speed * (now.since(last).0 as f64 * 1e-12)
}

fn check_capacity(capacity: f64) -> Result<(), InputError> {
    if capacity > 0.0 && capacity.is_finite() {
        return Ok(());
    }
    Err(InputError::new(
        "",
        format!("capacity = {capacity}"),
        "must be positive and finite; leave out what is no limit",
    ))
}

fn check_work(work: f64) -> Result<(), InputError> {
    if work >= 0.0 {
        return Ok(());
    }
    Err(InputError::new("", format!("work = {work}"), "must be zero or positive"))
}

/// Checks a class and normalises its uses: sorted by resource, each resource once, nothing zero.
pub(crate) fn normalise(cap: f64, uses: &[Use], resources: usize, sorted: &mut Vec<Use>) -> Result<(), InputError> {
    if cap.is_nan() || cap <= 0.0 {
        return Err(InputError::new("", format!("speed cap = {cap}"), "must be positive, or infinite for none"));
    }
    sorted.clear();
    for used in uses {
        let Use { resource, per_speed } = *used;
        if resource.0 as usize >= resources {
            let message = format!("no such resource; the system has {resources}, numbered from 0");
            return Err(InputError::new("", format!("resource {}", resource.0), message));
        }
        if !(per_speed >= 0.0 && per_speed.is_finite()) {
            let value = format!("use of resource {} = {per_speed}", resource.0);
            return Err(InputError::new("", value, "must be zero or positive, and finite"));
        }
        if per_speed == 0.0 {
            continue;
        }
        match sorted.binary_search_by_key(&resource, |known| known.resource) {
            Ok(at) => sorted[at].per_speed += per_speed,
            Err(at) => sorted.insert(at, *used),
        }
    }
    Ok(())
}
