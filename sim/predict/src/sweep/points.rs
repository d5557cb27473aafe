//! `Points`: the row of one point, on any thread; what points have in common is found once.

use std::path::PathBuf;

use lockstep_sim::{FoldRule, Folding, NetworkModel};
use lockstep_topology::{Algorithm, InputError};

use super::hardware::{Hardware, Shelf};
use crate::anchor::{Scaled, fit};
use crate::predicted::predict;
use crate::setup::Setup;
use lockstep_experiment::sweep::{Plan, Point, Sweep};
use lockstep_experiment::{Batch, Experiment, default_method};
use lockstep_report::failure::Failure;
use lockstep_report::{Setting, SweepRow};

/// How the points of a sweep are predicted.
#[derive(Debug, Clone, Default)]
pub struct How {
    /// How transfers share links.
    pub network: NetworkModel,
    /// Whether equal ranks are simulated once.
    pub fold: FoldRule,
    /// The file of `--profile`.
    pub profile: Option<PathBuf>,
}

/// The points of a sweep.
pub struct Points<'a> {
    sweep: &'a Sweep,
    plan: &'a Plan,
    how: &'a How,
    identity: &'a str,
    /// What the cost of computation is multiplied by.
    factor: f64,
    shelf: Shelf,
}

impl<'a> Points<'a> {
    /// The points of `plan`; an anchor is fitted on the first cluster as it is.
    ///
    /// # Errors
    /// An anchor in a sweep of several models or clusters; an anchor that cannot be reached.
    pub fn new(sweep: &'a Sweep, plan: &'a Plan, how: &'a How, identity: &'a str) -> Result<Points<'a>, Failure> {
        let mut points = Points { sweep, plan, how, identity, factor: 1.0, shelf: Shelf::new(how.profile.clone()) };
        let (Some(anchor), Some(first)) = (&sweep.base.anchor, plan.points.first()) else { return Ok(points) };
        if sweep.models.len() > 1 || sweep.entries.len() > 1 {
            let message = "is of one model on one cluster: give the sweep one of each, or leave the anchor out";
            let error = InputError::flag("anchor", format!("images_per_s = {}", anchor.images_per_s), message);
            return Err(sweep.base.locate(error).into());
        }
        let unscaled = Sweep { scales: Vec::new(), ..sweep.clone() };
        let hardware = points.shelf.take(&unscaled, first, first)?;
        let experiment = points.variant(first, 1);
        let setup = points.setup(&experiment, &hardware)?;
        points.factor = fit(anchor, &experiment, hardware.site(), &setup)?;
        points.shelf = Shelf::new(how.profile.clone());
        Ok(points)
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.plan.points.len() as u32
    }

    /// The row of the point at `index`; no earlier cluster than that of `oldest` will be asked for again.
    ///
    /// # Errors
    /// A simulation that deadlocks; what cannot be is a row.
    pub fn row(&self, index: u32, oldest: u32) -> Result<SweepRow, Failure> {
        let point = &self.plan.points[index as usize];
        let refused = |ranks: u32, error: InputError| SweepRow {
            refused: Some(error.to_string().replace(['\n', '\r'], " ")),
            ..self.label(index, ranks)
        };
        let hardware = match self.shelf.take(self.sweep, point, &self.plan.points[oldest as usize]) {
            Ok(hardware) => hardware,
            Err(error) => return Ok(refused(self.sweep.ranks_of(point).unwrap_or(0), error)),
        };
        let algorithm = self.algorithm(point);
        // Dedicated servers need places too.
        let room = || hardware.room().saturating_sub(algorithm.servers()).max(1);
        let ranks = self.sweep.ranks_of(point).unwrap_or_else(room);
        match self.predicted(point, ranks, &hardware, self.label(index, ranks)) {
            Ok(row) => Ok(row),
            Err(Failure::Input(error)) => Ok(refused(ranks, error)),
            Err(failure) => Err(failure),
        }
    }

    fn predicted(&self, point: &Point, ranks: u32, hardware: &Hardware, label: SweepRow) -> Result<SweepRow, Failure> {
        let experiment = self.variant(point, ranks);
        let model = &self.sweep.models[point.model as usize];
        let mut configuration = experiment.configuration(model, 0, ranks, &self.algorithm(point))?;
        let costs = Scaled::new(hardware.site().costs.as_ref(), self.factor);
        let setup = self.setup(&experiment, hardware)?;
        let predicted = predict(&mut configuration, &experiment, hardware.cluster(), &costs, &setup)?;
        Ok(SweepRow {
            step_time_s: Some(predicted.step_time_s),
            images_per_s: Some(predicted.images_per_s),
            exposed_comm_s: Some(predicted.exposed_comm_s),
            bound: Some(predicted.bound.by.clone()),
            bound_utilisation: Some(predicted.bound.share),
            memory_bytes: Some(predicted.memory.memory.total()),
            fits_memory: predicted.memory.fits(),
            simulated_ranks: Some(match predicted.prediction.folding {
                Folding::Folded { representatives, .. } => representatives,
                _ => label.total_ranks,
            }),
            ..label
        })
    }

    /// The experiment that has this point as its only configuration.
    fn variant(&self, point: &Point, ranks: u32) -> Experiment {
        let sweep = self.sweep;
        let batch = match &sweep.batch {
            Batch::PerRank(sizes) => Batch::PerRank(vec![sizes[point.batch as usize]]),
            Batch::Global(sizes) => Batch::Global(vec![sizes[point.batch as usize]]),
        };
        Experiment {
            model: sweep.model_names[point.model as usize].clone(),
            cluster: sweep.places[point.place as usize].name.clone(),
            ranks: vec![ranks],
            batch,
            strategy: sweep.strategy_of(point).clone(),
            learners: sweep.learners_of(point),
            accumulate: sweep.accumulate[point.accumulate as usize],
            algorithms: vec![self.algorithm(point)],
            bucket: sweep.buckets[point.bucket as usize],
            chunk: sweep.chunks[point.chunk as usize],
            concurrent_exchanges: sweep.concurrent_exchanges[point.concurrent as usize],
            // A row says the same wherever the experiment's file lies.
            places: Default::default(),
            ..sweep.base.clone()
        }
    }

    fn setup(&self, experiment: &Experiment, hardware: &Hardware) -> Result<Setup, InputError> {
        let mut setup = Setup::of(experiment, hardware.site(), self.how.network)?;
        setup.options.fold = self.how.fold;
        Ok(setup)
    }

    fn algorithm(&self, point: &Point) -> Algorithm {
        let named = &self.sweep.algorithms[point.algorithm as usize];
        named.clone().unwrap_or_else(|| default_method(self.sweep.learners_of(point)))
    }

    /// The row of a point of so many ranks before anything is known of it.
    pub fn label(&self, index: u32, ranks: u32) -> SweepRow {
        let (sweep, point) = (self.sweep, &self.plan.points[index as usize]);
        let accumulate = sweep.accumulate[point.accumulate as usize];
        let (strategy, learners) = (sweep.strategy_of(point), sweep.learners_of(point));
        let each = u64::from(strategy.period()).saturating_mul(learners.into());
        let parts = (u64::from(ranks) * u64::from(accumulate)).saturating_mul(each);
        let (batch_per_rank, global_batch) = match &sweep.batch {
            Batch::PerRank(sizes) => {
                let size = sizes[point.batch as usize];
                (size, parts.saturating_mul(size.into()))
            }
            Batch::Global(sizes) => {
                let size = sizes[point.batch as usize];
                let share = size.checked_div(parts).filter(|share| share.saturating_mul(parts) == size).unwrap_or(0);
                (u32::try_from(share).unwrap_or(0), size)
            }
        };
        let algorithm = self.algorithm(point);
        let alone = ranks == 1 && learners == 1;
        SweepRow {
            sweep: self.identity.to_owned(),
            point: u64::from(index),
            cluster: sweep.places[point.place as usize].name.clone(),
            scale: sweep.scale_label(point.scale),
            setting: Setting {
                model: sweep.models[point.model as usize].name().to_owned(),
                strategy: strategy.to_string(),
                learners,
                ranks: ranks.saturating_mul(learners),
                batch_per_rank,
                accumulate,
                global_batch,
                algorithm: if alone { "-".to_owned() } else { algorithm.to_string() },
                bucket: sweep.buckets[point.bucket as usize].to_string(),
            },
            chunk: sweep.chunks[point.chunk as usize].map_or_else(|| "auto".to_owned(), |chunk| chunk.to_string()),
            concurrent_exchanges: sweep.concurrent_exchanges[point.concurrent as usize],
            network: self.how.network.name().to_owned(),
            total_ranks: if alone { 1 } else { ranks.saturating_add(algorithm.servers()) },
            ..SweepRow::default()
        }
    }
}
