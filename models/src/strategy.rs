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

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lockstep_topology::InputError;

use crate::model::shard;
use crate::{Averaging, Graph, Model, Sharding};
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
        let (front, passes, variable_batch) = match self {
            Strategy::Ssgd => return Ok((ssgd::graph(job)?, None)),
            Strategy::FirstDeviceTable => return device_table::graph(job),
            Strategy::Sma(sma) => {
                return Ok((learners::graph(job, &sma.averaging(job.workers, job.learners))?, None));
            }
            Strategy::EaSgd(ea_sgd) => {
                return Ok((learners::graph(job, &ea_sgd.averaging(job.workers, job.learners))?, None));
            }
            Strategy::Hybrid { scheme, variable_batch } => {
                (hybrid::front(&job.model)?, scheme.passes(job.workers, job.batch_per_rank)?, *variable_batch)
            }
            Strategy::ModelParallel => {
                let all = hybrid::everything(job.workers, job.batch_per_rank);
                (vec![false; job.model.layers().len()], vec![all], false)
            }
        };
        self.refuse(job)?;
        if job.workers == 1 {
            return Ok((ssgd::graph(job)?, None)); // one rank has every layer whole
        }
        let (model, layers) = shard(&job.model, job.workers, &|id| front[id.index()])?;
        let whole = Arc::clone(&job.model);
        let sharding = Sharding { whole, ranks: job.workers, layers, passes, variable_batch };
        let graph = split::graph(job, &model, &sharding)?;
        Ok((graph, Some((Arc::new(model), Arc::new(sharding)))))
    }

    /// How it averages the models of so many learners, `each` of them on a device; `None` where all ranks train one.
    pub fn averaging(&self, learners: u32, each: u32) -> Option<Averaging> {
        match self {
            Strategy::Ssgd | Strategy::Hybrid { .. } | Strategy::ModelParallel | Strategy::FirstDeviceTable => None,
            Strategy::Sma(sma) => Some(sma.averaging(learners, each)),
            Strategy::EaSgd(ea_sgd) => Some(ea_sgd.averaging(learners, each)),
        }
    }

    /// Batches of a rank from one synchronisation to the next: τ.
    pub fn period(&self) -> u32 {
        match self {
            Strategy::Ssgd | Strategy::Hybrid { .. } | Strategy::ModelParallel | Strategy::FirstDeviceTable => 1,
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

    /// Reads `ssgd`, `hybrid:b`, `hybrid:g=2:variable-batch`, `model-parallel`, `first-device-table`, `sma`,
    /// `sma:momentum=0.9:tau=2:alpha=0.25`, `sma:reference-models` and `ea-sgd:tau=4:first-come`.
    fn from_str(text: &str) -> Result<Strategy, String> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "ssgd" if settings.is_empty() => Ok(Strategy::Ssgd),
            "model-parallel" if settings.is_empty() => Ok(Strategy::ModelParallel),
            "first-device-table" if settings.is_empty() => Ok(Strategy::FirstDeviceTable),
            "hybrid" => hybrid::parse(settings),
            "sma" => Sma::parse(settings).map(Strategy::Sma),
            "ea-sgd" => EaSgd::parse(settings).map(Strategy::EaSgd),
            _ => Err(format!(
                "unknown strategy {text:?}; there are: ssgd, sma, ea-sgd, hybrid:a, hybrid:b, hybrid:c, hybrid:g=2, \
                 model-parallel, first-device-table"
            )),
        }
    }
}
