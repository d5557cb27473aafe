//! `explain`: computes the `explanation` of one predicted row, and that of the time of one collective.

mod error_bar;
mod names;
mod reaction;
mod text;

use std::collections::BTreeMap;

use lockstep_models::{CriticalPath, Periodic, Program, overlap};
use lockstep_sim::answer::{
    Bound, Computation, Hiding, Sensitivity, Subject, collective_sensitivities, computation, hiding, parameters,
};
use lockstep_sim::{CollectiveRun, CollectiveTime, Costs, Platform, ShortcutUse, SimError, nccl_choices};
use lockstep_topology::{Cluster, InputError, Placement};

use crate::largest_batch::largest_batch;
use crate::predicted::{Predicted, failure};
use crate::setup::Setup;
use crate::site::Site;
use lockstep_experiment::{Configuration, Experiment};
use lockstep_report::explanation::{
    ClassFigures, CollectiveExplanation, ComputationFigures, ExchangeFigures, Explanation, HidingFigures, KindFigures,
    LinkFigures, MemoryFigures, PeriodicFigures, ResourceFigures, SensitivityFigures, ShortcutFigures, TaskFigures,
};
use lockstep_report::failure::Failure;
pub use text::{collective_text, text};

/// Resources and tasks that are listed, the busiest or longest ones.
const LISTED: usize = 12;
/// Smaller sensitivities count as none.
const REACTS: f64 = 0.005;
/// Simulations of a search, for estimating progress.
const SEARCH: f64 = 6.0;

/// Explains a prediction; `progress` gets the share of the work that is done, from 0 to 1.
///
/// # Errors
/// Errors of a simulation with other figures.
pub fn explain(
    configuration: &Configuration,
    experiment: &Experiment,
    site: &Site,
    costs: &dyn Costs,
    setup: &Setup,
    predicted: &Predicted,
    progress: &mut dyn FnMut(f64),
) -> Result<Explanation, Failure> {
    let platform = predicted.platform(&site.cluster, costs, setup);
    let (program, prediction, options) = (&predicted.program, &predicted.prediction, &setup.options);
    let failed = |error| failure(error, experiment);
    let parameters = parameters(program, &platform, &prediction.traffic).map_err(failed)?;
    let subject = Subject::new(program, platform, options);
    // What does not follow from derivatives is simulated in parallel, on all free cores.
    let likely = subject.likely(prediction);
    let short = likely.map(|options| subject.with(options));
    // Each search starts its own count; progress never falls.
    let mut farthest = 0.0f64;
    let mut progress = |share: f64| {
        farthest = farthest.max(share);
        progress(farthest);
    };
    let mut simulations = 0.0;
    let mut counted = |done: usize, all: usize| {
        simulations = all as f64;
        progress(done as f64 / (simulations + SEARCH));
    };
    let (found, hidden_beside, computation) = std::thread::scope(|scope| {
        let computation = scope.spawn(|| computation(short.as_ref().unwrap_or(&subject), prediction));
        let sums = short.as_ref().map(|short| scope.spawn(|| short.sums(&parameters)));
        let hiding = short.as_ref().map(|short| scope.spawn(|| hiding(short, prediction, &parameters, &mut |_| {})));
        let known = || Ok(likely.zip(sums.map(joined).transpose()?));
        let found = subject.sensitivities(prediction, &parameters, known, &mut counted);
        (found, hiding.map(joined).transpose(), joined(computation))
    });
    let ((sensitivities, basis, of), hidden_beside) = (found.map_err(failed)?, hidden_beside.map_err(failed)?);
    let mut counted = |done: usize| progress(((simulations + done as f64) / (simulations + SEARCH)).min(1.0));
    let hiding = match hidden_beside {
        Some(hiding) if likely == Some(of) => hiding,
        _ => hiding(&subject.with(of), prediction, &parameters, &mut counted).map_err(failed)?,
    };
    let (reacts, still) = by_strength(&sensitivities, site, &predicted.placement);
    let strong = sensitivities.iter().filter(|s| s.elasticity.abs() >= REACTS).map(|s| s.parameter);
    let path = CriticalPath::of_median_step(program, &prediction.timeline);
    Ok(Explanation {
        bound: predicted.bound.by.clone(),
        bound_utilisation: predicted.bound.share,
        waiting_for_latency: predicted.bound.latency,
        waiting_for_imbalance: predicted.bound.imbalance,
        classes: classes(&predicted.bound),
        busiest: busiest(predicted),
        critical_path: path.as_ref().map(|path| kinds(path, program)).unwrap_or_default(),
        critical_tasks: path.as_ref().map(|path| tasks(path, program)).unwrap_or_default(),
        computation: computation
            .map(|Computation { seconds, alone_s }| ComputationFigures { seconds, alone_s })
            .map_err(failed)?,
        exchanges: exchanges(predicted, &platform).map_err(|error| failed(error.into()))?,
        between_steps: between_steps(predicted),
        memory: memory(configuration, experiment, &site.cluster, predicted),
        hiding: hidden(&hiding, predicted),
        error_bar: error_bar::error_bar(site, predicted, &sensitivities, strong),
        sensitivity_sum: euler_sum(&sensitivities),
        sensitivity_basis: basis.name().to_owned(),
        sensitivities: reacts,
        does_not_react_to: still,
        shortcuts: prediction.shortcuts.iter().map(shortcut).collect(),
    })
}

fn shortcut(used: &ShortcutUse) -> ShortcutFigures {
    let ShortcutUse { shortcut, taken, why_not } = used;
    let why_not = why_not.as_ref().map(ToString::to_string);
    ShortcutFigures { shortcut: shortcut.name().to_owned(), taken: *taken, unit: shortcut.unit().to_owned(), why_not }
}

/// The result of a thread.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What the time depends on, the strongest first, and what it does not.
fn by_strength(
    sensitivities: &[Sensitivity],
    site: &Site,
    placement: &Placement,
) -> (Vec<SensitivityFigures>, Vec<String>) {
    let (strong, weak): (Vec<&Sensitivity>, Vec<&Sensitivity>) =
        sensitivities.iter().partition(|s| s.elasticity.abs() >= REACTS);
    let figures = |s: &Sensitivity| SensitivityFigures {
        parameter: names::parameter(s.parameter),
        elasticity: s.elasticity,
        provenance: names::provenance(s.parameter, site, placement),
    };
    let still = weak.into_iter().filter_map(|s| names::in_words(s.parameter, site));
    (strong.into_iter().map(figures).collect(), still.collect())
}

/// Sensitivities to rates minus those to times.
fn euler_sum(sensitivities: &[Sensitivity]) -> f64 {
    sensitivities.iter().map(|s| if s.parameter.is_rate() { s.elasticity } else { -s.elasticity }).sum()
}

/// Resources in use by class.
fn classes(bound: &Bound) -> Vec<ClassFigures> {
    let classes = bound.classes.iter().map(|class| ClassFigures {
        class: class.class.clone(),
        busiest: class.busiest.clone(),
        utilisation: class.share,
        mean_utilisation: class.mean,
        resources: class.resources,
    });
    classes.collect()
}

fn busiest(predicted: &Predicted) -> Vec<ResourceFigures> {
    let listed = predicted.prediction.utilisation.iter().take(LISTED);
    listed.map(|used| ResourceFigures { resource: used.resource.clone(), utilisation: used.share }).collect()
}

fn kinds(path: &CriticalPath, program: &Program) -> Vec<KindFigures> {
    let by_kind = path.time_by_kind(program);
    let order = ["load", "forward", "backward", "update", "exchange", "wait"];
    let others = by_kind.keys().copied().filter(|kind| !order.contains(kind));
    let kinds = order.into_iter().chain(others);
    let kinds = kinds.filter_map(|kind| by_kind.get(kind).map(|time| (kind, time.as_secs_f64())));
    let step = path.step.seconds();
    kinds.map(|(kind, seconds)| KindFigures { kind: kind.to_owned(), seconds, share: seconds / step }).collect()
}

fn tasks(path: &CriticalPath, program: &Program) -> Vec<TaskFigures> {
    let longest = path.tasks(program).into_iter().take(LISTED);
    let figures = |(kind, task, time): (&str, String, lockstep_topology::Time)| TaskFigures {
        kind: kind.to_owned(),
        task,
        seconds: time.as_secs_f64(),
    };
    longest.map(figures).collect()
}

fn between_steps(predicted: &Predicted) -> Vec<PeriodicFigures> {
    let timeline = &predicted.prediction.timeline;
    let figures = |(kind, work): &(Periodic, Program)| {
        let every_steps = work_every(&predicted.program, *kind);
        let seconds = timeline.periodic_time_s(*kind)?;
        // By rank and task; for a task that runs on several ranks the longest counts.
        let mut all: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for run in timeline.periodic.iter().filter(|run| run.kind == *kind) {
            *all.entry((run.span.rank, run.span.task)).or_default() += (run.span.end - run.span.start).as_secs_f64();
        }
        let mut longest: BTreeMap<&str, (&str, f64)> = BTreeMap::new();
        for ((rank, task), seconds) in all {
            let task = &work.roles[work.role_of(rank)].tasks[task as usize];
            let (_, most) = longest.entry(&task.name).or_insert((task.op.kind(), 0.0));
            *most = most.max(seconds);
        }
        let mut tasks: Vec<TaskFigures> = longest
            .into_iter()
            .map(|(task, (kind, seconds))| TaskFigures { kind: kind.to_owned(), task: task.to_owned(), seconds })
            .collect();
        tasks.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        tasks.truncate(LISTED);
        Some(PeriodicFigures { work: kind.name().to_owned(), seconds, every_steps, tasks })
    };
    predicted.periodic.iter().filter_map(figures).collect()
}

/// Steps from one to the next.
fn work_every(program: &Program, kind: Periodic) -> Option<u32> {
    program.partition.as_ref().filter(|_| kind == Periodic::Shuffle)?.shuffle_every
}

fn exchanges(predicted: &Predicted, platform: &Platform<'_>) -> Result<Vec<ExchangeFigures>, InputError> {
    let mut choices = nccl_choices(&predicted.program, platform)?;
    let all = overlap::exchanges(&predicted.program, &predicted.prediction.timeline).into_iter();
    let figures = |e: overlap::ExchangeOverlap| ExchangeFigures {
        nccl: choices.remove(&(e.role, e.task)),
        exchange: e.name,
        seconds: e.seconds,
        hidden_s: e.hidden_s,
        exposed_s: e.exposed_s,
    };
    Ok(all.map(figures).collect())
}

fn memory(
    configuration: &Configuration,
    experiment: &Experiment,
    cluster: &Cluster,
    predicted: &Predicted,
) -> MemoryFigures {
    let of = &predicted.memory;
    let largest = largest_batch(configuration, experiment, cluster, predicted);
    MemoryFigures {
        device: of.device.clone(),
        ranks: of.ranks,
        capacity_bytes: of.capacity.map(|capacity| capacity.0),
        total_bytes: of.memory.total(),
        total_unplanned_bytes: of.memory.total_unplanned(),
        weights_bytes: of.memory.weights,
        gradients_bytes: of.memory.gradients,
        optimizer_bytes: of.memory.optimizer,
        input_bytes: of.memory.input,
        activations_bytes: of.memory.activations,
        activations_unplanned_bytes: of.memory.activations_unplanned,
        communication_bytes: of.memory.communication,
        fits: of.fits(),
        largest_batch_per_rank: largest.map(|largest| largest.samples),
    }
}

fn hidden(hiding: &Hiding, predicted: &Predicted) -> HidingFigures {
    let link = |(kind, rate): &(lockstep_topology::cluster::LinkKind, lockstep_topology::Bandwidth)| LinkFigures {
        kind: kind.to_string(),
        bandwidth: rate.bytes_per_s() * 1e-9,
        hiding_bandwidth: hiding.factor.map(|factor| rate.bytes_per_s() * 1e-9 * factor),
    };
    HidingFigures {
        exposed_share: predicted.exposed_comm_s / predicted.step_time_s,
        factor: hiding.factor,
        links: hiding.links.iter().map(link).collect(),
        exposed_share_without_limit: hiding.floor,
        simple: hiding.simple.map(|rate| rate.bytes_per_s() * 1e-9),
    }
}

/// Explains a time; `progress` gets the share of the work that is done, from 0 to 1.
///
/// # Errors
/// Errors of a simulation with other figures.
pub fn explain_collective(
    run: &CollectiveRun,
    platform: &Platform<'_>,
    site: &Site,
    time: &CollectiveTime,
    bound: &Bound,
    progress: &mut dyn FnMut(f64),
) -> Result<CollectiveExplanation, SimError> {
    let mut counted = |done: usize, all: usize| progress(done as f64 / all as f64);
    let sensitivities = collective_sensitivities(run, platform, time, &mut counted)?;
    let (reacts, still) = by_strength(&sensitivities, site, platform.placement);
    Ok(CollectiveExplanation {
        in_use: classes(bound),
        reacts_to: reacts,
        does_not_react_to: still,
        sensitivity_sum: euler_sum(&sensitivities),
    })
}
