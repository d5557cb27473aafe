//! `Experiment`: one question as one value, read from a TOML file or made of flags, and the configurations it asks about.

mod arms;
mod axes;
mod configuration;
mod device;
mod growth;
mod input;
mod learners;
mod noise;
mod optimizer;
mod published;
pub(crate) mod read;
pub(crate) mod reader;
mod recipe;
mod scenario;
#[cfg(test)]
mod tests;
mod transport;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lockstep_exec::data::Augmentation;
use lockstep_exec::device::Devices;
use lockstep_models::{Bucket, Claim, DEFAULT_THRESHOLD, InitRules, Optimizer, Sampling, Strategy, Target};
use lockstep_topology::{Algorithm, Bytes, DESCRIPTION, ErrorPlace, InputError, read_text};

use crate::tuner_log::Logged;
pub use arms::Arm;
pub use axes::Axes;
pub(crate) use axes::chunk_or_auto;
pub use configuration::Configuration;
pub use device::Device;
pub use growth::Growth;
pub use input::Stated as StatedInput;
pub use learners::Learners;
pub(crate) use learners::default_method;
pub use noise::{Noise, trials};
pub use published::{Anchor, Point, Published};
pub use recipe::Recipe;
pub use scenario::{NONE, Scenario, ScenarioEntry, TrafficLoad, Trouble};
pub use transport::TransportKind;

/// The name under which a cluster is this machine, as `lockstep calibrate` measured it.
pub const THIS_MACHINE: &str = "this-machine";

/// A run's error is the median after each of so many last epochs (Goyal et al. 2017, §5.1).
const LAST_EPOCHS: u32 = 5;

/// How many samples a step takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batch {
    /// Samples per rank and micro-batch (weak scaling), one configuration each.
    PerRank(Vec<u32>),
    /// Samples per step over all ranks (strong scaling), one configuration each.
    Global(Vec<u64>),
}

/// How long a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Optimizer steps.
    Steps(u32),
    /// Passes over the training samples.
    Epochs(u32),
}

/// A question: what is trained, on what, in which configurations.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// What it is called.
    pub name: String,
    /// A zoo name or the path of a `.toml` file.
    pub model: String,
    /// `mnist`, `synthetic`, `synthetic:SAMPLES` or a folder of IDX files.
    pub data: String,
    /// [`THIS_MACHINE`], a preset's name or the path of a `.toml` file.
    pub cluster: String,
    /// Numbers of ranks that train.
    pub ranks: Vec<u32>,
    /// Samples per step.
    pub batch: Batch,
    /// Micro-batches per step and rank.
    pub accumulate: u32,
    /// How training is spread over ranks.
    pub strategy: Strategy,
    /// Methods of the allreduce that it names; see [`Experiment::methods`].
    pub algorithms: Vec<Algorithm>,
    /// How gradients are cut into exchanges.
    pub bucket: Bucket,
    /// Bytes per lane of an exchange; `None`: the algorithm's own choice.
    pub chunk: Option<Bytes>,
    /// Exchanges in flight at once.
    pub concurrent_exchanges: u32,
    /// Whether neighbouring layers are fused into one kernel.
    pub fuse: bool,
    /// Learners on each device: every one of `ranks` becomes so many.
    pub learners: u32,
    /// More of them once some epochs are done.
    pub growth: Vec<Growth>,
    /// How ranks meet.
    pub transport: TransportKind,
    /// Processes that `mpirun` started, where it did: ranks divide among them.
    pub processes: Option<u32>,
    /// Ranks on each node; `None`: as many as a host has devices, and on this machine those of a process.
    pub ranks_per_node: Option<u32>,
    /// Whether the auto-tuner finds how many learners a device takes.
    pub tunes: bool,
    /// Share by which another learner must raise the throughput (τ).
    pub tuner_threshold: f64,
    /// Runs whose tuning is decided as it was.
    pub tuning: Vec<Logged>,
    /// Who draws samples together.
    pub sampling: Sampling,
    /// What measured runs compute on.
    pub device: Device,
    /// Threads of each rank, on the CPU.
    pub threads_per_rank: u32,
    /// How long a measured run is.
    pub length: Length,
    /// Seed of initial parameters, of the order of the samples and of dropout.
    pub seed: u64,
    /// Measured runs of each configuration, with seeds `seed`, `seed + 1`, …
    pub seeds: u32,
    /// The accuracy at which a run ends; each epoch is judged then.
    pub target: Target,
    /// The claims of an earlier run, which learners make again.
    pub replay: Option<Arc<[Claim]>>,
    /// So many epochs at the end of a run are each followed by an evaluation.
    pub judged_epochs: u32,
    /// Whether batch norm's statistics are recomputed before each evaluation.
    pub recompute_bn: bool,
    /// What is done to training samples.
    pub augmentation: Augmentation,
    /// What it follows, if anything.
    pub recipe: Option<Recipe>,
    /// Learning rate, momentum, weight decay.
    pub optimizer: Optimizer,
    /// Initial values, where they are not the model's own.
    pub inits: InitRules,
    /// The point that predictions are scaled to.
    pub anchor: Option<Anchor>,
    /// Figures to compare with.
    pub published: Option<Published>,
    /// How samples reach the devices in predictions; without it they are there.
    pub input: Option<StatedInput>,
    /// What varies, in place of what the profile recorded.
    pub noise: Option<Noise>,
    /// Lists that `sim sweep` alone goes through.
    pub sweep: Axes,
    /// Ways to train that `exec sweep` compares; see [`Experiment::arms`].
    pub arms: Vec<Arm>,
    /// What may go wrong: each is predicted beside the undisturbed run.
    pub scenarios: Vec<Scenario>,
    /// For each key of the file, its file and line.
    pub places: BTreeMap<String, ErrorPlace>,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            name: String::new(),
            model: String::new(),
            data: "synthetic".to_owned(),
            cluster: THIS_MACHINE.to_owned(),
            ranks: vec![1],
            batch: Batch::PerRank(vec![32]),
            accumulate: 1,
            strategy: Strategy::Ssgd,
            algorithms: Vec::new(),
            bucket: Bucket::Size(Bytes(25 << 20)),
            chunk: None,
            concurrent_exchanges: 1,
            fuse: true,
            learners: 1,
            growth: Vec::new(),
            transport: TransportKind::Threads,
            processes: None,
            ranks_per_node: None,
            tunes: false,
            tuner_threshold: DEFAULT_THRESHOLD,
            tuning: Vec::new(),
            sampling: Sampling::OneShuffle,
            device: Device::Cpu,
            threads_per_rank: 1,
            length: Length::Steps(50),
            seed: 1,
            seeds: 1,
            target: Target::default(),
            replay: None,
            judged_epochs: LAST_EPOCHS,
            recompute_bn: false,
            augmentation: Augmentation::default(),
            recipe: None,
            optimizer: Optimizer::default(),
            inits: InitRules::default(),
            anchor: None,
            published: None,
            input: None,
            noise: None,
            sweep: Axes::default(),
            arms: Vec::new(),
            scenarios: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

impl Experiment {
    /// The experiment in the file at `path`.
    ///
    /// # Errors
    /// An unreadable file, and whatever [`Experiment::parse`] refuses.
    pub fn load(path: &Path) -> Result<Experiment, InputError> {
        let shown = path.display().to_string();
        match read_text(path, DESCRIPTION) {
            Ok(text) => Experiment::parse(&shown, &text),
            Err(error) => {
                let message = error.told("name an experiment such as experiments/quickstart.toml");
                Err(InputError::new("EXPERIMENT", shown, message))
            }
        }
    }

    /// The experiment that `text`, the content of `file`, describes; `docs/experiments.md` explains every key.
    ///
    /// # Errors
    /// Anything that is no TOML, an unknown or missing key, a value out of range: with file, line, value and cure.
    pub fn parse(file: &str, text: &str) -> Result<Experiment, InputError> {
        read::parse(file, text)
    }

    /// What measured runs compute on.
    ///
    /// # Errors
    /// See [`Device::open`].
    pub fn devices(&self) -> Result<Arc<dyn Devices>, InputError> {
        self.device.open().map_err(|error| self.locate(error))
    }

    /// Whether the file or a flag says something under `key`, in place of the default.
    pub fn states(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Says that a flag has replaced the file's value under `key`, so that errors name the flag.
    pub fn overridden(&mut self, key: &str) {
        self.places.remove(key);
    }

    /// How `configurations` are trained, in full and in words: recipe, rates, momentum, decays, initial values.
    pub fn account_of_training(&self, configurations: &[Configuration]) -> String {
        let mut lines = Vec::new();
        if let Some(recipe) = &self.recipe {
            let batch = recipe.global_batch.map(|batch| format!(", made for a global batch of {batch}"));
            lines.push(format!("recipe {} ({}{})", recipe.name, recipe.source, batch.unwrap_or_default()));
        }
        lines.push(self.optimizer.to_string());
        let mut rates: Vec<String> = Vec::new();
        for configuration in configurations {
            let batch = configuration.job.gradient_samples();
            let whose = if configuration.job.averaging().is_some() { "a learner's" } else { "a global" };
            let rate = format!("{} at {whose} batch of {batch}", self.optimizer.target_rate(batch));
            if !rates.contains(&rate) {
                rates.push(rate);
            }
        }
        lines.push(format!("target rate {}", rates.join(", ")));
        lines.extend(configurations.first().map(|first| format!("initial values: {}", first.job.model.inits())));
        lines.join("\n")
    }

    /// The same error at the line of the file that it is about, where there is one; a method that cannot serve is about
    /// `algorithm`.
    pub fn locate(&self, error: InputError) -> InputError {
        let key = match error.place {
            ErrorPlace::Flag(key) => key,
            ErrorPlace::None => "algorithm",
            _ => return error,
        };
        let place = self.places.get(key).cloned();
        error.at(place.unwrap_or(ErrorPlace::Flag(key)))
    }
}

/// A share of samples that a run is to get right.
///
/// # Errors
/// What is wrong with it.
pub fn accuracy(share: f64) -> Result<f64, String> {
    let right = share > 0.0 && share <= 1.0;
    right.then_some(share).ok_or_else(|| "must be a number above 0 and at most 1".to_owned())
}

/// The share of the last step that the next one keeps.
///
/// # Errors
/// What is wrong with it.
pub fn momentum(share: f64) -> Result<f64, String> {
    (0.0..1.0).contains(&share).then_some(share).ok_or_else(|| "must be a number from 0 to below 1".to_owned())
}

/// A share by which throughput is to grow.
///
/// # Errors
/// What is wrong with it.
pub fn threshold(share: f64) -> Result<f64, String> {
    (0.0..10.0).contains(&share).then_some(share).ok_or_else(|| "must be a number from 0 to below 10".to_owned())
}

/// A size of at least one fp32 element.
///
/// # Errors
/// What is wrong with it.
pub fn parse_chunk(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse()?;
    if bytes.0 < 4 {
        return Err(format!("{text:?}: a chunk has at least one element: 4B or more"));
    }
    Ok(bytes)
}
