//! Strategies: each is a choice of layouts that yields the graph of one step.
//!
//! A new strategy is one file here and one match arm, or a line in the list of those that learners have; simulator and executor see
//! only the program.

mod buckets;
mod data_parallel;
mod device_table;
mod hybrid;
mod job;
mod learners;
mod settings;
mod split;
mod ssgd;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lockstep_topology::InputError;

use crate::model::shard;
use crate::{Averaging, Graph, Model, Sharding};
pub use hybrid::Scheme;
pub use job::{Bucket, Job};

/// A strategy of learners: ranks that train models of their own between exchanges.
trait LearnerPlan: fmt::Display {
    /// Reads what follows the colon of its name.
    ///
    /// # Errors
    /// A setting that it does not have.
    fn parse(settings: &str) -> Result<Self, String>
    where
        Self: Sized;

    /// The graph of one iteration.
    ///
    /// # Errors
    /// No workers.
    fn graph(&self, job: &Job) -> Result<Graph, InputError>;

    /// Batches of a rank from one synchronisation to the next: τ.
    fn period(&self) -> u32;

    /// How so many learners, `each` of them on a device, keep an average model; `None` where they have none beside their own.
    fn averaging(&self, _learners: u32, _each: u32) -> Option<Averaging> {
        None
    }
}

/// Makes the strategies of learners of their files, each with the name before its settings.
macro_rules! learner_strategies {
    ($($file:ident: $strategy:ident = $name:literal;)*) => {
        $(
            mod $file;
            use $file::$strategy;
        )*

        /// A strategy whose ranks train models of their own between exchanges, with its settings.
        #[derive(Debug, Clone, PartialEq)]
        pub enum LearnerStrategy {
            $(
                #[doc = concat!("`", $name, "`.")]
                $strategy($strategy),
            )*
        }

        impl LearnerStrategy {
            /// Their names.
            const NAMES: &[&str] = &[$($name),*];

            /// The strategy of a name, if there is one.
            fn parse(name: &str, settings: &str) -> Option<Result<LearnerStrategy, String>> {
                match name {
                    $($name => Some($strategy::parse(settings).map(LearnerStrategy::$strategy)),)*
                    _ => None,
                }
            }

            fn plan(&self) -> &dyn LearnerPlan {
                match self {
                    $(LearnerStrategy::$strategy(plan) => plan,)*
                }
            }
        }
    };
}

// `cargo fmt` does not see these files: `bash tests/run format` does.
learner_strategies! {
    sma: Sma = "sma";
    ea_sgd: EaSgd = "ea-sgd";
    local_sgd: LocalSgd = "local-sgd";
}

/// How training is spread over ranks.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// Synchronous data-parallel SGD: samples are split, weights replicated, gradients allreduced
    /// (Goyal et al. 2017 §2 and §4, Iandola et al. 2016 §6).
    Ssgd,
    /// Learners: each rank trains a model of its own, and exchanges keep them together.
    Learners(LearnerStrategy),
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
            Strategy::Learners(learners) => return Ok((learners.plan().graph(job)?, None)),
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

    /// How so many learners, `each` of them on a device, keep an average model; `None` where there is none.
    pub fn averaging(&self, learners: u32, each: u32) -> Option<Averaging> {
        self.learners()?.plan().averaging(learners, each)
    }

    /// Whether ranks train models of their own between exchanges, each on gradients of its own batches.
    pub fn trains_apart(&self) -> bool {
        self.learners().is_some()
    }

    fn learners(&self) -> Option<&LearnerStrategy> {
        match self {
            Strategy::Learners(learners) => Some(learners),
            _ => None,
        }
    }

    /// Batches of a rank from one synchronisation to the next: τ.
    pub fn period(&self) -> u32 {
        self.learners().map_or(1, |learners| learners.plan().period())
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
            Strategy::Learners(learners) => learners.plan().fmt(f),
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
            _ => match LearnerStrategy::parse(name, settings) {
                Some(strategy) => strategy.map(Strategy::Learners),
                None => Err(format!(
                    "unknown strategy {text:?}; there are: ssgd, {}, hybrid:a, hybrid:b, hybrid:c, hybrid:g=2, \
                     model-parallel, first-device-table",
                    LearnerStrategy::NAMES.join(", ")
                )),
            },
        }
    }
}
