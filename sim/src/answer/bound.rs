//! Finds the bottleneck of a step: the resource that is busy for its largest share, or waiting if none is.
//!
//! A CPU counts as busy when the threads of its ranks are, not when all its cores are. The part of the step that is
//! neither computation nor the busiest link is waiting: for late members, else for latencies.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_models::{Op, Program, Span, Task, Timeline, overlap};
use lockstep_topology::cluster::{Device, DeviceId, DeviceKind, Figure};
use lockstep_topology::{Cluster, Rank, Time};

use crate::collective::CollectiveTime;
use crate::jobs::cost;
use crate::machine::{Part, Utilisation};
use crate::platform::Platform;
use crate::simulate::{Prediction, SimOptions};

/// The name of waiting for messages in flight.
pub const LATENCY: &str = "waiting: latency";
/// The name of waiting for other members of an exchange.
pub const IMBALANCE: &str = "waiting: imbalance";

/// The name of kernels that leave multiprocessors idle: too few blocks, or the time from one kernel to the next.
pub const UNFILLED: &str = "kernels that do not fill the GPU";

/// The use of all resources of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassUse {
    /// `cores`, `multiprocessors`, `host memory`, `GPU memory`, or a kind of link.
    pub class: String,
    /// The busiest one.
    pub busiest: String,
    /// Its mean share of the step, from 0 to 1.
    pub share: f64,
    /// The mean over all resources in use.
    pub mean: f64,
    /// How many are in use.
    pub resources: u32,
}

/// What bounds a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// A resource, [`LATENCY`], [`IMBALANCE`] or [`UNFILLED`]; a GPU's memory where its bandwidth limits the kernels that
    /// hold the multiprocessors.
    pub by: String,
    /// Its share of the step, from 0 to 1; of such a memory, the share of kernels' time that follows its bandwidth.
    pub share: f64,
    /// Every class of resources, the busiest first.
    pub classes: Vec<ClassUse>,
    /// Share of the step in which nothing is busy, because of latencies.
    pub latency: f64,
    /// And because of late members.
    pub imbalance: f64,
    /// Seconds of a step in which a worker waits for communication ([`Timeline::exposed_comm_s`]).
    pub exposed_s: f64,
    /// Seconds of waiting for a batch, where input is tasks ([`Timeline::exposed_input_s`]).
    pub input_s: Option<f64>,
}

/// What bounds the steps of a prediction.
pub fn bound(program: &Program, platform: &Platform<'_>, options: &SimOptions, prediction: &Prediction) -> Bound {
    let threads = |used: &Utilisation| -> Utilisation {
        let Part::Compute(device) = used.part else { return used.clone() };
        let DeviceKind::Cpu(cpu) = &platform.cluster.devices()[device.0 as usize].kind else { return used.clone() };
        let ranks = platform.ranks_beside(device);
        // Decoding threads may have all cores.
        let usable = match program.has_input() {
            true => cpu.cores,
            false => ranks.saturating_mul(options.threads_per_rank.max(1)).clamp(1, cpu.cores),
        };
        let share = (used.share * f64::from(cpu.cores) / f64::from(usable)).min(1.0);
        let resource = if usable < cpu.cores {
            format!("{} ({usable} of {} in use)", used.resource, cpu.cores)
        } else {
            used.resource.clone()
        };
        Utilisation { share, resource, ..used.clone() }
    };
    let utilisation: Vec<Utilisation> = prediction.utilisation.iter().map(threads).collect();
    let classes = class_uses(platform.cluster, &utilisation);
    let step = prediction.timeline.step_time_s();
    let share = |seconds: f64| if step > 0.0 { (seconds / step).clamp(0.0, 1.0) } else { 0.0 };
    let busiest = |is: fn(Part) -> bool| {
        utilisation.iter().filter(|used| is(used.part)).map(|used| used.share).fold(0.0, f64::max)
    };
    let computing = busiest(|part| matches!(part, Part::Compute(_)));
    let exposed_s = prediction.timeline.exposed_comm_s(program);
    let input_s = prediction.timeline.exposed_input_s(program);
    let (late, exposed) = (share(input_s.unwrap_or(0.0)), share(exposed_s + input_s.unwrap_or(0.0)));
    let carrying = busiest(|part| matches!(part, Part::Link(_))).min(exposed);
    // A kernel that others slow down leaves a part of its core unused, but does not wait; waiting for a batch is
    // waiting for the tasks that make it.
    let waiting = (1.0 - computing - carrying).clamp(0.0, exposed);
    let waiting = (waiting - late).max(0.0);
    let imbalance = share(imbalance_s(program, &prediction.timeline)).min(waiting);
    let latency = waiting - imbalance;
    let unfilled = unfilled(platform, &utilisation, (1.0 - exposed).max(0.0));
    let first = classes.first().map(|class| (class.busiest.clone(), class.share));
    let first = first.map(|first| by_memory(program, platform, &utilisation, &first).unwrap_or(first));
    let mut candidates =
        vec![(LATENCY.to_owned(), latency), (IMBALANCE.to_owned(), imbalance), (UNFILLED.to_owned(), unfilled)];
    candidates.extend(first);
    let (by, share) = candidates
        .into_iter()
        .fold((LATENCY.to_owned(), 0.0), |best, other| if other.1 >= best.1 { other } else { best });
    Bound { by, share, classes, latency, imbalance, exposed_s, input_s }
}

/// The memory of the GPU whose multiprocessors are busiest, if its bandwidth limits its kernels for longer than its
/// arithmetic does; with the share of the step for which it does.
fn by_memory(
    program: &Program,
    platform: &Platform<'_>,
    utilisation: &[Utilisation],
    (busiest, share): &(String, f64),
) -> Option<(String, f64)> {
    let of = utilisation.iter().find(|used| used.resource == *busiest)?;
    let Part::Compute(device) = of.part else { return None };
    let limits = KernelLimits::of(program, platform, device)?;
    let memory = utilisation.iter().find(|used| used.part == Part::Memory(device))?;
    (limits.memory > limits.arithmetic).then(|| (memory.resource.clone(), share * limits.memory))
}

/// Share of a step in which the busiest GPU has a kernel but no block of it on its multiprocessors, when its ranks
/// compute for `computing` of the step.
fn unfilled(platform: &Platform<'_>, utilisation: &[Utilisation], computing: f64) -> f64 {
    let of_gpu = |used: &&Utilisation| match used.part {
        Part::Compute(device) => {
            matches!(platform.cluster.devices()[device.0 as usize].kind, DeviceKind::Gpu(_))
        }
        _ => false,
    };
    let filled = utilisation.iter().filter(of_gpu).map(|used| used.share).reduce(f64::max);
    filled.map_or(0.0, |filled| (computing - filled).max(0.0))
}

/// What bounds a collective alone: the busiest resource; or waiting for messages in flight, where even the busiest
/// resource is idle for longer than it is busy.
///
/// All members start at once, so none is late. A message's time on other wires counts as waiting here: in a tree one
/// level works at a time.
pub fn collective_bound(cluster: &Cluster, time: &CollectiveTime) -> Bound {
    let classes = class_uses(cluster, &time.utilisation);
    let (busiest, share) = classes.first().map_or((String::new(), 0.0), |class| (class.busiest.clone(), class.share));
    let latency = (1.0 - share).clamp(0.0, 1.0);
    let (by, share) = if latency > share { (LATENCY.to_owned(), latency) } else { (busiest, share) };
    Bound { by, share, classes, latency, imbalance: 0.0, exposed_s: time.time.as_secs_f64(), input_s: None }
}

/// Resources in use by class, the class with the busiest resource first.
pub fn class_uses(cluster: &Cluster, utilisation: &[Utilisation]) -> Vec<ClassUse> {
    let gpu = |device: DeviceId| matches!(cluster.devices()[device.0 as usize].kind, DeviceKind::Gpu(_));
    let mut classes: BTreeMap<String, ClassUse> = BTreeMap::new();
    for used in utilisation {
        let class = match used.part {
            Part::Compute(device) => if gpu(device) { "multiprocessors" } else { "cores" }.to_owned(),
            Part::Memory(device) => if gpu(device) { "GPU memory" } else { "host memory" }.to_owned(),
            Part::Link(link) => cluster.link(link).kind.name().to_owned(),
            Part::Storage(_) => "storage".to_owned(),
            Part::Decoders(_) => "decode threads".to_owned(),
        };
        let of_class = classes.entry(class.clone()).or_insert_with(|| ClassUse {
            class,
            busiest: used.resource.clone(),
            share: 0.0,
            mean: 0.0,
            resources: 0,
        });
        if used.share > of_class.share {
            of_class.share = used.share;
            of_class.busiest.clone_from(&used.resource);
        }
        of_class.mean += used.share;
        of_class.resources += 1;
    }
    let mut classes: Vec<ClassUse> = classes.into_values().collect();
    classes.iter_mut().for_each(|class| class.mean = (class.mean / f64::from(class.resources)).min(class.share));
    classes.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.class.cmp(&b.class)));
    classes
}

/// Mean seconds per step in which a worker waits in an exchange that another member has not started.
fn imbalance_s(program: &Program, timeline: &Timeline) -> f64 {
    let mut last: BTreeMap<(u32, u32, u32), Time> = BTreeMap::new();
    for run in overlap::of_workers(program, timeline) {
        let tasks = &program.roles[program.role_of(run[0].rank)].tasks;
        for span in run.iter().filter(|span| matches!(tasks[span.task as usize].op, Op::Exchange(_))) {
            let start = last.entry((span.task, span.iteration, span.repetition)).or_default();
            *start = (*start).max(span.start);
        }
    }
    let until_all_are_there = |span: &Span| match last.get(&(span.task, span.iteration, span.repetition)) {
        Some(start) => span.end.min(*start),
        None => span.end,
    };
    overlap::exchanges_until(program, timeline, until_all_are_there).iter().map(|exchange| exchange.exposed_s).sum()
}

/// The relative change of a figure, small beside the differences of layers.
const CHANGE: f64 = 1e-3;

/// What share of the time of a GPU's kernels follows its arithmetic, and what share its memory's bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
struct KernelLimits {
    arithmetic: f64,
    memory: f64,
}

impl KernelLimits {
    /// Of the first rank on `device`; `None` for other devices, and where its kernels take no time.
    fn of(program: &Program, platform: &Platform<'_>, device: DeviceId) -> Option<KernelLimits> {
        let device = &platform.cluster.devices()[device.0 as usize];
        let DeviceKind::Gpu(gpu) = &device.kind else { return None };
        let rank = (0..program.ranks()).find(|rank| platform.placement.device(Rank(*rank)) == device.id)?;
        let faster = |of: Figure| {
            let spec = gpu.scaled(&|figure| if figure == of { 1.0 + CHANGE } else { 1.0 });
            let mut faster = device.clone();
            faster.kind = DeviceKind::Gpu(Arc::new(spec));
            faster
        };
        let now = seconds(program, platform, device, rank);
        let share = |of| (1.0 - seconds(program, platform, &faster(of), rank) / now) / CHANGE;
        (now > 0.0).then(|| KernelLimits { arithmetic: share(Figure::GpuPeak), memory: share(Figure::GpuMemory) })
    }
}

/// The time of all kernels of a step of `rank` on `device`, one after the other.
fn seconds(program: &Program, platform: &Platform<'_>, device: &Device, rank: u32) -> f64 {
    let role = &program.roles[program.role_of(rank)];
    let each = |(id, task): (usize, &Task)| match task.op {
        Op::Compute { .. } | Op::Elementwise(_) | Op::Squares(_) | Op::Copy(_) => {
            let cost = cost(&task.op, program, platform, device, rank);
            cost.map_or(0.0, |cost| cost.seconds) * f64::from(role.runs_of(id))
        }
        _ => 0.0,
    };
    role.tasks.iter().enumerate().map(each).sum()
}
