//! Strategies: each is a choice of layouts that yields the graph of one step.
//!
//! A new strategy is one file here and one match arm; simulator and executor see only the program.

mod buckets;
mod data_parallel;
mod device_table;
mod ea_sgd;
mod hybrid;
mod job;
mod learners;
mod settings;
mod sma;
mod split;
mod ssgd;
mod zero;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lockstep_topology::{ErrorPlace, InputError};

use crate::model::shard;
use crate::{Averaging, Axis, AxisSet, Graph, Mesh, Model, Sampling, Sharding};
pub use ea_sgd::EaSgd;
pub use hybrid::Scheme;
pub use job::{Bucket, Job};
pub use sma::Sma;

/// How training is spread over ranks.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// Synchronous data-parallel SGD: samples are split, weights replicated, gradients allreduced
    /// (Goyal et al. 2017 §2 and §4, Iandola et al. 2016 §6).
    Ssgd,
    /// The same with the optimizer's state shared out among ranks (Rajbhandari et al. 2020 §5.1).
    Zero1,
    /// Synchronous model averaging among learners (Koliousis et al. 2019 §3.2).
    Sma(Sma),
    /// Elastic averaging SGD: the same without momentum (Koliousis et al. 2019 §5.5).
    EaSgd(EaSgd),
    /// Data-parallel convolutions and model-parallel dense layers (Krizhevsky 2014 §4).
    Hybrid {
        /// Which samples a pass through the dense layers takes.
        scheme: Scheme,
        /// Whether dense layers are updated after each pass (§4.2).
        variable_batch: bool,
    },
    /// Every layer with weights is split by features, every rank has all samples: ranks exchange activations and their
    /// gradients (Iandola et al. 2016 §4).
    ModelParallel,
    /// As `Ssgd`, but a node's samples, scores and losses go through its first rank (Kumar et al. 2018 §4.3, Fig. 3).
    FirstDeviceTable,
}

/// The model that each rank has, and how it was cut out of the whole one.
pub type Shard = (Arc<Model>, Arc<Sharding>);

impl Strategy {
    /// The graph of one optimizer step of `job`, with the model that each rank has where it is not all of the job's.
    ///
    /// # Errors
    /// A model that the strategy cannot split, groups that do not divide the ranks, settings that it does not serve.
    pub fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        self.check_mesh(job)?;
        let workers = job.workers;
        let (front, passes, variable_batch, mesh) = match self {
            Strategy::Ssgd => return Ok((ssgd::graph(job)?, None)),
            Strategy::Zero1 if workers == 1 => return Ok((ssgd::graph(job)?, None)), // one rank keeps all of it
            Strategy::Zero1 => return Ok((zero::graph(job)?, None)),
            Strategy::FirstDeviceTable => return device_table::graph(job),
            Strategy::Sma(sma) => {
                return Ok((learners::graph(job, &sma.averaging(job.workers, job.learners))?, None));
            }
            Strategy::EaSgd(ea_sgd) => {
                return Ok((learners::graph(job, &ea_sgd.averaging(job.workers, job.learners))?, None));
            }
            Strategy::Hybrid { scheme, variable_batch } => {
                let passes = scheme.passes(workers, job.batch_per_rank)?;
                (hybrid::front(&job.model)?, passes, *variable_batch, Mesh::new(&[(Axis::Data, workers)])?)
            }
            Strategy::ModelParallel => {
                // Without a mesh each rank brings a batch of its own, and all take all of them.
                let batches = if job.mesh.is_some() { 1 } else { workers };
                let all = hybrid::everything(batches, job.batch_per_rank);
                let mesh = job.mesh.clone().map_or_else(|| Mesh::new(&[(Axis::Tensor, workers)]), Ok)?;
                (vec![false; job.model.layers().len()], vec![all], false, mesh)
            }
        };
        self.refuse(job)?;
        let axis = if mesh.axes().contains(Axis::Tensor) { Axis::Tensor } else { Axis::Data };
        let ranks = mesh.size(axis);
        if ranks == 1 {
            return Ok((ssgd::graph(job)?, None)); // each rank has every layer whole
        }
        let outside = mesh.axes().without(axis);
        let of_mesh = |error: InputError| match error.place {
            ErrorPlace::Flag("ranks") if job.mesh.is_some() => error.at(ErrorPlace::Flag("mesh")),
            _ => error,
        };
        let (model, layers) = shard(&job.model, (axis, ranks), outside, &|id| front[id.index()]).map_err(of_mesh)?;
        let whole = Arc::clone(&job.model);
        let sharding = Sharding { whole, axis, ranks, layers, passes, variable_batch };
        let graph = split::graph(job, &model, &sharding, mesh);
        Ok((graph, Some((Arc::new(model), Arc::new(sharding)))))
    }

    /// The axes that a mesh may have.
    pub fn axes(&self) -> AxisSet {
        match self {
            Strategy::Ssgd | Strategy::Zero1 | Strategy::Hybrid { .. } => AxisSet::of(&[Axis::Data]),
            Strategy::ModelParallel => AxisSet::of(&[Axis::Data, Axis::Tensor]),
            // Theirs follow from the cluster's nodes and from the learners of a device.
            Strategy::FirstDeviceTable | Strategy::Sma(_) | Strategy::EaSgd(_) => AxisSet::default(),
        }
    }

    /// Refuses a mesh with axes that it has no use for.
    fn check_mesh(&self, job: &Job) -> Result<(), InputError> {
        let Some(mesh) = &job.mesh else { return Ok(()) };
        let refused = |message: String| Err(InputError::flag("mesh", mesh.to_string(), message));
        if mesh.ranks() != job.workers {
            return refused(format!("has {} ranks, not {}: leave ranks out", mesh.ranks(), job.workers));
        }
        if let Some(axis) = mesh.axes().iter().find(|axis| !self.axes().contains(*axis)) {
            let own = self.axes();
            let cure = if own == AxisSet::default() {
                "leave it out, and give ranks".to_owned()
            } else {
                format!("its axes are {own}")
            };
            let other = if axis == Axis::Tensor { "; model-parallel splits layers along tensor" } else { "" };
            return refused(format!("{self} has no axis {axis}: {cure}{other}"));
        }
        if job.sampling != Sampling::OneShuffle && mesh.axes().contains(Axis::Tensor) {
            return refused(format!(
                "ranks along tensor share samples, which {} does not serve: take one-shuffle",
                job.sampling
            ));
        }
        Ok(())
    }

    /// How it averages the models of so many learners, `each` of them on a device; `None` where all ranks train one.
    pub fn averaging(&self, learners: u32, each: u32) -> Option<Averaging> {
        match self {
            Strategy::Ssgd | Strategy::Zero1 | Strategy::Hybrid { .. } => None,
            Strategy::ModelParallel | Strategy::FirstDeviceTable => None,
            Strategy::Sma(sma) => Some(sma.averaging(learners, each)),
            Strategy::EaSgd(ea_sgd) => Some(ea_sgd.averaging(learners, each)),
        }
    }

    /// Batches of a rank from one synchronisation to the next: τ.
    pub fn period(&self) -> u32 {
        match self {
            Strategy::Ssgd | Strategy::Zero1 | Strategy::Hybrid { .. } => 1,
            Strategy::ModelParallel | Strategy::FirstDeviceTable => 1,
            Strategy::Sma(sma) => sma.period,
            Strategy::EaSgd(ea_sgd) => ea_sgd.period,
        }
    }

    /// Settings that strategies with split layers do not serve.
    fn refuse(&self, job: &Job) -> Result<(), InputError> {
        if job.accumulate > 1 {
            let message = format!("{self} takes one micro-batch a step: take 1, and a larger batch per rank");
            return Err(InputError::flag("accumulate", job.accumulate.to_string(), message));
        }
        let dedicated = job.algorithm.servers() > 0;
        if dedicated || job.algorithm.library().is_some() {
            let message = format!("does not serve {self}, whose ranks all exchange activations meanwhile: take ring");
            return Err(InputError::flag("algorithm", job.algorithm.to_string(), message));
        }
        Ok(())
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Ssgd => f.write_str("ssgd"),
            Strategy::Zero1 => f.write_str("zero-1"),
            Strategy::Sma(sma) => sma.fmt(f),
            Strategy::EaSgd(ea_sgd) => ea_sgd.fmt(f),
            Strategy::Hybrid { scheme, variable_batch: false } => write!(f, "hybrid:{scheme}"),
            Strategy::Hybrid { scheme, variable_batch: true } => write!(f, "hybrid:{scheme}:variable-batch"),
            Strategy::ModelParallel => f.write_str("model-parallel"),
            Strategy::FirstDeviceTable => f.write_str("first-device-table"),
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    /// Reads `ssgd`, `zero-1`, `hybrid:b`, `hybrid:g=2:variable-batch`, `model-parallel`, `first-device-table`, `sma`,
    /// `sma:momentum=0.9:tau=2:alpha=0.25`, `sma:reference-models` and `ea-sgd:tau=4:first-come`.
    fn from_str(text: &str) -> Result<Strategy, String> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "ssgd" if settings.is_empty() => Ok(Strategy::Ssgd),
            "zero-1" if settings.is_empty() => Ok(Strategy::Zero1),
            "model-parallel" if settings.is_empty() => Ok(Strategy::ModelParallel),
            "first-device-table" if settings.is_empty() => Ok(Strategy::FirstDeviceTable),
            "hybrid" => hybrid::parse(settings),
            "sma" => Sma::parse(settings).map(Strategy::Sma),
            "ea-sgd" => EaSgd::parse(settings).map(Strategy::EaSgd),
            _ => Err(format!(
                "unknown strategy {text:?}; there are: ssgd, zero-1, sma, ea-sgd, hybrid:a, hybrid:b, hybrid:c, hybrid:g=2, \
                 model-parallel, first-device-table"
            )),
        }
    }
}
