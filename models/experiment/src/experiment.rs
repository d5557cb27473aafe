//! `Experiment`: holds one question as one value, whose fields follow from the table of settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use lockstep_models::{
    Augmentation, AxisAlgorithms, Bucket, Claim, DEFAULT_THRESHOLD, Gradients, InitRules, InitialValues, Mesh,
    Optimizer, PipelineSchedule, Precision, Recompute, Sampling, SetSizes, Shape, StageCut, Strategy, Target,
    TransformAt,
};
use lockstep_readers::Solver;
use lockstep_topology::aliases::difference;
use lockstep_topology::document::Entry;
use lockstep_topology::{Algorithm, Bytes, ErrorPlace, InputError};

use crate::batch::Batch;
use crate::device::DeviceChoice;
use crate::foreign::Foreign;
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
            /// All clusters, where there are several; `cluster` is the first.
            pub clusters: Vec<String>,
            /// All strategies, where there are several; `strategy` is the first.
            pub strategies: Vec<Strategy>,
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
            /// The library between the GPUs of its cluster, which is the default algorithm.
            pub library: Option<Algorithm>,
            /// Samples of the data set, where it has been loaded.
            pub loaded: Option<SetSizes>,
            /// SHA-256 of the tokenizer in its packed files, where they have one and training was asked for.
            pub tokenizer: Option<String>,
            /// Cores of the host, the fewest of all hosts, where the data set has been loaded or is predicted as if it were.
            pub cores: Option<u32>,
            /// Initial values of parameters, where a file of weights has been loaded.
            pub initial: Option<Arc<dyn InitialValues>>,
            /// The place of each key that the file or a flag sets.
            pub places: BTreeMap<String, ErrorPlace>,
            /// By key, how values differ from what other programs mean by the names that are given.
            pub told: BTreeMap<String, Vec<&'static str>>,
            /// Of an arm: keys that the file states for all arms, of which one reads them.
            pub shared: BTreeSet<String>,
        }

        impl Default for Experiment {
            fn default() -> Experiment {
                Experiment {
                    $($($field: $default,)?)*
                    clusters: Vec::new(),
                    strategies: Vec::new(),
                    batch: Batch::PerRank(vec![32]),
                    learners: 1,
                    tunes: false,
                    tuning: Vec::new(),
                    processes: None,
                    length: Length::Steps(50),
                    target: Target::default(),
                    replay: None,
                    judged_epochs: LAST_EPOCHS,
                    library: None,
                    loaded: None,
                    tokenizer: None,
                    cores: None,
                    initial: None,
                    places: BTreeMap::new(),
                    told: BTreeMap::new(),
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

    /// Records the places of the keys in a table, as in `input.threads`.
    pub(crate) fn place_keys(&mut self, entry: &Entry<'_>) -> Result<(), InputError> {
        let table = entry.table()?;
        let keys = table.entries().map(|key| (format!("{}.{}", entry.key(), key.key()), key.place()));
        self.places.extend(keys);
        Ok(())
    }

    /// Sets its clusters, at least one.
    pub(crate) fn set_clusters(&mut self, all: Vec<String>) {
        self.cluster.clone_from(&all[0]);
        self.clusters = if all.len() > 1 { all } else { Vec::new() };
    }

    /// Its clusters, one or several.
    pub fn all_clusters(&self) -> Vec<String> {
        if self.clusters.is_empty() { vec![self.cluster.clone()] } else { self.clusters.clone() }
    }

    /// Sets its strategies, at least one.
    pub fn set_strategies(&mut self, all: Vec<Strategy>) {
        self.strategy.clone_from(&all[0]);
        self.strategies = if all.len() > 1 { all } else { Vec::new() };
    }

    /// Its strategies, one or several.
    pub fn all_strategies(&self) -> Vec<Strategy> {
        if self.strategies.is_empty() { vec![self.strategy.clone()] } else { self.strategies.clone() }
    }

    /// The experiment with one of its strategies, for each.
    pub fn of_strategies(&self) -> Vec<Experiment> {
        let with = |strategy| Experiment { strategy, strategies: Vec::new(), ..self.clone() };
        let mut each: Vec<Experiment> = self.all_strategies().into_iter().map(with).collect();
        // As of arms: what one of them reads, the others may leave.
        let read = Experiment::read_by_some(&each);
        each.iter_mut().for_each(|one| one.shared.extend(read.iter().map(|key| (*key).to_owned())));
        each
    }

    /// The experiment with one of its clusters, and there with one of its strategies, for each.
    pub fn variants(&self) -> Vec<Experiment> {
        let clusters = self.all_clusters();
        let count = clusters.len();
        let with = |(place, cluster)| {
            // A wrong number of prices is refused before.
            let price = self.price_of(place, count).ok().flatten().into_iter().collect();
            Experiment { cluster, clusters: Vec::new(), price, ..self.clone() }
        };
        clusters.into_iter().enumerate().map(with).flat_map(|of_cluster| of_cluster.of_strategies()).collect()
    }

    /// Notes how the texts of `key`, names of other programs, differ from what they are taken for.
    pub fn tell<'a>(&mut self, key: &str, texts: impl IntoIterator<Item = &'a str>) {
        let told: Vec<&'static str> = texts.into_iter().filter_map(|text| difference(key, text)).collect();
        if told.is_empty() {
            self.told.remove(key);
        } else {
            self.told.insert(key.to_owned(), told);
        }
    }

    /// What has been noted, each once, and what is taken of another framework's file.
    pub fn account_of_names(&self) -> Vec<String> {
        let all: BTreeSet<&str> = self.told.values().flatten().copied().collect();
        all.into_iter().map(str::to_owned).chain(self.account_of_foreign()).collect()
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

    /// The same with the data that its model trains on where none are stated: of a model of tokens the text that is part of the binary,
    /// by its tokenizer where the model has as many tokens, as bytes where it has those, else synthetic ones.
    #[must_use]
    pub fn with_data(mut self) -> Experiment {
        // Files of other frameworks have no tokens.
        let is_foreign = [".onnx", ".prototxt"].iter().any(|ending| self.model.contains(ending));
        if !self.sets("data") && !is_foreign && !self.model.is_empty() {
            let tokens = self.load_model(&self.model).ok().and_then(|model| model.tokens());
            let of = match tokens {
                Some(SetSizes::BPE..) => SetSizes::TEXT_BPE.0,
                Some(SetSizes::BYTES..) => SetSizes::TEXT.0,
                _ => "synthetic",
            };
            of.clone_into(&mut self.data);
        }
        self.arms.iter_mut().for_each(|arm| {
            let own = std::mem::take(&mut arm.experiment);
            arm.experiment = own.with_data();
        });
        self
    }

    /// The data, with the tokenizer of packed files where they have one: other tokens are other data.
    pub fn data_with_tokenizer(&self) -> String {
        let own = |sha256: &String| format!("{} (tokenizer {sha256})", self.data);
        self.tokenizer.as_ref().map_or_else(|| self.data.clone(), own)
    }

    /// Samples of the data set, for a model whose inputs have this shape: as loaded, from `[input]`, or by its name;
    /// `None` where only files state them.
    pub fn set_sizes(&self, input: Shape) -> Option<SetSizes> {
        let by_name = || SetSizes::of(&self.data, input);
        let stated = self.input.as_ref().and_then(|stated| stated.input().ok());
        let stated = stated.map(|input| SetSizes::synthetic(input.samples));
        self.loaded.or(stated).or_else(by_name)
    }

    /// Training samples of the data set, where a setting, files or `[input]` state it.
    pub fn stated_samples(&self, input: Shape) -> Option<u64> {
        let stated = self.places.contains_key("data") || self.loaded.is_some() || self.input.is_some();
        self.set_sizes(input).filter(|_| stated).map(|sizes| sizes.train)
    }

    /// The price of a device for an hour on the cluster at `place` of `places`; `None` where none is given.
    ///
    /// # Errors
    /// Several prices that are not one for each cluster.
    pub fn price_of(&self, place: usize, places: usize) -> Result<Option<f64>, InputError> {
        match self.price.as_slice() {
            [] => Ok(None),
            [price] => Ok(Some(*price)),
            prices if prices.len() == places => Ok(prices.get(place).copied()),
            prices => {
                let listed: Vec<String> = prices.iter().map(f64::to_string).collect();
                let clusters = if places == 1 { "1 cluster".to_owned() } else { format!("{places} clusters") };
                let message =
                    format!("are {} prices of {clusters}: give one price for all, or one for each", prices.len());
                Err(self.locate(InputError::flag("price", listed.join(","), message)))
            }
        }
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
