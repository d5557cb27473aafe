//! `Figure`: predicts one configuration, and holds the cores that simulate configurations in parallel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use lockstep_models::{Exchange, Op, overlap};
use lockstep_sim::answer::Bound;
use lockstep_sim::{Costs, NetworkModel};
use lockstep_topology::{Collective, InputError};

use lockstep_experiment::{Configuration, Experiment};
use lockstep_predict::Setup;
use lockstep_predict::Site;
use lockstep_predict::{Predicted, predict};
use lockstep_report::failure::Failure;

/// Runs of tasks that are kept individually, to tell which rank waits for which.
const MOST_SPANS: usize = 100_000;

/// The prediction of one configuration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) step_time_s: f64,
    /// Seconds of a step in which a rank's backward passes run.
    pub(super) backward_s: f64,
    /// Seconds of one micro-batch's load, forward and backward passes, the mean over all of a run.
    pub(super) task_time_s: f64,
    pub(super) images_per_s: f64,
    pub(super) global_batch: u64,
    pub(super) ranks: u32,
    pub(super) bound: String,
    /// The kind of link that bounds the step, if one does.
    pub(super) bound_kind: Option<String>,
    /// Seconds of a step in which no computation runs.
    pub(super) exposed_s: f64,
    /// Share of the time in flight of samples and their gradients, between layers split by samples and layers split by
    /// features, that computation hides.
    pub(super) hidden_share: Option<f64>,
}

impl Figure {
    /// The figure of an experiment's first configuration, the only one that a row refers to.
    ///
    /// # Errors
    /// As [`predict`].
    pub(super) fn of(experiment: &Experiment, site: &Site, costs: &dyn Costs) -> Result<Figure, Failure> {
        let setup = setup(experiment, site)?;
        let mut configuration = first(experiment)?;
        let predicted = predict(&mut configuration, experiment, &site.cluster, costs, &setup)?;
        let by_kind = predicted.prediction.timeline.seconds_by_kind(&predicted.program);
        let task_time_s = task_time_s(&predicted);
        let of_samples = |exchange: &Exchange| {
            matches!(exchange.collective, Collective::AllGatherV { .. } | Collective::ReduceScatterV { .. })
        };
        let hidden_share = overlap::hidden_share(&predicted.program, &predicted.prediction.timeline, of_samples);
        let Bound { by, classes, .. } = predicted.bound;
        Ok(Figure {
            step_time_s: predicted.step_time_s,
            backward_s: by_kind
                .iter()
                .filter(|(kind, _)| kind.starts_with("backward"))
                .map(|(_, seconds)| seconds)
                .sum(),
            task_time_s,
            images_per_s: predicted.images_per_s,
            global_batch: predicted.program.global_batch(),
            ranks: predicted.program.workers(),
            bound_kind: classes.iter().find(|class| class.busiest == by).map(|class| class.class.clone()),
            exposed_s: predicted.exposed_comm_s,
            hidden_share,
            bound: by,
        })
    }
}

/// The setup of an experiment: messages share links.
///
/// # Errors
/// As [`Setup::of`].
pub(super) fn setup(experiment: &Experiment, site: &Site) -> Result<Setup, InputError> {
    let mut setup = Setup::of(experiment, site, NetworkModel::MaxMin)?;
    // Everything needed of a run follows from totals.
    setup.options.max_spans = MOST_SPANS;
    if setup.conditions.noise.is_empty() && site.costs.noise().is_none() {
        // Without noise, all steps after the transient are equal: from the second on, or the third where averaging
        // overlaps the next step's computation.
        setup.options.warm_up = 1 + u32::from(experiment.strategy.averaging(1, 1).is_some());
        setup.options.counted = 1;
    }
    Ok(setup)
}

fn task_time_s(predicted: &Predicted) -> f64 {
    let program = &predicted.program;
    let (mut busy_s, mut batches) = (0.0, 0);
    for (_, role, task, total) in predicted.prediction.timeline.totals(program).iter() {
        match program.roles[role].tasks[task].op {
            Op::Load { .. } => (busy_s, batches) = (busy_s + total.busy_s(), batches + total.runs),
            Op::Compute { .. } => busy_s += total.busy_s(),
            _ => {}
        }
    }
    busy_s / batches.max(1) as f64
}

/// The first configuration.
///
/// # Errors
/// An experiment without one.
pub(super) fn first(experiment: &Experiment) -> Result<Configuration, Failure> {
    let message = "has no configuration: check ranks and batch";
    let none = || InputError::new("experiment", &experiment.model, message);
    Ok(experiment.configurations()?.into_iter().next().ok_or_else(none)?)
}

/// The cores of this machine, each of which simulates one configuration at a time, of any paper.
pub(super) struct Cores {
    free: Mutex<usize>,
    returned: Condvar,
}

impl Cores {
    pub(super) fn all() -> Cores {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Cores { free: Mutex::new(cores), returned: Condvar::new() }
    }

    /// Does `work` for each of `items`, as soon as a core is free; results are in the order of the items.
    pub(super) fn each<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let found: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in items {
                scope.spawn(|| {
                    let _core = self.take();
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let done = work(&items[index]);
                    *found[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
                });
            }
        });
        found.into_iter().filter_map(|done| done.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Waits for a core.
    fn take(&self) -> Core<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *self.returned.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner) -= 1;
        Core(self)
    }
}

/// A core in use; released when dropped, also where its work panicked.
struct Core<'a>(&'a Cores);

impl Drop for Core<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}
