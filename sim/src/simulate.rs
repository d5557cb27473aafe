//! `simulate`: predicts the timeline of a program on a platform.

use std::sync::Arc;

use lockstep_models::{Claim, Driver, Op, Program, Timeline};
use lockstep_topology::cluster::{Device, DeviceKind};
use lockstep_topology::{InputError, Rank, Time};

use crate::costs::Cost;
use crate::engine::{Engine, Job, Jobs};
use crate::error::SimError;
use crate::fluid::{Fluid, System};
use crate::fold::renumber::{self, Numbers};
use crate::fold::{self, FoldRule, Folding};
use crate::machine::{Resources, Utilisation};
use crate::orbits::Orbits;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::supply::Supply;
use crate::trace::Dual;
use crate::traffic::Traffic;

/// Bytes per second that a host's storage writes where the cluster does not state it.
pub const ASSUMED_STORAGE_BYTES_PER_S: f64 = 1e9;

/// Options of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimOptions {
    /// Iterations before the counted ones.
    pub warm_up: u32,
    /// Iterations that statistics count.
    pub counted: u32,
    /// Cores that one rank's kernels run on, on a CPU.
    pub threads_per_rank: u32,
    /// Whether ranks that a declared symmetry makes equal are simulated once.
    pub fold: FoldRule,
    /// Whether periodic repetitions and iterations are simulated one by one, and messages one by one instead of by
    /// recurrence; the times are equal, to the picosecond.
    pub long_way: bool,
    /// Most runs of tasks of which the timeline keeps spans; of more it keeps totals.
    pub max_spans: usize,
    /// Most spans, or pairs of ranks, that a folded run writes out for all ranks; of more it has those of
    /// simulated ranks.
    pub max_written: u64,
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions::SHORT
    }
}

impl SimOptions {
    /// Two iterations of warm-up, three counted: without noise they are equal.
    pub const SHORT: SimOptions = SimOptions {
        warm_up: 2,
        counted: 3,
        threads_per_rank: 1,
        fold: FoldRule::Exact,
        long_way: false,
        max_spans: 1_000_000,
        max_written: fold::WRITTEN_OUT,
    };

    /// The driver that runs these iterations and no more.
    pub fn driver(&self) -> Driver {
        Driver::fixed(self.warm_up.saturating_add(self.counted))
    }
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Every task of every rank; above [`SimOptions::max_written`] of those only tasks of representatives, above
    /// [`SimOptions::max_spans`] totals.
    pub timeline: Timeline,
    /// Bytes from each sender to each receiver.
    pub traffic: Traffic,
    /// Mean use of each resource over the counted steps, the busiest first; with the α-β network, links are
    /// not among them.
    pub utilisation: Vec<Utilisation>,
    /// Which ranks were simulated.
    pub folding: Folding,
    /// Which learner got which micro-batch, where they claim them; in the order of claims.
    pub claims: Vec<Claim>,
    /// Assumptions, and how ranks were folded, for display.
    pub notes: Vec<String>,
}

/// Predicts the timeline of `program` on `platform`, for the iterations that `driver` asks for.
///
/// # Errors
/// Ranks without a place, devices that cannot reach each other, invalid costs; a deadlock.
pub fn simulate(
    program: &Program,
    platform: &Platform<'_>,
    driver: Driver,
    options: &SimOptions,
) -> Result<Prediction, SimError> {
    simulate_with(System::new(), program, platform, driver, options)
}

/// As [`simulate`], with a given fluid solver (empty): the slow one is the reference for the fast one.
///
/// # Errors
/// As there.
pub fn simulate_with<F: Fluid + Clone>(
    fluid: F,
    program: &Program,
    platform: &Platform<'_>,
    driver: Driver,
    options: &SimOptions,
) -> Result<Prediction, SimError> {
    let numbers = renumber::best(program, platform, options.fold);
    simulate_by(fluid, &numbers, program, platform, driver, options)
}

/// As [`simulate_with`], for known numbers of ranks.
pub(crate) fn simulate_by<F: Fluid + Clone>(
    fluid: F,
    (renumbered, orbits): &Numbers,
    program: &Program,
    platform: &Platform<'_>,
    driver: Driver,
    options: &SimOptions,
) -> Result<Prediction, SimError> {
    platform.check(program.ranks())?;
    let Some(renumbered) = renumbered else {
        return Ok(simulate_folded(fluid, program, platform, driver, options, orbits.clone())?.0);
    };
    let here = renumbered.platform(platform);
    let (mut predicted, _) = simulate_folded(fluid, &renumbered.program, &here, driver, options, orbits.clone())?;
    renumbered.back(&mut predicted.timeline.spans, &mut predicted.traffic);
    Ok(predicted)
}

/// As [`simulate_with`], for the ranks of `orbits`.
pub(crate) fn simulate_folded<F: Fluid + Clone>(
    fluid: F,
    program: &Program,
    platform: &Platform<'_>,
    driver: Driver,
    options: &SimOptions,
    orbits: (Orbits, Folding),
) -> Result<(Prediction, Option<Vec<Dual>>), SimError> {
    let driver = driver.serving(program, |rank| platform.hosting.process(Rank(rank)));
    let supply = Supply::of(program, platform)?;
    let (outcome, folding) = fold::or_unfolded(orbits, |orbits| {
        let plan = Plan::new(program, orbits.count(program.ranks()))?;
        let mut resources = Resources::new(platform, fluid.clone(), orbits);
        let threads = options.threads_per_rank;
        let mut found = jobs(program, threads, &mut resources, (supply.as_ref(), false))?;
        let late = supply.and_then(Supply::when_late);
        let late = late.map(|late| jobs(program, threads, &mut resources, (Some(&late), false))).transpose()?;
        // The lists of ranks with late threads follow all others.
        let late = late.map(|late| found.append(late));
        let JobLists { lists, of_rank, upload_latencies, .. } = found;
        let orbits = resources.orbits().clone();
        resources.fluid.prepare(Some(program), threads, &orbits)?;
        let mut engine = Engine::new(&plan, driver.clone(), resources, lists, &of_rank);
        engine.long_way = options.long_way;
        (engine.upload_latencies, engine.late) = (upload_latencies, late);
        engine.record.limit = options.max_spans;
        engine.run(options.max_written)
    })?;
    let timeline = Timeline { totals: outcome.totals, ..Timeline::of(outcome.spans, options.warm_up) };
    let (traffic, derivatives) = (outcome.traffic, outcome.derivatives);
    let utilisation = per_step(outcome.utilisation, outcome.end, &timeline);
    let mut notes = platform.costs.notes(program);
    notes.extend(driver.note().map(str::to_owned));
    notes.extend(outcome.of_libraries);
    if folding != Folding::Off {
        notes.push(folding.to_string());
    }
    Ok((Prediction { timeline, traffic, utilisation, folding, claims: outcome.claims, notes }, derivatives))
}

/// Shares of the whole run as shares of its counted steps: every iteration does the same work, so what a step uses is
/// the run's use over its iterations.
fn per_step(mut utilisation: Vec<Utilisation>, end: Time, timeline: &Timeline) -> Vec<Utilisation> {
    let steps = timeline.steps();
    let seconds: f64 = steps.iter().map(|step| step.seconds()).sum();
    let (run, iterations) = (end.as_secs_f64(), steps.last().map_or(0, |step| step.iteration + 1));
    if seconds > 0.0 {
        let factor = run / f64::from(iterations) / (seconds / steps.len() as f64);
        utilisation.iter_mut().for_each(|used| used.share = (used.share * factor).min(1.0));
    }
    utilisation
}

/// The jobs of each role on each device in use.
#[derive(Default)]
pub(crate) struct JobLists {
    pub(crate) lists: Vec<Jobs>,
    /// The list of each rank.
    pub(crate) of_rank: Vec<u32>,
    /// By list: the first one whose jobs cost the same.
    pub(crate) like: Vec<u32>,
    /// By list: time from the start of an upload until its bytes flow.
    upload_latencies: Vec<Time>,
}

impl JobLists {
    /// Adds the lists of the same ranks under other circumstances; returns the offset from a rank's own list.
    fn append(&mut self, other: JobLists) -> u32 {
        let behind = self.lists.len() as u32;
        self.lists.extend(other.lists);
        self.upload_latencies.extend(other.upload_latencies);
        behind
    }
}

/// The jobs of `program` on `resources`, with the input costs of `supply`; with `first_alone`, lists that cost the same
/// as an earlier one are left empty.
pub(crate) fn jobs<F: Fluid>(
    program: &Program,
    threads: u32,
    resources: &mut Resources<'_, F>,
    (supply, first_alone): (Option<&Supply<'_>>, bool),
) -> Result<JobLists, InputError> {
    let platform = resources.platform;
    let count = resources.orbits().count(program.ranks());
    let mut found = JobLists { of_rank: vec![0; count as usize], ..JobLists::default() };
    for role in &program.roles {
        let loads = (0..role.tasks.len()).filter(|id| matches!(role.tasks[*id].op, Op::Load { samples: 1.., .. }));
        let loads: u32 = loads.map(|id| role.runs_of(id)).sum();
        // Ranks that copy other rows have other costs.
        let axis =
            role.tasks.iter().find_map(|task| if let Op::Copy(copies) = &task.op { copies.axis() } else { None });
        let mut lists_on: Vec<Vec<(u32, u32)>> = vec![Vec::new(); platform.cluster.devices().len()];
        let mut known: Vec<(u32, &DeviceKind, u32, Vec<Option<Cost>>)> = Vec::new();
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
            let same =
                |(other, kind, ..): &&(u32, &DeviceKind, _, _)| *other == coordinate && alike(kind, &device.kind);
            let at_hand = platform.costs.alike().then(|| known.iter().find(same)).flatten();
            found.like.push(at_hand.map_or(own, |(_, _, list, _)| *list));
            let mut priced = Vec::new();
            let costs = match at_hand {
                Some((.., costs)) => costs,
                None => {
                    let of_load = |op: &Op| {
                        let Op::Load { samples: samples @ 1.., .. } = op else { return None };
                        supply?.load(device, *samples, loads, || platform.costs.load(device, program, *samples))
                    };
                    let cost = |op: &Op| of_load(op).or_else(|| cost(op, program, platform, device, rank));
                    priced.extend(role.tasks.iter().map(|task| cost(&task.op)));
                    &priced
                }
            };
            if first_alone && at_hand.is_some() {
                if costs.iter().any(Option::is_some) {
                    resources.know(device)?;
                }
                found.lists.push(Vec::new());
                found.upload_latencies.push(Time::ZERO);
                continue;
            }
            let mut list = Vec::with_capacity(role.tasks.len());
            let (mut latency, sample_elements) = (Time::ZERO, program.model.input().elements());
            for (task, cost) in role.tasks.iter().zip(costs) {
                let Some(cost) = *cost else {
                    list.push(None);
                    continue;
                };
                check(&task.name, cost)?;
                let input =
                    supply.map(|supply| supply.job(&task.op, sample_elements, device, resources)).transpose()?;
                if let Some((job, later)) = input.flatten() {
                    check(&task.name, Cost { seconds: job.seconds, ..Cost::default() })?;
                    latency = latency.max(later);
                    list.push(Some(job));
                    continue;
                }
                list.push(Some(Job {
                    class: resources.task(device, cost, threads)?,
                    seconds: cost.seconds,
                    threads: 1,
                }));
            }
            found.lists.push(list);
            found.upload_latencies.push(latency);
            if at_hand.is_none() && !role.tasks.iter().any(|task| matches!(task.op, Op::Save { .. })) {
                known.push((coordinate, &device.kind, own, priced));
            }
        }
    }
    Ok(found)
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
        Op::Compute { chain, phase, samples, .. } => costs.compute(device, program, *chain, *phase, *samples),
        Op::Labels { samples, .. } => costs.moved(device, u64::from(*samples)),
        // No time where no cost is given.
        Op::Read { .. } | Op::Decode { .. } | Op::Upload { .. } => Cost::default(),
        Op::Samples { to, elements } => costs.samples(device, program, *to, *elements),
        Op::Save { bytes } => saved(platform, device, *bytes),
        // The device is idle meanwhile.
        Op::Host { calls, each } => {
            Cost { seconds: f64::from(*calls) * each.as_secs_f64(), memory: 0.0, occupancy: 0.0 }
        }
        Op::Copy(copies) => costs.moved(device, copies.at(&program.mesh, rank).moved()),
        // The largest part: that of the first ranks along the axes.
        Op::Elementwise(of) => {
            let part = program.own_part(&of.range, of.shared, 0);
            costs.moved(device, of.formula.accesses() * (part.end - part.start))
        }
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
