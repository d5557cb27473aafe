//! An experiment from its TOML text.

use lockstep_topology::InputError;

use super::{Experiment, SETTINGS, Setting, arms, axes};
use lockstep_topology::document::{Entry, Source, Table};

/// The keys of an experiment's file, without those in its tables.
pub fn keys() -> Vec<&'static str> {
    SETTINGS.iter().filter(|setting| setting.in_file && setting.table.is_none()).map(|setting| setting.key).collect()
}

/// The experiment that `text`, the content of `file`, describes.
pub(super) fn parse(file: &str, text: &str) -> Result<Experiment, InputError> {
    let document = Source { file, text }.parse()?;
    let root = document.table("an experiment", &keys())?;
    root.need("name", "\"lenet-scaling\"")?;
    root.need("model", "\"lenet\"")?;
    let mut experiment = Experiment::default();
    take(&mut experiment, &root, &["sweep", "arm"])?;
    // Arms are what all the rest says, but for their own keys.
    if let Some(entry) = root.get("arm") {
        experiment.arms = arms::read(&experiment, &entry)?;
    }
    // Its lists take the place of what stands above them.
    if let Some(entry) = root.get("sweep") {
        axes::read(&mut experiment, &entry)?;
    }
    Ok(experiment)
}

/// Takes over what `section` says, but for the keys in `but`, and where it says it.
///
/// # Errors
/// A value that its key cannot have, or two keys of which one takes the other's place.
pub(super) fn take(experiment: &mut Experiment, section: &Table<'_>, but: &[&str]) -> Result<(), InputError> {
    refuse_both(section)?;
    let (first, rest): (Vec<_>, Vec<_>) =
        section.entries().filter(|entry| !but.contains(&entry.key())).partition(|entry| setting(entry.key()).first);
    for entry in first.iter().chain(&rest) {
        set(experiment, entry)?;
        experiment.places.insert(entry.key().to_owned(), entry.place());
    }
    Ok(())
}

/// Refuses a key beside the one that it takes the place of.
pub(super) fn refuse_both(section: &Table<'_>) -> Result<(), InputError> {
    for setting in SETTINGS {
        let Some(other) = setting.instead_of.filter(|other| section.get(other).is_some()) else { continue };
        if let Some(entry) = section.get(setting.key) {
            return Err(entry.error(format!("{other} is there too: give one of the two")));
        }
    }
    Ok(())
}

/// Takes one entry over.
///
/// # Errors
/// A value that its key cannot have.
pub fn set(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    setting(entry.key()).how.read(experiment, entry)
}

/// The setting under a key that [`keys`] has.
fn setting(key: &str) -> &'static Setting {
    let found = SETTINGS.iter().find(|setting| setting.key == key && setting.table.is_none());
    found.unwrap_or_else(|| unreachable!("{key} has passed the list of keys"))
}

/// Most characters of an experiment's name.
const LONGEST_NAME: usize = 100;

/// What an experiment is called: files are named after it, so it is one component of a path.
pub(super) fn name(entry: &Entry<'_>) -> Result<String, InputError> {
    let Some(name) = entry.plain_text() else { return Err(entry.error("name must be a text in quotes")) };
    let length = name.chars().count();
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let wrong = match name {
        "" => "is empty".to_owned(),
        "." | ".." => "is no name that a file can have".to_owned(),
        _ if length > LONGEST_NAME => format!("has {length} characters"),
        _ => match name.chars().find(|c| !allowed(*c)) {
            None => return Ok(name.to_owned()),
            Some(other) => format!("has the character {other:?} in it"),
        },
    };
    Err(entry.error(format!(
        "{wrong}: files are named after it, so take 1 to {LONGEST_NAME} letters (a to z), digits, -, _ and ."
    )))
}

/// The items of a list, or a single value; none twice.
pub(super) fn each<T: PartialEq>(
    entry: &Entry<'_>,
    read: impl Fn(&Entry<'_>) -> Result<T, InputError>,
) -> Result<Vec<T>, InputError> {
    let mut values = Vec::new();
    for item in entry.items()? {
        let value = read(&item)?;
        if values.contains(&value) {
            return Err(item.error(format!("stands twice in {}: leave one out", entry.key())));
        }
        values.push(value);
    }
    Ok(values)
}
