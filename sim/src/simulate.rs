//! `simulate`: predicts the timeline of a program on a platform, in four steps.
//!
//! The ranks to simulate are chosen (`fold.rs`); their tasks are planned (`plan.rs`) and priced (`jobs.rs`); the engine
//! runs them (`engine.rs`); and its outcome becomes the prediction. If a route turns out not to fold, the second and
//! third step are repeated with more ranks.

use lockstep_models::{Claim, Driver, Program, Timeline};
use lockstep_topology::{Rank, Time};

use crate::engine::{Engine, Outcome, ShortcutUse};
use crate::error::SimError;
use crate::fluid::{Fluid, System};
use crate::fold::{self, FoldRule, Folded, Folding, SimulatedRanks};
use crate::jobs::JobLists;
use crate::machine::{Resources, Utilisation};
use crate::orbits::Orbits;
use crate::plan::Plan;
use crate::platform::Platform;
use crate::supply::Supply;
use crate::trace::Dual;
use crate::traffic::Traffic;

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
    /// Which exact shortcuts were taken, and why not the others.
    pub shortcuts: Vec<ShortcutUse>,
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
    let ranks = SimulatedRanks::of(program, platform, options.fold);
    Ok(simulate_ranks(fluid, &ranks, program, platform, driver, options)?.0)
}

/// As [`simulate_with`], for known ranks to simulate; with the derivatives of the ends of iterations, if the solver
/// computes them.
///
/// # Errors
/// As there.
pub(crate) fn simulate_ranks<F: Fluid + Clone>(
    fluid: F,
    ranks: &SimulatedRanks,
    program: &Program,
    platform: &Platform<'_>,
    driver: Driver,
    options: &SimOptions,
) -> Result<(Prediction, Option<Vec<Dual>>), SimError> {
    platform.check(program.ranks())?;
    let (program, here) = (ranks.program(program), ranks.platform(platform));
    let driver = driver.serving(program, |rank| here.hosting.process(Rank(rank)));
    let supply = Supply::of(program, &here)?;
    let mut folded = ranks.folded.clone();
    let outcome = loop {
        let run = Run { program, platform: &here, supply: supply.as_ref(), driver: &driver, options };
        match run.once(fluid.clone(), &folded.orbits) {
            Ok(outcome) => break outcome,
            Err(error) => folded = folded.after(error)?,
        }
    };
    let Folded { folding, .. } = folded;
    let Outcome { totals, spans, mut traffic, claims, derivatives, .. } = outcome;
    let mut timeline = Timeline { totals, ..Timeline::of(spans, options.warm_up) };
    let utilisation = per_step(outcome.utilisation, outcome.end, &timeline);
    ranks.back(&mut timeline.spans, &mut traffic);
    let mut notes = here.costs.notes(program);
    notes.extend(driver.note().map(str::to_owned));
    notes.extend(outcome.of_libraries);
    if folding != Folding::Off {
        notes.push(folding.to_string());
    }
    let shortcuts = std::iter::once(ShortcutUse::of_folding(&folding)).chain(outcome.shortcuts).collect();
    Ok((Prediction { timeline, traffic, utilisation, folding, claims, notes, shortcuts }, derivatives))
}

/// A program that runs on a platform.
struct Run<'a> {
    program: &'a Program,
    platform: &'a Platform<'a>,
    supply: Option<&'a Supply<'a>>,
    driver: &'a Driver,
    options: &'a SimOptions,
}

impl Run<'_> {
    /// Simulates the ranks of `orbits`: plans and prices their tasks, then runs the engine.
    ///
    /// # Errors
    /// As [`simulate`]; a route that does not fold.
    fn once<F: Fluid>(&self, fluid: F, orbits: &Orbits) -> Result<Outcome, SimError> {
        let Run { program, options, .. } = *self;
        let threads = options.threads_per_rank;
        let plan = Plan::new(program, orbits.count(program.ranks()), Some(self.platform))?;
        let mut resources = Resources::new(self.platform, fluid, orbits.clone());
        let mut jobs = JobLists::of(program, threads, &mut resources, (self.supply, false))?;
        let late = self.supply.and_then(|supply| supply.when_late());
        let late = late.map(|late| JobLists::of(program, threads, &mut resources, (Some(&late), false))).transpose()?;
        // The lists of ranks with late threads follow all others.
        let late = late.map(|late| jobs.append(late));
        resources.fluid.prepare(Some(program), threads, orbits)?;
        let mut engine = Engine::new(&plan, self.driver.clone(), resources, jobs.lists, &jobs.of_rank);
        engine.long_way = options.long_way;
        (engine.upload_latencies, engine.late) = (jobs.upload_latencies, late);
        engine.record.limit = options.max_spans;
        engine.run(options.max_written)
    }
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
