//! `Case`: predicts figures with a paper's machine and models, all adjustments applied.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use lockstep_topology::{ErrorPlace, InputError};

use super::figures::{Cores, Figure, first, setup};
use super::machine::{Hosted, Machine, MachineParameter, fed, scaled};
use super::paper::Paper;
use super::plot::Plot;
use super::quantity::Quantity;
use super::read::is_scaling;
use super::row::{CaseRow, RowMark};
use lockstep_experiment::Experiment;
use lockstep_predict::Site;
use lockstep_predict::anchor::{self, Scaled};
use lockstep_predict::tune;
use lockstep_report::failure::Failure;

/// One paper while its rows are predicted.
pub(super) struct Case<'a> {
    cores: &'a Cores,
    machine: Machine<'a>,
    sites: BTreeMap<String, Site>,
    /// The factor on computation, per anchor's configuration; a model's first anchor is used for its other
    /// configurations, the first of all for other models.
    factors: Vec<(Experiment, f64)>,
    known: &'a Known,
}

/// Figures of a paper by configuration, by the values of the machine's parameters outside it, and by the factor on
/// computation: anchors and fits need the same ones again and again.
#[derive(Default)]
pub(super) struct Known(Mutex<Vec<Simulated>>);

/// A figure and its subject.
struct Simulated {
    experiment: Experiment,
    values: Vec<f64>,
    factor: f64,
    figure: Figure,
}

impl<'a> Case<'a> {
    /// The paper's clusters with `machine`'s parameters, and computation scaled to its anchors.
    ///
    /// # Errors
    /// At the row: an unknown cluster, an anchor that cannot be reached.
    pub(super) fn new(
        paper: &'a Paper,
        cores: &'a Cores,
        machine: Machine<'a>,
        known: &'a Known,
    ) -> Result<Case<'a>, Failure> {
        let mut case = Case::unanchored(paper, cores, machine, known)?;
        let anchors: Vec<&CaseRow> = paper.rows.iter().filter(|row| row.mark == Some(RowMark::Anchor)).collect();
        let found = cores.each(&anchors, |row| case.anchor(row).map_err(|failure| at(row, failure)));
        for (row, factor) in anchors.iter().zip(found) {
            case.factors.push((row.at.clone(), factor?));
        }
        Ok(case)
    }

    /// As [`Case::new`], with computation as in data sheets.
    ///
    /// # Errors
    /// An unknown cluster, at the row.
    pub(super) fn unanchored(
        paper: &'a Paper,
        cores: &'a Cores,
        machine: Machine<'a>,
        known: &'a Known,
    ) -> Result<Case<'a>, Failure> {
        let mut sites: BTreeMap<String, Site> = BTreeMap::new();
        let of_row = |row: &'a CaseRow| row.experiments().into_iter().chain([&row.at]).map(move |at| (Some(row), at));
        let of_plots = paper.plots.iter().flat_map(Plot::experiments).map(|at| (None, at));
        for (row, experiment) in paper.rows.iter().flat_map(of_row).chain(of_plots) {
            if !sites.contains_key(&experiment.cluster) {
                let failed = |error: InputError| match row {
                    Some(row) => at(row, error.into()),
                    None => error.into(),
                };
                let site = Site::open(experiment, None).map_err(failed)?;
                sites.insert(experiment.cluster.clone(), scaled(&site, &machine));
            }
        }
        Ok(Case { cores, machine, sites, factors: Vec::new(), known })
    }

    /// The factor on the computation of each configuration with an anchor.
    pub(super) fn factors(&self) -> &[(Experiment, f64)] {
        &self.factors
    }

    /// The factor on computation that reproduces the row.
    fn anchor(&self, row: &CaseRow) -> Result<f64, Failure> {
        let wrong = |message: String| InputError::new(&row.place, &row.name, message);
        let (Some(quantity), Some(published)) = (&row.quantity, row.published) else {
            return Err(wrong("an anchor needs a figure".to_owned()).into());
        };
        let global_batch = first(&row.at)?.setting().global_batch;
        let wanted = quantity.images_per_s(published * row.unit.factor, global_batch).map_err(wrong)?;
        let throughput = |factor: f64| self.simulate(&row.at, factor).map(|figure| figure.images_per_s);
        let unreachable = || {
            let message = "is more than computation that costs nothing reaches on this cluster: check the figure, the \
                           batch, or the cluster's links";
            wrong(message.to_owned()).into()
        };
        anchor::factor(wanted, throughput)?.ok_or_else(unreachable)
    }

    /// Predicts all configurations of `rows` in parallel; `each` gets every row that is done.
    ///
    /// # Errors
    /// The first configuration that cannot be predicted, at its row.
    pub(super) fn predict(&self, rows: &[&CaseRow], each: impl Fn(&CaseRow) + Sync) -> Result<(), Failure> {
        let mut jobs: Vec<(&CaseRow, &Experiment)> = Vec::new();
        for row in rows {
            for experiment in row.experiments() {
                if !jobs.iter().any(|(_, other)| *other == experiment) {
                    jobs.push((row, experiment));
                }
            }
        }
        // The largest first, so that no core is left alone with it in the end.
        jobs.sort_by_key(|(_, experiment)| std::cmp::Reverse(experiment.ranks.first().copied()));
        let found = self.cores.each(&jobs, |(row, experiment)| {
            each(row);
            self.figure(experiment).map(|_| ()).map_err(|failure| at(row, failure))
        });
        found.into_iter().collect()
    }

    /// An experiment where computation takes `factor` times as long, after the hosts' time; each is simulated once.
    fn simulate(&self, experiment: &Experiment, factor: f64) -> Result<Figure, Failure> {
        let experiment = fed(experiment, &self.machine);
        if let Some(figure) = self.remembered(&experiment, factor) {
            return Ok(figure);
        }
        let site = &self.sites[&experiment.cluster];
        let ranks = experiment.ranks.first().copied().unwrap_or(1);
        let kernels = Scaled::new(site.costs.as_ref(), factor);
        let costs = Hosted::new(&kernels, &self.machine, ranks, experiment.strategy.period());
        let figure = Figure::of(&experiment, site, &costs)?;
        let simulated = Simulated { experiment, values: self.values(), factor, figure: figure.clone() };
        self.known.0.lock().unwrap_or_else(PoisonError::into_inner).push(simulated);
        Ok(figure)
    }

    /// The values of the machine's parameters that experiments do not contain.
    fn values(&self) -> Vec<f64> {
        let outside = |parameter: &MachineParameter| {
            !matches!(parameter, MachineParameter::StorageLatency | MachineParameter::Callback)
        };
        self.machine.iter().filter(|(parameter, _)| outside(parameter)).map(|(_, value)| *value).collect()
    }

    fn remembered(&self, experiment: &Experiment, factor: f64) -> Option<Figure> {
        let (known, values) = (self.known.0.lock().unwrap_or_else(PoisonError::into_inner), self.values());
        let same = |one: &&Simulated| {
            one.factor.to_bits() == factor.to_bits() && one.values == values && one.experiment == *experiment
        };
        known.iter().find(same).map(|one| one.figure.clone())
    }

    /// The factor on the computation of an experiment.
    fn factor(&self, experiment: &Experiment) -> f64 {
        let own = self.factors.iter().find(|(of, _)| is_scaling(of, experiment));
        let of_model = || self.factors.iter().find(|(of, _)| of.model == experiment.model);
        own.or_else(of_model).or(self.factors.first()).map_or(1.0, |(_, factor)| *factor)
    }

    /// Learners on each device that the auto-tuner chooses, with predictions for each number.
    fn tuned(&self, experiment: &Experiment) -> Result<u32, Failure> {
        let experiment = &fed(experiment, &self.machine);
        let site = &self.sites[&experiment.cluster];
        let ranks = experiment.ranks.first().copied().unwrap_or(1);
        let kernels = Scaled::new(site.costs.as_ref(), self.factor(experiment));
        let costs = Hosted::new(&kernels, &self.machine, ranks, experiment.strategy.period());
        let setup = setup(experiment, site)?;
        let (chosen, _) = tune(&first(experiment)?, experiment, &site.cluster, &costs, &setup)?;
        Ok(chosen.learners)
    }

    /// The prediction of an experiment.
    ///
    /// # Errors
    /// As [`Figure::of`].
    pub(super) fn figure(&self, experiment: &Experiment) -> Result<Figure, Failure> {
        self.simulate(experiment, self.factor(experiment))
    }

    /// The site of an experiment of the paper.
    pub(super) fn site(&self, experiment: &Experiment) -> &Site {
        &self.sites[&experiment.cluster]
    }

    /// The row's quantity in its unit; `None` for orderings and for statistical rows.
    ///
    /// # Errors
    /// As [`Figure::of`]; a closed form that does not exist.
    pub(super) fn value(&self, row: &CaseRow) -> Result<Option<f64>, Failure> {
        let at = || self.figure(&row.at);
        let value = match &row.quantity {
            None | Some(Quantity::Order { .. }) => return Ok(None),
            Some(Quantity::Computed(computed)) => computed.value()?,
            // A step takes a whole global batch; the remainder of an epoch is dropped.
            Some(Quantity::Time { epochs, samples }) => {
                let at = at()?;
                epochs * (samples / at.global_batch as f64).floor() * at.step_time_s
            }
            Some(Quantity::StepTime) => at()?.step_time_s,
            Some(Quantity::BackwardTime) => at()?.backward_s,
            Some(Quantity::TaskTime) => at()?.task_time_s,
            Some(Quantity::HiddenShare) => at()?.hidden_share.ok_or_else(|| {
                let message =
                    "has no samples that ranks exchange before layers split by features: name a hybrid strategy";
                InputError::new(&row.place, row.at.strategy.to_string(), message)
            })?,
            Some(Quantity::TunedLearners) => f64::from(self.tuned(&row.at)?),
            Some(Quantity::Throughput) => at()?.images_per_s,
            Some(Quantity::Speedup { over }) => at()?.images_per_s / self.figure(over)?.images_per_s,
            Some(Quantity::Slowdown { over }) => at()?.step_time_s / self.figure(over)?.step_time_s,
            Some(Quantity::Efficiency { over }) => {
                let (at, over) = (at()?, self.figure(over)?);
                (at.images_per_s / f64::from(at.ranks)) / (over.images_per_s / f64::from(over.ranks))
            }
        };
        Ok(Some(value / row.unit.factor))
    }

    /// Whether a step, or an image, takes longer from configuration to configuration of each case, and with `grows`
    /// increasingly so from case to case.
    ///
    /// # Errors
    /// As [`Figure::of`].
    pub(super) fn order(&self, cases: &[Vec<Experiment>], grows: bool, per_image: bool) -> Result<bool, Failure> {
        let mut spread = 0.0;
        for case in cases {
            let time = |figure: Figure| if per_image { 1.0 / figure.images_per_s } else { figure.step_time_s };
            let times = case.iter().map(|of| self.figure(of).map(time)).collect::<Result<Vec<f64>, Failure>>()?;
            let rises = times.windows(2).all(|pair| pair[0] < pair[1]);
            let of_case = times[times.len() - 1] / times[0];
            if !rises || (grows && of_case <= spread) {
                return Ok(false);
            }
            spread = of_case;
        }
        Ok(true)
    }
}

/// Reports an error of a row's configuration at the row.
pub(super) fn at(row: &CaseRow, failure: Failure) -> Failure {
    at_place(&row.place, failure)
}

/// Reports an error of a configuration at its file and line.
pub(super) fn at_place(place: &ErrorPlace, failure: Failure) -> Failure {
    match failure {
        Failure::Input(error) => {
            let value = format!("{} {}", error.place, error.value);
            Failure::Input(InputError::new(place, value.trim(), error.message))
        }
        other => other,
    }
}
