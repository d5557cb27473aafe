//! Simulates one collective alone on a platform: the same engine as for a program, with a single exchange.

mod memory;

use lockstep_models::Driver;
use lockstep_topology::{Algorithm, Collective, Dtype, Group, InputError, Schedule, Time};

use crate::costs::{Costs, MessageCost, WithMessages};
use crate::engine::{Engine, Outcome};
use crate::error::SimError;
use crate::fluid::{Fluid, System};
use crate::fold::{self, FoldRule, Folding};
use crate::machine::{Resources, Utilisation};
use crate::network::Waits;
use crate::orbits::Orbits;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::rccl;
use crate::trace::Dual;
use crate::traffic::Traffic;

/// The most repetitions until bursts settle.
const MOST_RUNS: usize = 64;

/// A collective to time.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveRun {
    /// The collective.
    pub collective: Collective,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Its members, which are ranks 0, 1, 2 …, dedicated servers included.
    pub group: Group,
    /// Elements of its buffer.
    pub elements: u64,
    /// Their format.
    pub dtype: Dtype,
    /// Elements per lane; 0: the algorithm's own choice.
    pub chunk: u64,
    /// Lanes in flight; 0: the algorithm's own choice.
    pub window: u32,
    /// Whether members that a declared symmetry makes equal are simulated once.
    pub fold: FoldRule,
    /// Whether it is padded to equal parts if members then fold.
    pub padded: bool,
    /// Whether every message is an event even where times follow by recurrence; they are equal, to the picosecond.
    pub long_way: bool,
}

impl CollectiveRun {
    /// A run on fp32 in lanes of the algorithm's own choice, folded where that changes nothing.
    pub fn new(collective: Collective, algorithm: Algorithm, group: Group, elements: u64) -> CollectiveRun {
        let (chunk, window, fold, dtype) = (0, 0, FoldRule::Exact, Dtype::F32);
        let (padded, long_way) = (false, false);
        CollectiveRun { collective, algorithm, group, elements, dtype, chunk, window, fold, padded, long_way }
    }

    /// Bytes of its buffer.
    pub fn bytes(&self) -> u64 {
        self.dtype.bytes(self.elements)
    }

    /// Its lanes.
    ///
    /// # Errors
    /// As [`Schedule::of`].
    pub fn schedule(&self) -> Result<Schedule, InputError> {
        let buffer = (self.elements, self.dtype);
        Schedule::of(&self.collective, &self.algorithm, &self.group, buffer, self.chunk)
    }

    /// The costs when ranks only repeat this collective on the same buffer. Two ranks were timed: the buffers of more
    /// ranks take proportionally more of the shared caches.
    pub(crate) fn repeated<'a>(&self, costs: &'a dyn Costs) -> impl Costs + use<'a> {
        let bytes = self.bytes().saturating_mul(u64::from(self.group.members())) / 2;
        WithMessages::new(costs, move |pair, cost| match costs.repeated(pair, bytes) {
            Some((copy, sum)) => MessageCost { copy, sum, ..cost },
            None => cost,
        })
    }
}

/// The time of a collective.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveTime {
    /// From the common start to the last member's end.
    pub time: Time,
    /// Bytes of the buffer per second.
    pub algbw: f64,
    /// `algbw` times the least that any algorithm must move, so that it compares with the links (as
    /// nccl-tests define it).
    pub busbw: f64,
    /// Bytes from each sender to each receiver.
    pub traffic: Traffic,
    /// Mean use of each resource, the busiest first.
    pub utilisation: Vec<Utilisation>,
    /// Which members were simulated.
    pub folding: Folding,
    /// What the time assumes beyond the cluster, in sentences.
    pub notes: Vec<String>,
}

/// Times one collective, all members starting at once.
///
/// # Errors
/// An algorithm that cannot serve the group, members without a place, devices that cannot reach each other.
pub fn simulate_collective(run: &CollectiveRun, platform: &Platform<'_>) -> Result<CollectiveTime, SimError> {
    simulate_collective_within(None, run, platform)
}

/// As [`simulate_collective`], where it takes no more than `memory` bytes by an estimate.
///
/// # Errors
/// As there, and an estimate that is larger, before the simulation begins.
pub fn simulate_collective_within(
    memory: Option<u64>,
    run: &CollectiveRun,
    platform: &Platform<'_>,
) -> Result<CollectiveTime, SimError> {
    let costs = run.repeated(platform.costs);
    Ok(simulate_collective_with(System::new(), memory, run, &Platform { costs: &costs, ..*platform })?.0)
}

/// As [`simulate_collective`], with a given fluid solver (empty), and the derivatives of the time if it computes them.
///
/// # Errors
/// As there.
pub(crate) fn simulate_collective_with<F: Fluid + Clone>(
    fluid: F,
    memory: Option<u64>,
    run: &CollectiveRun,
    platform: &Platform<'_>,
) -> Result<(CollectiveTime, Option<Dual>), SimError> {
    platform.check(run.group.members())?;
    let ranks = 0..run.group.members();
    let schedule = rccl::along_links(platform, ranks, &run.algorithm, (run.schedule()?, run.chunk))?;
    let contributors = schedule.contributors();
    let window = if run.window == 0 { schedule.window() } else { run.window };
    let padded = if run.padded { schedule.padded() } else { schedule.clone() };
    let simulate = |orbits: &Orbits, bursts: Waits| {
        // Rounding up pays off only where members fold.
        let schedule = if orbits.fold().is_some() { padded.clone() } else { schedule.clone() };
        let ranks = orbits.count(schedule.members());
        // What a library performs has a known time, and no messages.
        if let (Some(memory), None) = (memory, run.algorithm.library()) {
            memory::Estimate::of(&schedule, ranks).check(memory)?;
        }
        let mut plan =
            Plan::of_collective(format!("{} {}", run.collective, run.algorithm), &run.algorithm, schedule, window);
        plan.represent(ranks);
        let jobs = vec![0; plan.ranks() as usize];
        let mut resources = Resources::new(platform, fluid.clone(), orbits.clone());
        resources.fluid.prepare(None, 1, orbits)?;
        let mut engine = Engine::new(&plan, Driver::fixed(1), resources, vec![vec![None]], &jobs);
        engine.long_way = run.long_way;
        engine.follow(bursts);
        engine.run(fold::WRITTEN_OUT)
    };
    let mut folded = fold::of_schedule(&padded, run.elements, platform, run.fold);
    let outcome = loop {
        match settled(|bursts| simulate(&folded.orbits, bursts)) {
            Ok(outcome) => break outcome,
            Err(error) => folded = folded.after(error)?,
        }
    };
    let folding = folded.folding;
    let time = outcome.end;
    let seconds = time.as_secs_f64();
    let algbw = if seconds > 0.0 { run.bytes() as f64 / seconds } else { 0.0 };
    let busbw = algbw * run.collective.bus_factor(contributors);
    let (traffic, utilisation) = (outcome.traffic, outcome.utilisation);
    let by = outcome.derivatives.and_then(|ends| ends.first().copied());
    let notes = outcome.of_libraries;
    Ok((CollectiveTime { time, algbw, busbw, traffic, utilisation, folding, notes }, by))
}

/// The first run after which buckets of links with bursts are as full as before it, when a collective is repeated; without
/// bursts the first run.
fn settled(simulate: impl Fn(Waits) -> Result<Outcome, SimError>) -> Result<Outcome, SimError> {
    let mut last = simulate(Waits::new())?;
    let mut before = Waits::new();
    for _ in 0..MOST_RUNS {
        if last.bursts == before {
            break;
        }
        before = last.bursts;
        last = simulate(before.clone())?;
    }
    Ok(last)
}
