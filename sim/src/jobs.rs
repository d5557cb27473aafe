//! Prices the tasks of a program: the jobs of each role on each device in use.

use std::sync::Arc;

use lockstep_models::profile::formula_key;
use lockstep_models::{Op, Program, Role};
use lockstep_topology::cluster::{Device, DeviceKind};
use lockstep_topology::{Dtype, InputError, Rank, Time};

use crate::costs::{Cost, in_fp32};
use crate::engine::{Job, Jobs};
use crate::fluid::Fluid;
use crate::machine::Resources;
use crate::platform::Platform;
use crate::supply::Supply;

/// Bytes per second that a host's storage writes where the cluster does not state it.
pub const ASSUMED_STORAGE_BYTES_PER_S: f64 = 1e9;

/// The jobs of each role on each device in use.
#[derive(Default)]
pub(crate) struct JobLists {
    pub(crate) lists: Vec<Jobs>,
    /// The list of each rank.
    pub(crate) of_rank: Vec<u32>,
    /// By list: the first one whose jobs cost the same.
    pub(crate) like: Vec<u32>,
    /// By list: time from the start of an upload until its bytes flow.
    pub(crate) upload_latencies: Vec<Time>,
}

impl JobLists {
    /// The jobs of `program` on `resources`, with the input costs of `supply`; with `first_alone`, lists that cost the
    /// same as an earlier one are left empty.
    ///
    /// # Errors
    /// A cost that is negative, infinite or too long; errors of the solver.
    pub(crate) fn of<F: Fluid>(
        program: &Program,
        threads: u32,
        resources: &mut Resources<'_, F>,
        (supply, first_alone): (Option<&Supply<'_>>, bool),
    ) -> Result<JobLists, InputError> {
        let count = resources.orbits().count(program.ranks());
        let mut found = JobLists { of_rank: vec![0; count as usize], ..JobLists::default() };
        let mut pricer = Pricer { program, threads, resources, supply, first_alone };
        program.roles.iter().try_for_each(|role| pricer.role(role, &mut found))?;
        Ok(found)
    }

    /// Adds the lists of the same ranks under other circumstances; returns the offset from a rank's own list.
    pub(crate) fn append(&mut self, other: JobLists) -> u32 {
        let behind = self.lists.len() as u32;
        self.lists.extend(other.lists);
        self.upload_latencies.extend(other.upload_latencies);
        behind
    }
}

/// Prices the tasks of a program, role by role.
struct Pricer<'p, 'a, F> {
    program: &'p Program,
    threads: u32,
    resources: &'p mut Resources<'a, F>,
    supply: Option<&'p Supply<'p>>,
    first_alone: bool,
}

/// Costs of a role's tasks that other devices of the same kind have too.
struct Known<'a> {
    coordinate: u32,
    kind: &'a DeviceKind,
    list: u32,
    costs: Vec<Option<Cost>>,
}

impl<F: Fluid> Pricer<'_, '_, F> {
    /// Adds the lists of a role: one for each device, and for each coordinate along which its ranks copy other rows.
    fn role(&mut self, role: &Role, found: &mut JobLists) -> Result<(), InputError> {
        let (program, platform) = (self.program, self.resources.platform);
        // Ranks that copy other rows have other costs.
        let axis =
            role.tasks.iter().find_map(|task| if let Op::Copy(copies) = &task.op { copies.axis() } else { None });
        let saves = role.tasks.iter().any(|task| matches!(task.op, Op::Save { .. }));
        let mut lists_on: Vec<Vec<(u32, u32)>> = vec![Vec::new(); platform.cluster.devices().len()];
        let mut known: Vec<Known<'_>> = Vec::new();
        let count = found.of_rank.len() as u32;
        for rank in role.ranks.iter().take_while(|rank| *rank < count) {
            let device = &platform.cluster.devices()[platform.placement.device(Rank(rank)).0 as usize];
            let coordinate = axis.map_or(0, |axis| program.mesh.coordinate(axis, rank));
            let here = &mut lists_on[device.id.0 as usize];
            if let Some((_, list)) = here.iter().find(|(other, _)| *other == coordinate) {
                found.of_rank[rank as usize] = *list;
                continue;
            }
            let own = found.lists.len() as u32;
            here.push((coordinate, own));
            found.of_rank[rank as usize] = own;
            let same = |other: &&Known<'_>| other.coordinate == coordinate && alike(other.kind, &device.kind);
            let at_hand = platform.costs.alike().then(|| known.iter().find(same)).flatten();
            found.like.push(at_hand.map_or(own, |known| known.list));
            let (list, latency) = match at_hand {
                Some(Known { costs, .. }) if self.first_alone => {
                    if costs.iter().any(Option::is_some) {
                        self.resources.know(device)?;
                    }
                    (Vec::new(), Time::ZERO)
                }
                Some(Known { costs, .. }) => self.list(role, device, costs)?,
                None => {
                    let costs = self.costs(role, device, rank);
                    let list = self.list(role, device, &costs)?;
                    if !saves {
                        known.push(Known { coordinate, kind: &device.kind, list: own, costs });
                    }
                    list
                }
            };
            found.lists.push(list);
            found.upload_latencies.push(latency);
        }
        Ok(())
    }

    /// The cost of each task of a role for `rank` on its device.
    fn costs(&self, role: &Role, device: &Device, rank: u32) -> Vec<Option<Cost>> {
        let (program, platform) = (self.program, self.resources.platform);
        let loads = (0..role.tasks.len()).filter(|id| matches!(role.tasks[*id].op, Op::Load { samples: 1.., .. }));
        let loads: u32 = loads.map(|id| role.runs_of(id)).sum();
        let of_load = |op: &Op| {
            let Op::Load { samples: samples @ 1.., .. } = op else { return None };
            self.supply?.load(device, *samples, loads, || platform.costs.load(device, program, *samples))
        };
        let cost = |op: &Op| of_load(op).or_else(|| cost(op, program, platform, device, rank));
        role.tasks.iter().map(|task| cost(&task.op)).collect()
    }

    /// The jobs of a role on `device`, whose tasks have these costs, and the latency of its uploads.
    fn list(&mut self, role: &Role, device: &Device, costs: &[Option<Cost>]) -> Result<(Jobs, Time), InputError> {
        let mut list = Vec::with_capacity(role.tasks.len());
        let (mut latency, sample_bytes) = (Time::ZERO, self.program.model.sample().bytes());
        for (task, cost) in role.tasks.iter().zip(costs) {
            let Some(cost) = *cost else {
                list.push(None);
                continue;
            };
            check(&task.name, cost)?;
            let input = self.supply.map(|supply| supply.job(&task.op, sample_bytes, device, self.resources));
            if let Some((job, later)) = input.transpose()?.flatten() {
                check(&task.name, Cost { seconds: job.seconds, ..Cost::default() })?;
                latency = latency.max(later);
                list.push(Some(job));
                continue;
            }
            let class = self.resources.task(device, cost, self.threads)?;
            list.push(Some(Job { class, seconds: cost.seconds, threads: 1 }));
        }
        Ok((list, latency))
    }
}

/// Whether two devices have one data sheet.
fn alike(one: &DeviceKind, other: &DeviceKind) -> bool {
    match (one, other) {
        (DeviceKind::Gpu(one), DeviceKind::Gpu(other)) => Arc::ptr_eq(one, other),
        (DeviceKind::Cpu(one), DeviceKind::Cpu(other)) => one == other,
        _ => false,
    }
}

/// The cost of a task for `rank` on its device; `None` where it is no job of a device.
pub(crate) fn cost(op: &Op, program: &Program, platform: &Platform<'_>, device: &Device, rank: u32) -> Option<Cost> {
    let costs = platform.costs;
    let cost = match op {
        // Another rank does it for this one.
        Op::Load { samples: 0, .. } | Op::Compute { samples: 0, .. } => Cost::default(),
        Op::Load { samples, .. } => costs.load(device, program, *samples),
        Op::Compute { chain, phase, samples, .. } => {
            costs.compute(device, program, *chain, phase.as_measured(), *samples)
        }
        Op::Labels { samples, .. } => {
            let each = program.model.labels().map_or(0, |labels| labels.bytes());
            costs.moved(device, Dtype::F32.elements_within(u64::from(*samples) * each))
        }
        // No time where no cost is given.
        Op::Read { .. } | Op::Decode { .. } | Op::Upload { .. } => Cost::default(),
        Op::Samples { to, bytes } => costs.samples(device, program, *to, *bytes),
        Op::Save { bytes } => saved(platform, device, *bytes),
        // The device is idle meanwhile.
        Op::Host { calls, each } => {
            Cost { seconds: f64::from(*calls) * each.as_secs_f64(), memory: 0.0, occupancy: 0.0 }
        }
        Op::Copy(copies) => costs.moved(device, copies.at(&program.mesh, rank).moved()),
        Op::Elementwise(of) => {
            let bytes = program.bytes_moved(&of.formula);
            match formula_key(program, op) {
                Some(key) => costs.formula(device, &key.name, key.elements, bytes),
                None => {
                    // The largest part: that of the first ranks along the axes.
                    let part = program.own_part(&of.range, of.shared, 0);
                    costs.moved(device, in_fp32(bytes * (part.end - part.start)))
                }
            }
        }
        // Each element is read once.
        Op::Squares(of) => formula_key(program, op).map_or_else(Cost::default, |key| {
            costs.formula(device, &key.name, key.elements, program.dtype(of.buffer).bytes(1))
        }),
        Op::Repeat { .. } | Op::Schedule(_) | Op::Exchange(_) => return None,
    };
    Some(cost)
}

/// Writing `bytes` bytes to the storage of the device's host; the device is idle meanwhile.
fn saved(platform: &Platform<'_>, device: &Device, bytes: u64) -> Cost {
    let storage = platform.cluster.hosts()[device.host.0 as usize].storage;
    let rate = storage.map_or(ASSUMED_STORAGE_BYTES_PER_S, |storage| storage.bytes_per_s());
    Cost { seconds: bytes as f64 / rate, memory: 0.0, occupancy: 0.0 }
}

/// Refuses a cost that is no time, or too long a one.
fn check(task: &str, cost: Cost) -> Result<(), InputError> {
    let longest = Time::MAX.as_secs_f64();
    if (0.0..longest).contains(&cost.seconds) && cost.memory >= 0.0 && cost.memory.is_finite() {
        return Ok(());
    }
    let message = if cost.seconds >= longest && cost.seconds.is_finite() {
        "takes longer than the 213 days that are simulated: use a smaller batch, or look for a rate that is far too low"
    } else {
        "seconds and memory share must be zero or positive, and finite; look into the profile or the cluster"
    };
    Err(InputError::new("costs", format!("{task}: {cost:?}"), message))
}
