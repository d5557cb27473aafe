//! Reads an experiment from its TOML text: its keys, the lists of `[sweep]`, and arms, each the experiment with its own
//! keys replaced.

use lockstep_topology::InputError;

use crate::batch::Batch;
use crate::experiment::{Arm, Experiment};
use crate::setting::SettingEntry;
use crate::settings::settings;
use lockstep_topology::document::{Entry, SourceText, Table};

/// The settings that a file has outside of tables.
fn of_files() -> impl Iterator<Item = &'static SettingEntry> {
    settings().filter(|setting| setting.in_file && setting.table.is_none())
}

/// The keys of an experiment's file, without those in its tables.
pub fn keys() -> Vec<&'static str> {
    of_files().map(|setting| setting.key).collect()
}

/// Keys that only other files have, and what these files describe.
const OF_OTHER_FILES: [(&str, &str); 3] = [("host", "cluster"), ("fabric", "cluster"), ("layer", "model")];

/// The experiment that `text`, the content of `file`, describes.
pub(crate) fn parse(file: &str, text: &str) -> Result<Experiment, InputError> {
    let document = SourceText { file, text }.parse()?;
    for (key, what) in OF_OTHER_FILES {
        if let Some(entry) = document.get(key) {
            return Err(entry.error(format!("this file describes a {what}, not an experiment: give it as the {what}")));
        }
    }
    let root = document.table("an experiment", &keys())?;
    root.need("name", "\"lenet-scaling\"")?;
    if root.get("solver").is_none() && root.get("from").is_none() {
        root.need("model", "\"lenet\"")?;
    }
    let mut experiment = Experiment::default();
    take(&mut experiment, &root, &["sweep", "arm"])?;
    experiment.follow_foreign()?;
    // Arms are the rest of the experiment with their own keys replaced.
    if let Some(entry) = root.get("arm") {
        experiment.arms = arms(&experiment, &entry)?;
        experiment.share_settings();
    }
    // Its lists replace the values above them.
    if let Some(entry) = root.get("sweep") {
        sweep(&mut experiment, &entry)?;
    }
    Ok(experiment)
}

/// Applies the keys of `section`, except those in `but`, and records their places.
fn take(experiment: &mut Experiment, section: &Table<'_>, but: &[&str]) -> Result<(), InputError> {
    refuse_both(section, &["global_batch"])?;
    let (first, rest): (Vec<_>, Vec<_>) =
        section.entries().filter(|entry| !but.contains(&entry.key())).partition(|entry| setting(entry.key()).first);
    for entry in first.iter().chain(&rest) {
        set(experiment, entry)?;
        experiment.places.insert(entry.key().to_owned(), entry.place());
    }
    if let (Some(per_rank), Some(global)) = (section.get("batch_per_rank"), section.get("global_batch")) {
        experiment.batch = Batch::Global(Vec::new());
        set(experiment, &per_rank)?;
        let sizes = experiment.batch.per_rank().to_vec();
        set(experiment, &global)?;
        let all = experiment.batch.global().to_vec();
        experiment.set_batches(&sizes, all)?;
    }
    Ok(())
}

/// Refuses a key beside the one that it replaces, except those in `but`.
fn refuse_both(section: &Table<'_>, but: &[&str]) -> Result<(), InputError> {
    for setting in settings().filter(|setting| !but.contains(&setting.key)) {
        let Some(other) = setting.instead_of.filter(|other| section.get(other).is_some()) else { continue };
        if let Some(entry) = section.get(setting.key) {
            return Err(entry.error(format!("{other} is given too: keep one of the two")));
        }
    }
    Ok(())
}

/// Applies one entry.
///
/// # Errors
/// A value that its key cannot have.
pub fn set(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    let setting = setting(entry.key());
    setting.how.read(experiment, setting, entry).map_err(|error| match entry.items() {
        Ok(items) if items.len() > 1 && setting.takes_one() => InputError {
            message: format!(
                "{}; it has one value here: a list of it belongs into [sweep], for sim sweep",
                error.message
            ),
            ..error
        },
        _ => error,
    })?;
    experiment.tell(setting.key, entry.items()?.iter().filter_map(Entry::plain_text));
    Ok(())
}

/// The setting under a key that [`keys`] has.
fn setting(key: &str) -> &'static SettingEntry {
    let found = of_files().find(|setting| setting.key == key);
    found.unwrap_or_else(|| unreachable!("{key} has passed the list of keys"))
}

/// Reads `[[arm]]` tables, each applied over the rest of the file.
fn arms(experiment: &Experiment, entry: &Entry<'_>) -> Result<Vec<Arm>, InputError> {
    // The experiment's name, how accuracies are judged, and what only predictions ask for are the same in all arms.
    let keys: Vec<&'static str> = of_files().filter(|setting| setting.in_arms).map(|setting| setting.key).collect();
    let mut arms: Vec<Arm> = Vec::new();
    for item in entry.items()? {
        let section = item.section("an arm", &keys)?;
        let name = section.need("name", "\"no warm-up\"")?;
        if arms.iter().any(|arm| Ok(arm.name.as_str()) == name.text()) {
            return Err(name.error("is the name of two arms: rename one"));
        }
        let mut own = experiment.clone();
        take(&mut own, &section, &["name"])?;
        arms.push(Arm { name: name.text()?.to_owned(), experiment: own });
    }
    Ok(arms)
}

/// Reads `[sweep]` into the experiment's lists; errors about its keys then name its lines.
fn sweep(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    let axes: Vec<_> = settings().filter_map(|setting| Some((setting, setting.axis.as_ref()?))).collect();
    let section = entry.section("[sweep]", &axes.iter().map(|(setting, _)| setting.key).collect::<Vec<_>>())?;
    refuse_both(&section, &[])?;
    for entry in section.entries() {
        for (setting, axis) in axes.iter().filter(|(setting, _)| setting.key == entry.key()) {
            axis.how.read(experiment, setting, &entry)?;
            experiment.tell(setting.key, entry.items()?.iter().filter_map(Entry::plain_text));
        }
        experiment.places.insert(entry.key().to_owned(), entry.place());
    }
    Ok(())
}
