//! `Shadow`: prices the jobs and paths of a run once more, on a platform with one figure changed.

use std::collections::BTreeMap;

use lockstep_models::Program;
use lockstep_topology::cluster::LinkId;
use lockstep_topology::{InputError, Time};

use crate::engine::Jobs;
use crate::engine::path::{Key, Path, path_between};
use crate::fluid::{ActivityId, ClassId, Finished, Fluid, ResourceId, Use, normalise};
use crate::jobs::JobLists;
use crate::machine::Resources;
use crate::network::{Carrier, Connections};
use crate::orbits::Orbits;
use crate::platform::Platform;
use crate::trace::{Dual, LANES, Seconds, Trace};

/// The change of a shadow's figure: rates are divided by 1 + `CHANGE`, times multiplied by it. Durations are sums of
/// figures and of quotients by them, for which this difference is exact.
pub(crate) const CHANGE: f64 = 0.02;

/// The resources that an activity of a class uses.
#[derive(Debug, Clone, Default)]
pub(super) struct Takes {
    pub(super) cap: f64,
    pub(super) uses: Vec<Use>,
    pub(super) taps: Vec<Use>,
}

/// A solver that only records the requested shares.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) capacities: Vec<f64>,
    pub(super) classes: Vec<Takes>,
}

impl Trace for Probe {}

impl Fluid for Probe {
    fn add_resource(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        self.capacities.push(capacity);
        Ok(ResourceId((self.capacities.len() - 1) as u32))
    }

    fn add_wire(&mut self, capacity: f64) -> Result<ResourceId, InputError> {
        self.add_resource(capacity)
    }

    fn set_capacity(&mut self, _: ResourceId, _: f64) -> Result<(), InputError> {
        Ok(())
    }

    fn class(&mut self, cap: f64, uses: &[Use]) -> Result<ClassId, InputError> {
        self.tapping(cap, uses, &[])
    }

    fn tapping(&mut self, cap: f64, uses: &[Use], taps: &[Use]) -> Result<ClassId, InputError> {
        let sorted = |uses: &[Use]| {
            let mut sorted = Vec::with_capacity(uses.len());
            normalise(cap, uses, self.capacities.len(), &mut sorted).map(|()| sorted)
        };
        let takes = Takes { cap, uses: sorted(uses)?, taps: sorted(taps)? };
        self.classes.push(takes);
        Ok(ClassId((self.classes.len() - 1) as u32))
    }

    fn release(&mut self, _: ClassId) {}

    fn start(&mut self, class: ClassId, _: f64, _: u64) -> Result<ActivityId, InputError> {
        Err(InputError::new("", format!("class {class:?}"), "is only asked about"))
    }

    fn cancel(&mut self, _: ActivityId) -> Option<f64> {
        None
    }

    fn now(&self) -> Time {
        Time::ZERO
    }

    fn next_completion(&mut self) -> Option<Time> {
        None
    }

    fn advance(&mut self, _: Time, _: &mut Vec<Finished>) {}

    fn active(&self) -> usize {
        0
    }

    fn speed(&mut self, _: ClassId) -> f64 {
        0.0
    }

    fn span_of(&mut self, _: ClassId, _: f64, _: u32) -> Time {
        Time::ZERO
    }

    fn load(&mut self, _: ResourceId) -> f64 {
        0.0
    }
}

/// One platform, and everything priced on it in the order in which the run did.
pub(super) struct Shadow<'a> {
    platform: &'a Platform<'a>,
    resources: Resources<'a, Probe>,
    connections: Connections,
    lists: Vec<Jobs>,
    /// By list: the list with the same prices.
    like: Vec<u32>,
    paths: Vec<Path>,
    wholes: BTreeMap<u32, f64>,
}

impl<'a> Shadow<'a> {
    pub(super) fn new(platform: &'a Platform<'a>, orbits: &Orbits) -> Shadow<'a> {
        let resources = Resources::new(platform, Probe::default(), orbits.clone());
        let (connections, wholes) = (Connections::default(), BTreeMap::new());
        Shadow { platform, resources, connections, lists: Vec::new(), like: Vec::new(), paths: Vec::new(), wholes }
    }

    pub(super) fn price(&mut self, program: &Program, threads: u32) -> Result<(), InputError> {
        let JobLists { lists, like, .. } = JobLists::of(program, threads, &mut self.resources, (None, true))?;
        (self.lists, self.like) = (lists, like);
        Ok(())
    }

    pub(super) fn path(&mut self, key: Key, links: &[LinkId]) -> Result<(), InputError> {
        let route = self.platform.cluster.route_along(key.0, key.1, links)?;
        self.paths.push(path_between(&mut self.resources, &mut self.connections, key, &route)?);
        Ok(())
    }

    pub(super) fn whole(&mut self, group_exchange: u32, seconds: &Seconds<'_>) -> Result<(), InputError> {
        self.wholes.insert(group_exchange, seconds(self.platform)?);
        Ok(())
    }

    fn takes(&self, class: ClassId) -> &Takes {
        &self.resources.fluid.classes[class.0 as usize]
    }
}

/// The run's own prices, and those on each platform with a figure changed.
pub(super) struct Shadows<'a> {
    pub(super) own: Shadow<'a>,
    pub(super) changed: Vec<Shadow<'a>>,
}

/// The derivatives of the resources that an activity uses, in the order of its class.
#[derive(Debug, Clone, Default)]
pub(super) struct TakesBy {
    pub(super) cap: Dual,
    pub(super) uses: Vec<Dual>,
    pub(super) taps: Vec<Dual>,
}

/// The derivatives of the costs of messages of a path.
#[derive(Debug, Clone, Default)]
pub(super) struct PathBy {
    pub(super) latency: Dual,
    pub(super) send: Dual,
    pub(super) overhead: Dual,
    pub(super) copy: Dual,
    pub(super) sum: Dual,
    /// Seconds per byte, where bytes share nothing.
    pub(super) byte: Dual,
    /// Seconds per byte in the transmit queue.
    pub(super) queued: Dual,
    pub(super) carry: Option<TakesBy>,
    pub(super) receive: TakesBy,
}

impl<'a> Shadows<'a> {
    pub(super) fn each(
        &mut self,
        mut of: impl FnMut(&mut Shadow<'a>) -> Result<(), InputError>,
    ) -> Result<(), InputError> {
        of(&mut self.own)?;
        self.changed.iter_mut().try_for_each(of)
    }

    /// The derivative of a time: its difference, since times are linear in the changed figure.
    fn time(&self, of: impl Fn(&Shadow<'a>) -> f64) -> Dual {
        let own = of(&self.own);
        self.by(|shadow| (of(shadow) - own) / CHANGE)
    }

    /// The derivative of a rate or a share: that of a power of the changed figure.
    fn power(&self, of: impl Fn(&Shadow<'a>) -> f64) -> Dual {
        let own = of(&self.own);
        self.by(|shadow| {
            let changed = of(shadow);
            match own > 0.0 && own < f64::INFINITY && changed > 0.0 && changed < f64::INFINITY && changed != own {
                true => own * libm::log(changed / own) / libm::log(1.0 + CHANGE),
                false => 0.0,
            }
        })
    }

    fn by(&self, of: impl Fn(&Shadow<'a>) -> f64) -> Dual {
        let mut dual = Dual::ZERO;
        debug_assert!(self.changed.len() <= LANES);
        dual.0.iter_mut().zip(&self.changed).for_each(|(by, shadow)| *by = of(shadow));
        dual
    }

    /// Of a resource's capacity.
    pub(super) fn capacity(&self, resource: usize) -> Dual {
        self.power(|shadow| shadow.resources.fluid.capacities.get(resource).copied().unwrap_or(0.0))
    }

    fn takes(&self, class: impl Fn(&Shadow<'a>) -> Option<ClassId>) -> Option<TakesBy> {
        let own = self.own.takes(class(&self.own)?);
        let of = |uses: fn(&Takes) -> &[Use], own: &Use| {
            self.power(|shadow| {
                let takes = class(shadow).map(|class| uses(shadow.takes(class)));
                let same = |used: &&Use| used.resource == own.resource;
                takes.and_then(|uses| uses.iter().find(same)).map_or(0.0, |used| used.per_speed)
            })
        };
        Some(TakesBy {
            cap: self.power(|shadow| class(shadow).map_or(0.0, |class| shadow.takes(class).cap)),
            uses: own.uses.iter().map(|used| of(|takes| &takes.uses, used)).collect(),
            taps: own.taps.iter().map(|used| of(|takes| &takes.taps, used)).collect(),
        })
    }

    /// The list that represents `list`.
    pub(super) fn like(&self, list: usize) -> usize {
        self.own.like.get(list).map_or(list, |like| *like as usize)
    }

    /// The derivatives of a job's seconds, and of the resources it uses meanwhile, for a list that represents itself.
    pub(super) fn job(&self, list: usize, task: usize) -> (Dual, TakesBy) {
        let job = |shadow: &Shadow<'a>| shadow.lists[list][task];
        let seconds = self.time(|shadow| job(shadow).map_or(0.0, |job| job.seconds));
        (seconds, self.takes(|shadow| job(shadow).map(|job| job.class)).unwrap_or_default())
    }

    /// Of the last path.
    pub(super) fn last_path(&self) -> PathBy {
        let path = |shadow: &'_ Shadow<'a>| shadow.paths.len() - 1;
        let seconds = |time: Time| time.as_secs_f64();
        PathBy {
            latency: self.time(|shadow| seconds(shadow.paths[path(shadow)].latency)),
            send: self.time(|shadow| seconds(shadow.paths[path(shadow)].terms.send)),
            overhead: self.time(|shadow| shadow.paths[path(shadow)].cost.overhead),
            copy: self.time(|shadow| shadow.paths[path(shadow)].cost.copy),
            sum: self.time(|shadow| shadow.paths[path(shadow)].cost.sum),
            byte: self.time(|shadow| match shadow.paths[path(shadow)].carrier {
                Carrier::Alone(rate) => 1.0 / rate,
                Carrier::Shared(_) => 0.0,
            }),
            queued: self.time(|shadow| shadow.paths[path(shadow)].terms.queue.map_or(0.0, |queue| queue.byte_s)),
            carry: self.takes(|shadow| match shadow.paths[path(shadow)].carrier {
                Carrier::Alone(_) => None,
                Carrier::Shared(class) => Some(class),
            }),
            receive: self.takes(|shadow| Some(shadow.paths[path(shadow)].receive)).unwrap_or_default(),
        }
    }

    /// Whether messages of the last path do something that is not differentiated: windows that grow, ports that
    /// depend on senders, bursts.
    pub(super) fn last_path_varies(&self) -> bool {
        self.own
            .paths
            .last()
            .is_some_and(|path| path.terms.ramp.is_some() || path.terms.incast.is_some() || path.terms.bursts.is_some())
    }

    /// The derivative of an exchange with a known total time.
    pub(super) fn of_whole(&self, group_exchange: u32) -> Dual {
        self.time(|shadow| shadow.wholes.get(&group_exchange).copied().unwrap_or(0.0))
    }
}
