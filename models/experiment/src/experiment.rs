//! `Experiment`: holds one question as one value, whose fields follow from the table of settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use lockstep_models::{
    Augmentation, AxisAlgorithms, Bucket, Claim, DEFAULT_THRESHOLD, Gradients, InitRules, InitialValues, Mesh,
    Optimizer, PipelineSchedule, Precision, Sampling, SetSizes, Shape, StageCut, Strategy, Target, TransformAt,
};
use lockstep_readers::Solver;
use lockstep_topology::{Algorithm, Bytes, ErrorPlace, InputError};

use crate::device::DeviceChoice;
use crate::growth::Growth;
use crate::input::Stated as StatedInput;
use crate::noise::StatedNoise;
use crate::published::{Anchor, Published};
use crate::recipe::Recipe;
use crate::scale::ClusterScale;
use crate::scenario::Scenario;
use crate::transport::TransportKind;
use crate::tuner_log::Logged;

/// The name under which a cluster is this machine, as `lockstep calibrate` measured it.
pub const THIS_MACHINE: &str = "this-machine";

/// A run's error is the median of the errors after each of its last epochs, this number of them (Goyal et al.
/// 2017, §5.1).
const LAST_EPOCHS: u32 = 5;

/// How many samples a step takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batch {
    /// Samples per rank and micro-batch (weak scaling), one configuration each.
    PerRank(Vec<u32>),
    /// Samples per step over all ranks (strong scaling), one configuration each.
    Global(Vec<u64>),
}

impl Batch {
    /// The sizes per rank and micro-batch, if they are set.
    pub fn per_rank(&self) -> &[u32] {
        if let Batch::PerRank(sizes) = self { sizes } else { &[] }
    }

    /// The sizes over all ranks, if they are set.
    pub fn global(&self) -> &[u64] {
        if let Batch::Global(sizes) = self { sizes } else { &[] }
    }
}

/// How long a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Optimizer steps.
    Steps(u32),
    /// Passes over the training samples.
    Epochs(u32),
}

impl Length {
    /// Optimizer steps, if they are set.
    pub fn steps(self) -> Option<u32> {
        if let Length::Steps(steps) = self { Some(steps) } else { None }
    }

    /// Passes over the training samples, if they are set.
    pub fn epochs(self) -> Option<u32> {
        if let Length::Epochs(epochs) = self { Some(epochs) } else { None }
    }
}

/// One way to train.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// The experiment with the arm's keys.
    pub experiment: Experiment,
}

/// One value of a list of a sweep.
#[derive(Clone)]
pub struct Choice {
    /// Its spelling in identities.
    pub text: String,
    /// Sets it in an experiment.
    pub set: Arc<dyn Fn(&mut Experiment) + Send + Sync>,
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for Choice {
    fn eq(&self, other: &Choice) -> bool {
        self.text == other.text
    }
}

/// The lists that `[sweep]` gives instead of the experiment's single values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axes {
    /// Keys with their lists, under the key that they replace, if there is one, else their own.
    pub lists: BTreeMap<&'static str, (&'static str, Vec<Choice>)>,
    /// Figures of the clusters, each with its factors.
    pub scales: Vec<ClusterScale>,
}

/// Defines `Experiment` and its default from the rows, and from what has no row.
macro_rules! fields {
    ($($key:literal $($field:ident: $type:ty = $default:expr)?, $help:expr, $row:tt)*) => {
        /// A question: what is trained, on what, in which configurations.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Experiment {
            $($(#[doc = $help] pub $field: $type,)?)*
            /// Samples per step.
            pub batch: Batch,
            /// Learners on each device: each of `ranks` becomes this number of ranks.
            pub learners: u32,
            /// Whether the auto-tuner finds the number of learners on a device.
            pub tunes: bool,
            /// Logs of runs whose tuning decisions are repeated.
            pub tuning: Vec<Logged>,
            /// The number of processes that `mpirun` started, if it did: ranks are divided among them.
            pub processes: Option<u32>,
            /// How long a measured run is.
            pub length: Length,
            /// The accuracy at which a run ends, checked after each epoch.
            pub target: Target,
            /// The claims of an earlier run, which learners repeat.
            pub replay: Option<Arc<[Claim]>>,
            /// Number of epochs at the end of a run that are each followed by an evaluation.
            pub judged_epochs: u32,
            /// Samples of the data set, where it has been loaded.
            pub loaded: Option<SetSizes>,
            /// Cores of the host, the fewest of all hosts, where the data set has been loaded or is predicted as if it were.
            pub cores: Option<u32>,
            /// Initial values of parameters, where a file of weights has been loaded.
            pub initial: Option<Arc<InitialValues>>,
            /// The place of each key that the file or a flag sets.
            pub places: BTreeMap<String, ErrorPlace>,
            /// Of an arm: keys that the file states for all arms, of which one reads them.
            pub shared: BTreeSet<String>,
        }

        impl Default for Experiment {
            fn default() -> Experiment {
                Experiment {
                    $($($field: $default,)?)*
                    batch: Batch::PerRank(vec![32]),
                    learners: 1,
                    tunes: false,
                    tuning: Vec::new(),
                    processes: None,
                    length: Length::Steps(50),
                    target: Target::default(),
                    replay: None,
                    judged_epochs: LAST_EPOCHS,
                    loaded: None,
                    cores: None,
                    initial: None,
                    places: BTreeMap::new(),
                    shared: BTreeSet::new(),
                }
            }
        }
    };
}

rows!(fields);

impl Experiment {
    /// Whether the file or a flag sets `key`, instead of the default.
    pub fn states(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Records that a flag has replaced the file's value of `key`, so that errors name the flag.
    pub fn overridden(&mut self, key: &'static str) {
        self.places.insert(key.to_owned(), ErrorPlace::Flag(key));
    }

    /// Whether the file or a flag has a value for `key`.
    pub fn sets(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// The same error at the line of the file that it is about, where there is one; the error of an algorithm that does
    /// not apply is about `algorithm`.
    pub fn locate(&self, error: InputError) -> InputError {
        let key = match error.place {
            ErrorPlace::Flag(key) => key,
            ErrorPlace::None => "algorithm",
            _ => return error,
        };
        let place = self.places.get(key).cloned();
        error.at(place.unwrap_or(ErrorPlace::Flag(key)))
    }

    /// Samples of the data set, for a model whose inputs have this shape: as loaded, from `[input]`, or by its name;
    /// `None` where only files state them.
    pub fn set_sizes(&self, input: Shape) -> Option<SetSizes> {
        let by_name = || SetSizes::of(&self.data, input);
        let stated = self.input.as_ref().and_then(|stated| stated.input().ok());
        let stated = stated.map(|input| SetSizes::synthetic(input.samples));
        self.loaded.or(stated).or_else(by_name)
    }

    /// Whether the cluster is this machine as calibrated.
    pub fn on_this_machine(&self) -> bool {
        self.cluster == THIS_MACHINE
    }

    /// Its arms; one without a name where it has none.
    pub fn arms(&self) -> Vec<Arm> {
        match self.arms.is_empty() {
            true => vec![Arm { name: "-".to_owned(), experiment: self.clone() }],
            false => self.arms.clone(),
        }
    }
}
