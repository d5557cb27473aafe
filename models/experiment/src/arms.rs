//! Arms: ways to train that one experiment compares, each what the experiment says but for the keys under its name.

use lockstep_topology::InputError;

use super::read::{keys, take};
use super::{Experiment, SETTINGS};
use lockstep_topology::document::Entry;

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
    // What the experiment is called, how it is judged, and what only predictions ask for is the same of all arms.
    let shared = |key: &&str| SETTINGS.iter().any(|setting| setting.key == *key && !setting.in_arms);
    let keys: Vec<&'static str> = keys().into_iter().filter(|key| !shared(key)).collect();
    let mut arms: Vec<Arm> = Vec::new();
    for item in entry.items()? {
        let section = item.section("an arm", &keys)?;
        let name = section.need("name", "\"no warm-up\"")?;
        if arms.iter().any(|arm| Ok(arm.name.as_str()) == name.text()) {
            return Err(name.error("stands twice among the arms: call one otherwise"));
        }
        let mut own = experiment.clone();
        take(&mut own, &section, &["name"])?;
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
