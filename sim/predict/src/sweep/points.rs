//! `Points`: predicts the row of one point, on any thread; what points have in common is computed once.

use std::path::PathBuf;

use lockstep_sim::{FoldRule, Folding, NetworkModel};
use lockstep_topology::{Algorithm, InputError};

use super::hardware::{Hardware, Shelf};
use crate::anchor::{Scaled, fit};
use crate::predicted::predict;
use crate::setup::Setup;
use lockstep_experiment::sweep::{Sweep, SweepPlan, SweepPoint};
use lockstep_experiment::{Batch, Experiment};
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
    plan: &'a SweepPlan,
    how: &'a How,
    identity: &'a str,
    /// The factor on the cost of computation.
    factor: f64,
    shelf: Shelf,
}

impl<'a> Points<'a> {
    /// The points of `plan`; an anchor is fitted on the first cluster, unscaled.
    ///
    /// # Errors
    /// An anchor in a sweep of several models or clusters; an anchor that cannot be reached.
    pub fn new(sweep: &'a Sweep, plan: &'a SweepPlan, how: &'a How, identity: &'a str) -> Result<Points<'a>, Failure> {
        let mut points = Points { sweep, plan, how, identity, factor: 1.0, shelf: Shelf::new(how.profile.clone()) };
        let (Some(anchor), Some(first)) = (&sweep.base.anchor, plan.points.first()) else { return Ok(points) };
        if sweep.varies("model") || sweep.entries.len() > 1 {
            let message = "is of one model on one cluster: give the sweep one of each, or leave the anchor out";
            let error = InputError::flag("anchor", format!("images_per_s = {}", anchor.images_per_s), message);
            return Err(sweep.base.locate(error).into());
        }
        let hardware = points.shelf.take(&sweep.unscaled(), first, first)?;
        let experiment = Experiment { ranks: vec![1], ..sweep.variant(first) };
        let setup = points.setup(&experiment, &hardware)?;
        points.factor = fit(anchor, &experiment, hardware.site(), &setup)?;
        points.shelf = Shelf::new(how.profile.clone());
        Ok(points)
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.plan.points.len() as u32
    }

    /// The row of the point at `index`; no earlier cluster than that of `oldest` will be needed again.
    ///
    /// # Errors
    /// A simulation that deadlocks; an impossible point is a row.
    pub fn row(&self, index: u32, oldest: u32) -> Result<SweepRow, Failure> {
        let point = &self.plan.points[index as usize];
        let refused = |ranks: u32, error: InputError| SweepRow {
            refused: Some(error.to_string().replace(['\n', '\r'], " ")),
            ..self.label(index, ranks)
        };
        let variant = self.sweep.variant(point);
        let hardware = match self.shelf.take(self.sweep, point, &self.plan.points[oldest as usize]) {
            Ok(hardware) => hardware,
            Err(error) => return Ok(refused(variant.ranks.first().copied().unwrap_or(0), error)),
        };
        // Dedicated servers need places too.
        let servers = |algorithm: &Algorithm| algorithm.servers() - algorithm.switches();
        let most = || hardware.most_ranks().saturating_sub(servers(&variant.algorithms[0])).max(1);
        let ranks = variant.ranks.first().copied().unwrap_or_else(most);
        let variant = Experiment { ranks: vec![ranks], ..variant };
        match self.predicted(point, &variant, &hardware, self.labelled(index, ranks, &variant)) {
            Ok(row) => Ok(row),
            Err(Failure::Input(error)) => Ok(refused(ranks, error)),
            Err(failure) => Err(failure),
        }
    }

    fn predicted(
        &self,
        point: &SweepPoint,
        experiment: &Experiment,
        hardware: &Hardware,
        label: SweepRow,
    ) -> Result<SweepRow, Failure> {
        let (ranks, algorithm) = (experiment.ranks[0], &experiment.algorithms[0]);
        let mut configuration = experiment.configuration(self.sweep.model(point), 0, ranks, algorithm)?;
        let costs = Scaled::new(hardware.site().costs.as_ref(), self.factor);
        let setup = self.setup(experiment, hardware)?;
        let predicted = predict(&mut configuration, experiment, hardware.cluster(), &costs, &setup)?;
        Ok(SweepRow {
            step_time_s: Some(predicted.step_time_s),
            images_per_s: Some(predicted.images_per_s),
            exposed_comm_s: Some(predicted.exposed_comm_s),
            exposed_input_s: predicted.exposed_input_s,
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

    fn setup(&self, experiment: &Experiment, hardware: &Hardware) -> Result<Setup, InputError> {
        let mut setup = Setup::of(experiment, hardware.site(), self.how.network)?;
        setup.options.fold = self.how.fold;
        setup.options.max_written = 0;
        Ok(setup)
    }

    /// Whether the settings in a row are those of its point.
    pub fn has_settings_of(&self, row: &SweepRow) -> bool {
        let Some(point) = u32::try_from(row.point).ok().filter(|point| *point < self.count()) else { return false };
        let variant = self.sweep.variant(&self.plan.points[point as usize]);
        // The cluster may determine the number of ranks.
        let ranks = variant.ranks.first().copied().unwrap_or(row.setting.ranks / variant.learners.max(1));
        self.label(point, ranks).with_figures_of(row) == *row
    }

    /// The row of a point with `ranks` ranks before anything is known of it.
    pub fn label(&self, index: u32, ranks: u32) -> SweepRow {
        self.labelled(index, ranks, &self.sweep.variant(&self.plan.points[index as usize]))
    }

    fn labelled(&self, index: u32, ranks: u32, variant: &Experiment) -> SweepRow {
        let (sweep, point) = (self.sweep, &self.plan.points[index as usize]);
        let Experiment { strategy, learners, bucket, chunk, .. } = variant;
        let accumulate = &match &variant.batch {
            Batch::Accumulated { per_rank, global } => variant.micro_batches(*per_rank, global[0], ranks).unwrap_or(0),
            _ => variant.accumulate,
        };
        let each = u64::from(strategy.period()).saturating_mul((*learners).into());
        let parts = (u64::from(ranks) * u64::from(*accumulate)).saturating_mul(each);
        let (batch_per_rank, global_batch) = match &variant.batch {
            Batch::PerRank(sizes) => (sizes[0], parts.saturating_mul(sizes[0].into())),
            Batch::Accumulated { per_rank, global } => (*per_rank, global[0]),
            Batch::Global(sizes) => {
                let size = sizes[0];
                let share = size.checked_div(parts).filter(|share| share.saturating_mul(parts) == size).unwrap_or(0);
                (u32::try_from(share).unwrap_or(0), size)
            }
        };
        let algorithm = &variant.algorithms[0];
        let alone = ranks == 1 && *learners == 1;
        SweepRow {
            sweep: self.identity.to_owned(),
            point: u64::from(index),
            cluster: variant.cluster.clone(),
            scale: sweep.scale_label(sweep.position(point, "scale")),
            setting: Setting {
                model: variant.numbers().unwrap_or_default().beside(sweep.model(point).name()),
                strategy: strategy.to_string(),
                learners: *learners,
                ranks: ranks.saturating_mul(*learners),
                batch_per_rank,
                accumulate: *accumulate,
                global_batch,
                algorithm: if alone { "-".to_owned() } else { algorithm.to_string() },
                bucket: bucket.to_string(),
                recompute: variant.recompute.any().map(ToString::to_string),
            },
            chunk: chunk.map_or_else(|| "auto".to_owned(), |chunk| chunk.to_string()),
            concurrent_exchanges: variant.concurrent_exchanges,
            network: self.how.network.name().to_owned(),
            total_ranks: if alone { 1 } else { ranks.saturating_add(algorithm.servers() - algorithm.switches()) },
            ..SweepRow::default()
        }
    }
}
