//! `Experiment`: reads one question from a TOML file or from flags, and expands it into configurations.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[macro_use]
mod rows;

pub mod alike;
mod axis_sizes;
mod batch;
mod configuration;
mod device;
pub mod driver_log;
mod experiment;
mod foreign;
mod foreign_setting;
pub mod form;
mod growth;
pub mod identity;
mod initial;
mod input;
mod learners;
mod noise;
mod numbers;
mod optimizer;
mod page;
mod prepared;
mod published;
mod range;
pub mod read;
mod recipe;
mod recipe_file;
mod refusals;
mod scale;
mod scaling;
mod scenario;
pub mod setting;
mod settings;
pub mod shard;
mod solver;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod trained;
mod trained_identity;
mod transport;
pub mod tuner_log;
mod unlike;
mod unread;
mod weights;

use std::path::Path;

use lockstep_topology::{DESCRIPTION, InputError, read_text};

pub use axis_sizes::{AXIS_SIZES, AxisSizes, INTERLEAVE};
pub use batch::Batch;
pub use configuration::Configuration;
pub use device::DeviceChoice;
pub use experiment::{Arm, Axes, Choice, Experiment, Length, THIS_MACHINE};
pub use foreign::Foreign;
pub use growth::Growth;
pub use input::Stated as StatedInput;
pub use learners::{Learners, default_method, default_note};
pub use noise::trials;
pub use page::settings_page;
pub use published::{Anchor, Published};
pub use recipe::Recipe;
pub use refusals::refusals_page;
pub use scenario::{NONE, Scenario, ScenarioEntry, TrafficLoad, Trouble};
pub use settings::settings;
pub use transport::TransportKind;

impl Experiment {
    /// The experiment in the file at `path`.
    ///
    /// # Errors
    /// An unreadable file, and whatever [`Experiment::parse`] refuses.
    pub fn load(path: &Path) -> Result<Experiment, InputError> {
        let shown = path.display().to_string();
        match read_text(path, DESCRIPTION) {
            Ok(text) => Experiment::parse(&shown, &text).map(Experiment::with_data),
            Err(error) => {
                let message = error.with_cure(
                    "name an experiment such as experiments/quickstart.toml, and write the values of one flag with commas",
                );
                Err(InputError::new("EXPERIMENT", shown, message))
            }
        }
    }

    /// The experiment that `text`, the content of `file`, describes; `docs/experiments.md` explains every key.
    ///
    /// # Errors
    /// Invalid TOML, an unknown or missing key, a value out of range: with file, line, value and cure.
    pub fn parse(file: &str, text: &str) -> Result<Experiment, InputError> {
        read::parse(file, text)
    }
}
