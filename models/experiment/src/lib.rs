//! `Experiment`: one question as one value, read from a TOML file or made of flags, and the configurations it asks about.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod alike;
mod arms;
mod axes;
mod configuration;
mod device;
pub mod driver_log;
pub mod form;
mod growth;
pub mod identity;
mod input;
mod learners;
mod noise;
mod optimizer;
mod page;
mod published;
pub mod read;
mod recipe;
mod scenario;
pub mod setting;
mod settings;
pub mod sweep;
#[cfg(test)]
mod tests;
mod transport;
pub mod tuner_log;

use std::path::Path;

use lockstep_topology::{DESCRIPTION, ErrorPlace, InputError, read_text};

pub use arms::Arm;
pub use axes::Axes;
pub use configuration::Configuration;
pub use device::Device;
pub use growth::Growth;
pub use input::Stated as StatedInput;
pub use learners::Learners;
pub use learners::default_method;
use noise::Noise;
pub use noise::trials;
pub use page::settings_page;
use published::Point;
pub use published::{Anchor, Published};
pub use recipe::Recipe;
pub use scenario::{NONE, Scenario, ScenarioEntry, TrafficLoad, Trouble};
use setting::Setting;
pub use settings::Experiment;
pub use settings::SETTINGS;
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

    /// Whether the file or a flag says something under `key`, in place of the default.
    pub fn states(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Says that a flag has replaced the file's value under `key`, so that errors name the flag.
    pub fn overridden(&mut self, key: &'static str) {
        self.places.insert(key.to_owned(), ErrorPlace::Flag(key));
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
