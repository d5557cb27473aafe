//! Builds the identities of checkpoints and of the runs of a trained sweep, from the table of settings.

use std::collections::BTreeMap;

use lockstep_topology::ErrorPlace;

use crate::identity::Identity;
use crate::settings::settings;
use crate::trained::{Trained, TrainedRun, Value};

impl TrainedRun<'_> {
    /// The values of the settings that distinguish trainings in this way, by key.
    fn values(&self, how: Trained) -> impl Iterator<Item = (&'static str, String)> {
        let value = move |(of, value): (Trained, Value)| if of == how { value(self) } else { None };
        settings().filter_map(move |setting| Some((setting.key, setting.trained.and_then(value)?)))
    }

    /// Values by flag that decide what is trained: other values make another training.
    pub fn identity(&self) -> BTreeMap<String, String> {
        self.values(Trained::As).map(by_flag).collect()
    }

    /// Values by flag that may change: the number of workers and their transport.
    pub fn setting(&self) -> BTreeMap<String, String> {
        self.values(Trained::With).map(by_flag).collect()
    }

    /// What decides a run of the arm `arm` of a trained sweep.
    pub fn of_arm(&self, arm: &str) -> Identity {
        let mut all = Identity::default();
        self.values(Trained::Apart).for_each(|(key, value)| all.set(key, value));
        self.identity().into_iter().chain(self.setting()).for_each(|(flag, value)| all.set(&flag, value));
        all.set("arm", arm);
        if let Some(sizes) = &self.configuration.job.node_sizes {
            all.set_list("node_sizes", sizes);
        }
        all.set_model("layers", &self.configuration.job.model);
        all
    }
}

/// Checkpoints and files of runs hold values under the flags of their settings.
fn by_flag((key, value): (&'static str, String)) -> (String, String) {
    (ErrorPlace::Flag(key).to_string(), value)
}
