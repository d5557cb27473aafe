//! Computes sensitivities: by how many percent the step's time changes when a parameter changes by one, d log time / d
//! log parameter.
//!
//! They are derivatives (`subject.rs`), or central differences of simulations with the parameter a little larger and a
//! little smaller. Multiplying every rate by s and dividing every time by s divides the step's time by s exactly, so
//! the sensitivities to rates minus those to times add up to −1 (Euler's theorem), except where a small change alters
//! the order of events.

use std::collections::BTreeSet;

use lockstep_models::Program;
use lockstep_topology::Rank;
use lockstep_topology::cluster::{DeviceId, DeviceKind, Figure};

use super::perturbed::{Changed, CostParameter, OwnTime, Perturbed};
use crate::collective::{CollectiveRun, CollectiveTime, simulate_collective};
use crate::conditions::Conditions;
use crate::derivative::differentiate_collective;
use crate::error::SimError;
use crate::platform::Platform;
use crate::trace::LANES;
use crate::traffic::Traffic;

/// Half of the distance between the two simulations, in the logarithm of the parameter.
pub(super) const STEP: f64 = 0.02;
/// Smaller differences of sensitivities count as none.
pub(super) const SMOOTH: f64 = 0.01;
/// Pairs of devices whose links are listed; those of a large cluster repeat.
const MOST_PAIRS: usize = 4096;
/// Messages of a collective beyond which they are not simulated one by one for derivatives: many rings need no
/// events otherwise.
const MOST_MESSAGES: u64 = 1 << 17;

/// How a prediction depends on a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensitivity {
    /// The parameter.
    pub parameter: CostParameter,
    /// d log step time / d log parameter: −1 for a rate that alone decides, 0 where it does not matter.
    pub elasticity: f64,
}

impl Sensitivity {
    /// The sensitivity to a parameter, where a change that makes everything take longer lengthens the step by this
    /// share of the change.
    pub(super) fn of(parameter: CostParameter, change: f64) -> Sensitivity {
        Sensitivity { parameter, elasticity: if parameter.is_rate() { -change } else { change } }
    }

    /// d log time / d log of the inverse of a time: how far higher speed shortens the step, as a negative number.
    pub(super) fn to_faster(self) -> f64 {
        if self.parameter.is_rate() { self.elasticity } else { -self.elasticity }
    }
}

/// The parameters that a prediction with this traffic may depend on: links on the routes of its messages, devices with
/// ranks, the costs' own times; rates first.
///
/// # Errors
/// Devices that cannot reach each other.
pub fn parameters(
    program: &Program,
    platform: &Platform<'_>,
    traffic: &Traffic,
) -> Result<Vec<CostParameter>, SimError> {
    let mut neighbours = BTreeSet::new();
    for role in &program.roles {
        for (_, exchange) in role.exchanges().filter(|(_, exchange)| exchange.algorithm.library().is_some()) {
            let members: Vec<u32> = program.group_of(exchange, role.ranks.first()).iter().take(MOST_PAIRS).collect();
            neighbours.extend(members.windows(2).map(|pair| (pair[0], pair[1])));
        }
    }
    parameters_of(platform, traffic, &neighbours)
}

/// The same, where collectives with a known total time use the routes between these neighbours.
fn parameters_of(
    platform: &Platform<'_>,
    traffic: &Traffic,
    neighbours: &BTreeSet<(u32, u32)>,
) -> Result<Vec<CostParameter>, SimError> {
    let mut found: BTreeSet<CostParameter> = BTreeSet::new();
    let mut pairs: BTreeSet<(DeviceId, DeviceId)> = BTreeSet::new();
    for (from, to) in neighbours.iter().chain(traffic.pairs.keys()) {
        if pairs.len() == MOST_PAIRS {
            break;
        }
        pairs.insert((platform.placement.device(Rank(*from)), platform.placement.device(Rank(*to))));
    }
    for (from, to) in &pairs {
        for link in platform.cluster.route(*from, *to)?.links {
            let kind = platform.cluster.link(link).kind;
            found.insert(CostParameter::Cluster(Figure::bandwidth_of(kind)));
            found.insert(CostParameter::Cluster(Figure::Latency(kind)));
            found.insert(CostParameter::Cluster(Figure::Overhead(kind)));
        }
    }
    for rank in platform.placement.all() {
        let device = &platform.cluster.devices()[platform.placement.device(rank).0 as usize];
        let figures = match device.kind {
            DeviceKind::Cpu(_) => [Figure::CpuPeak, Figure::CpuMemory].as_slice(),
            DeviceKind::Gpu(_) => &[Figure::GpuPeak, Figure::GpuMemory, Figure::Launch],
            DeviceKind::Switch(_) => &[],
        };
        found.extend(figures.iter().map(|figure| CostParameter::Cluster(*figure)));
    }
    found.insert(CostParameter::Own(OwnTime::Kernels));
    if !traffic.pairs.is_empty() {
        let messages = [OwnTime::MessageLatency, OwnTime::MessageOverhead, OwnTime::MessageBytes];
        found.extend(messages.map(CostParameter::Own));
    }
    if !neighbours.is_empty() {
        found.insert(CostParameter::Own(OwnTime::Library));
    }
    Ok(found.into_iter().collect())
}

/// The sensitivities of one collective alone: of its time to what moves and adds its bytes, since nothing else happens.
/// Uses derivatives of one simulation, if two simulations agree with them for the strongest. Otherwise, and where a run
/// does something that is not differentiated, or has far more messages than are otherwise simulated one by one, uses
/// differences of two simulations for each parameter.
///
/// # Errors
/// As [`simulate_collective`].
pub fn collective_sensitivities(
    run: &CollectiveRun,
    platform: &Platform<'_>,
    time: &CollectiveTime,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Sensitivity>, SimError> {
    // A collective with a known total time sends no counted messages; the routes between neighbours are used.
    let whole = run.algorithm.library().is_some();
    let last = if whole { run.group.members().saturating_sub(1) } else { 0 };
    let neighbours = (0..last).map(|rank| (rank, rank + 1)).collect();
    let mut parameters = parameters_of(platform, &time.traffic, &neighbours)?;
    let computes = [
        CostParameter::Own(OwnTime::Kernels),
        CostParameter::Cluster(Figure::CpuPeak),
        CostParameter::Cluster(Figure::GpuPeak),
    ];
    parameters.retain(|parameter| !computes.contains(parameter));
    progress(0, 1);
    let seconds = |platform: &Platform<'_>| Ok(simulate_collective(run, platform)?.time.as_secs_f64());
    let mut all = collective_derivatives(run, platform, time, &parameters)?.unwrap_or_default();
    strongest_first(&mut all);
    if let Some(strongest) = all.first() {
        let found = by_differences(platform, &[strongest.parameter], &mut |_, _| {}, seconds)?;
        if (found[0].elasticity - strongest.elasticity).abs() < SMOOTH {
            return Ok(all);
        }
    }
    by_differences(platform, &parameters, progress, seconds)
}

/// The same as derivatives, in the order of `parameters`, where that is possible and does not take too long.
pub(crate) fn collective_derivatives(
    run: &CollectiveRun,
    platform: &Platform<'_>,
    time: &CollectiveTime,
    parameters: &[CostParameter],
) -> Result<Option<Vec<Sensitivity>>, SimError> {
    let plain = *platform.conditions == Conditions::default() && platform.costs.noise().is_none();
    let copies = if time.traffic.copies == 1 { u64::from(time.folding.copies()) } else { 1 };
    let messages: u64 = time.traffic.pairs.values().map(|sent| sent.messages).sum();
    if !plain || messages / copies > MOST_MESSAGES {
        return Ok(None);
    }
    let seconds = time.time.as_secs_f64();
    let mut all = Vec::with_capacity(parameters.len());
    for parameters in parameters.chunks(LANES) {
        let changed = Changed::new(platform, parameters);
        let (found, by) = differentiate_collective(run, platform, &changed.platforms(platform))?;
        let Some(by) = by.filter(|_| found == time.time && seconds > 0.0) else { return Ok(None) };
        let of = |(lane, parameter): (usize, &CostParameter)| Sensitivity::of(*parameter, by.by(lane) / seconds);
        all.extend(parameters.iter().enumerate().map(of));
    }
    Ok(Some(all))
}

/// How `seconds` depends on each parameter.
pub(super) fn by_differences(
    platform: &Platform<'_>,
    parameters: &[CostParameter],
    progress: &mut dyn FnMut(usize, usize),
    seconds: impl Fn(&Platform<'_>) -> Result<f64, SimError> + Copy,
) -> Result<Vec<Sensitivity>, SimError> {
    let mut all = Vec::with_capacity(parameters.len());
    for (done, parameter) in parameters.iter().enumerate() {
        progress(2 * done, 2 * parameters.len());
        let of = |factor: f64| on_scaled(platform, (&[], 1.0), (&[*parameter], factor), seconds);
        let (more, less) = (of(libm::exp(STEP))?, of(libm::exp(-STEP))?);
        let elasticity = if more > 0.0 && less > 0.0 { libm::log(more / less) / (2.0 * STEP) } else { 0.0 };
        all.push(Sensitivity { parameter: *parameter, elasticity });
    }
    strongest_first(&mut all);
    Ok(all)
}

/// Sorts by strength, then by parameter.
pub(super) fn strongest_first(all: &mut [Sensitivity]) {
    all.sort_by(|a, b| b.elasticity.abs().total_cmp(&a.elasticity.abs()).then(a.parameter.cmp(&b.parameter)));
}

/// The result of `run` on the platform with these rates and times multiplied.
pub(crate) fn on_scaled<T>(
    platform: &Platform<'_>,
    rates: (&[CostParameter], f64),
    times: (&[CostParameter], f64),
    run: impl FnOnce(&Platform<'_>) -> Result<T, SimError>,
) -> Result<T, SimError> {
    let of_cluster = |figure: Figure| {
        let scaled = |(parameters, factor): (&[CostParameter], f64)| {
            if parameters.contains(&CostParameter::Cluster(figure)) { factor } else { 1.0 }
        };
        scaled(rates) * scaled(times)
    };
    let cluster = platform.cluster.scaled(&of_cluster);
    let own = |parameter: &CostParameter| match parameter {
        CostParameter::Own(time) => Some(*time),
        CostParameter::Cluster(_) => None,
    };
    let own_times: Vec<OwnTime> = times.0.iter().filter_map(own).collect();
    let platform = Platform { cluster: &cluster, ..*platform };
    if own_times.is_empty() {
        return run(&platform);
    }
    let costs = Perturbed::new(platform.costs, &cluster, times.1, &own_times);
    run(&Platform { costs: &costs, ..platform })
}
