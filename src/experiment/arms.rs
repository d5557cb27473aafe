//! Arms: ways to train that one experiment compares, each what the experiment says but for the keys under its name.

use lockstep_topology::InputError;

use super::read::{KEYS, set};
use super::reader::Entry;
use super::{Experiment, Recipe};

/// Keys that all arms share: what the experiment is called, how it is judged, and what only predictions ask for.
const SHARED: [&str; 11] = [
    "arm",
    "seed",
    "seeds",
    "target_accuracy",
    "target_epochs",
    "transport",
    "cluster",
    "sweep",
    "scenario",
    "noise",
    "anchor",
];

/// One way to train.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// What it is called.
    pub name: String,
    /// The experiment with its keys.
    pub experiment: Experiment,
}

/// Reads `[[arm]]` tables, each over the rest of the file.
pub(super) fn read(experiment: &Experiment, entry: &Entry<'_>) -> Result<Vec<Arm>, InputError> {
    let keys: Vec<&'static str> = KEYS.into_iter().filter(|key| !SHARED.contains(key)).collect();
    let mut arms: Vec<Arm> = Vec::new();
    for item in entry.items()? {
        let section = item.section("an arm", &keys)?;
        let name = section.need("name", "\"no warm-up\"")?;
        if arms.iter().any(|arm| Ok(arm.name.as_str()) == name.text()) {
            return Err(name.error("stands twice among the arms: call one otherwise"));
        }
        if let (Some(_), Some(global)) = (section.get("batch_per_rank"), section.get("global_batch")) {
            return Err(global.error("batch_per_rank is there too: give one of the two"));
        }
        let mut own = experiment.clone();
        if let Some(entry) = section.get("recipe") {
            own.follow(entry.read(|name| Recipe::load(name).map_err(|error| error.message))?);
        }
        for entry in section.entries().filter(|entry| entry.key() != "name") {
            set(&mut own, &entry)?;
            own.places.insert(entry.key().to_owned(), entry.place());
        }
        arms.push(Arm { name: name.text()?.to_owned(), experiment: own });
    }
    Ok(arms)
}

impl Experiment {
    /// Its arms; one without a name where it has none.
    pub fn arms(&self) -> Vec<Arm> {
        match self.arms.is_empty() {
            true => vec![Arm { name: "-".to_owned(), experiment: self.clone() }],
            false => self.arms.clone(),
        }
    }
}
