//! Lists the strategies: each chooses layouts and builds the graph of one step.
//!
//! A new strategy is one file and one line here; simulator and executor see only the program.

mod again;
mod bucket;
mod buckets;
mod clip;
mod early;
mod job;
mod learners;
mod on_tensor;
mod passes;
mod rule;
mod settings;
mod split;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lockstep_topology::InputError;

use crate::{Averaging, Axis, AxisSet, Declared, Graph, Model, Sampling, Sharding};
pub use bucket::Bucket;
pub use job::Job;

/// A strategy with its settings: builds the graph, and parses and prints the settings.
trait Plan {
    /// Reads what follows the colon after its name.
    ///
    /// # Errors
    /// An unknown setting.
    fn parse(settings: &str) -> Result<Self, String>
    where
        Self: Sized;

    /// Writes its name and settings in the form that is read.
    ///
    /// # Errors
    /// The writer's.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The graph of one optimizer step, or of one iteration of learners, and the model of each rank where that is a
    /// part of the job's.
    ///
    /// # Errors
    /// A model that it cannot split, ranks that it cannot arrange, unsupported settings.
    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError>;

    /// Buffers that its formulas use besides those of every program and of model averaging; a graph refers to them by
    /// [`Job::own_buffer`].
    fn buffers(&self, _job: &Job) -> Vec<Declared> {
        Vec::new()
    }

    /// The axes that a mesh may have; none where they follow from the cluster's nodes or the learners of a device.
    fn axes(&self) -> AxisSet {
        AxisSet::default()
    }

    /// The axes along which nothing but activations is exchanged, so that a library may serve them.
    fn activation_axes(&self) -> AxisSet {
        AxisSet::default()
    }

    /// Whether ranks have parts of layers, and exchange activations and their gradients.
    fn splits_layers(&self) -> bool {
        false
    }

    /// Whether ranks train models of their own between exchanges, each on gradients of its own batches.
    fn trains_apart(&self) -> bool {
        false
    }

    /// Batches of a rank from one synchronisation to the next: τ.
    fn period(&self) -> u32 {
        1
    }

    /// How `learners` learners, `each` of them on a device, keep an average model; `None` where there is none.
    fn averaging(&self, _learners: u32, _each: u32) -> Option<Averaging> {
        None
    }
}

/// Reads and writes a strategy that is a name without settings.
macro_rules! name_alone {
    ($name:expr) => {
        fn parse(settings: &str) -> Result<Self, String> {
            match settings {
                "" => Ok(Self),
                _ => Err(format!("{settings:?} has no effect: {} has no settings", $name)),
            }
        }

        fn write(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str($name)
        }
    };
}

/// Makes the strategies of their files, each with the name before its settings and the forms that errors list.
macro_rules! strategies {
    ($($file:ident: $strategy:ident = $name:literal, $forms:literal;)*) => {
        $(
            mod $file;
            use $file::$strategy;
        )*

        /// How training is spread over ranks.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Strategy {
            $(
                #[doc = concat!("`", $forms, "`.")]
                $strategy($strategy),
            )*
        }

        /// Each strategy as it may be written, with a comma after each.
        #[macro_export]
        macro_rules! strategy_forms {
            () => { concat!($($forms, ", "),*) };
        }

        impl Strategy {
            /// Each strategy as it may be written, with placeholders for settings.
            pub fn forms() -> impl Iterator<Item = &'static str> {
                [$($forms),*].into_iter().flat_map(|forms| forms.split(", "))
            }

            fn plan(&self) -> &dyn Plan {
                match self {
                    $(Strategy::$strategy(plan) => plan,)*
                }
            }
        }

        impl FromStr for Strategy {
            type Err = String;

            /// Reads a name, and after a colon its settings: `hybrid:g=2:variable-batch`,
            /// `sma:momentum=0.9:tau=2:alpha=0.25`.
            fn from_str(text: &str) -> Result<Strategy, String> {
                let ours = lockstep_topology::aliases::ours("strategy", text, [$($name),*])?;
                let (name, settings) = ours.split_once(':').unwrap_or((&ours, ""));
                match name {
                    $($name => $strategy::parse(settings).map(Strategy::$strategy),)*
                    _ => Err(format!("unknown strategy {text:?}; there are: {}", [$($forms),*].join(", "))),
                }
            }
        }
    };
}

// `cargo fmt` does not see these files: `bash tests/run format` does.
strategies! {
    ssgd: Ssgd = "ssgd", "ssgd";
    zero: Zero1 = "zero-1", "zero-1";
    zero_2: Zero2 = "zero-2", "zero-2";
    zero_3: Zero3 = "zero-3", "zero-3";
    sma: Sma = "sma", "sma";
    ea_sgd: EaSgd = "ea-sgd", "ea-sgd";
    local_sgd: LocalSgd = "local-sgd", "local-sgd";
    hybrid: Hybrid = "hybrid", "hybrid:a, hybrid:b, hybrid:c, hybrid:g=2";
    model_parallel: ModelParallel = "model-parallel", "model-parallel, model-parallel:zero-1";
    megatron: Megatron = "megatron", "megatron, megatron:zero-1";
    sequence_parallel: SequenceParallel = "sequence-parallel", "sequence-parallel, sequence-parallel:zero-1";
    all_to_all: AllToAll = "all-to-all", "all-to-all, all-to-all:zero-1";
    device_table: FirstDeviceTable = "first-device-table", "first-device-table";
}

/// The model that each rank has, and how it was cut out of the whole one.
pub type Shard = (Arc<Model>, Arc<Sharding>);

impl Default for Strategy {
    /// Synchronous SGD.
    fn default() -> Strategy {
        Strategy::Ssgd(Ssgd)
    }
}

impl Strategy {
    /// The graph of one optimizer step of `job`, with the model that each rank has where it is not all of the job's.
    ///
    /// # Errors
    /// A model that the strategy cannot split, groups that do not divide the ranks, unsupported settings.
    pub fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        self.check_mesh(job)?;
        self.plan().graph(job)
    }

    /// The buffers that it declares itself.
    pub fn buffers(&self, job: &Job) -> Vec<Declared> {
        self.plan().buffers(job)
    }

    /// How `learners` learners, `each` of them on a device, keep an average model; `None` where there is none.
    pub fn averaging(&self, learners: u32, each: u32) -> Option<Averaging> {
        self.plan().averaging(learners, each)
    }

    /// The strategies whose meshes may have this axis, as they may be written.
    fn with_axis(axis: Axis) -> Vec<&'static str> {
        let has = |form: &&str| form.parse::<Strategy>().is_ok_and(|of| of.plan().axes().contains(axis));
        Strategy::forms().filter(has).collect()
    }

    /// Whether ranks have parts of layers, and exchange activations and their gradients.
    pub fn splits_layers(&self) -> bool {
        self.plan().splits_layers()
    }

    /// The axes along which nothing but activations is exchanged, so that a library may serve them; none in most
    /// strategies.
    pub fn activation_axes(&self) -> AxisSet {
        self.plan().activation_axes()
    }

    /// Whether ranks train models of their own between exchanges, each on gradients of its own batches.
    pub fn trains_apart(&self) -> bool {
        self.plan().trains_apart()
    }

    /// Batches of a rank from one synchronisation to the next: τ.
    pub fn period(&self) -> u32 {
        self.plan().period()
    }

    /// Refuses a mesh with axes that it does not use.
    fn check_mesh(&self, job: &Job) -> Result<(), InputError> {
        let Some(mesh) = &job.mesh else { return Ok(()) };
        let refused = |message: String| Err(InputError::flag("mesh", mesh.to_string(), message));
        if mesh.ranks() != job.workers {
            return refused(format!("has {} ranks, not {}: leave ranks out", mesh.ranks(), job.workers));
        }
        let own = self.plan().axes();
        if let Some(axis) = mesh.axes().iter().find(|axis| !own.contains(*axis)) {
            let cure =
                if own.is_empty() { "leave it out, and give ranks".to_owned() } else { format!("its axes are {own}") };
            let others = match &Strategy::with_axis(axis)[..] {
                [] => String::new(),
                [one] => format!("; {one} has it"),
                [some @ .., last] => format!("; {} and {last} have it", some.join(", ")),
            };
            return refused(format!("{self} has no axis {axis}: {cure}{others}"));
        }
        let sharing = [Axis::Pipeline, Axis::Tensor].into_iter().find(|axis| mesh.axes().contains(*axis));
        let in_parts = matches!(job.sampling, Sampling::Partitioned { .. });
        if let Some(axis) = sharing.filter(|_| in_parts) {
            let sampling = job.sampling;
            return refused(format!(
                "ranks along {axis} share samples, and with {sampling} each has its own: use one-shuffle or per-node"
            ));
        }
        if mesh.size(Axis::Pipeline) > 1 && job.servers() > 0 {
            let kind = job.algorithm.kind_of_servers();
            return refused(format!("{} has {kind}, which serve no stages: use ring", job.algorithm));
        }
        Ok(())
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan().write(f)
    }
}
