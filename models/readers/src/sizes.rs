//! Resolves the sizes of a whole model: the values of `[size]`, the changes of a variant, and those that the caller
//! sets after the model's name.
//!
//! The nets of a paper often differ in a few numbers; one file with variants shows which.

use std::collections::BTreeSet;

use lockstep_topology::InputError;
use lockstep_topology::document::{Entry, Table, suggestion};

use super::expression::{Arguments, number, parameters};

/// The key of a variant that is no size.
const SOURCE: &str = "source";

/// The sizes of a model, and its variant's source if that has one.
pub(super) struct Sizes<'a> {
    pub(super) values: Arguments,
    pub(super) source: Option<&'a str>,
}

/// The sizes of the model in `root` with `settings`: the names of variants and `size=number`, in this order of effect,
/// separated by commas. `named` is the caller's name of the model.
pub(super) fn resolve<'a>(root: &Table<'a>, named: &str, settings: &[&str]) -> Result<Sizes<'a>, InputError> {
    let mut values = Arguments::new();
    for entry in entries(root, "size")? {
        values.insert(entry.key().to_owned(), number(&entry)?);
    }
    check_used(root)?;
    let variants: Vec<(&'a str, Table<'a>)> = entries(root, "variant")?
        .into_iter()
        .map(|entry| Ok((entry.key(), entry.table()?)))
        .collect::<Result<_, _>>()?;
    for (name, table) in &variants {
        let sizes = || values.keys().map(String::as_str);
        table.allow(&format!("variant \"{name}\""), &sizes().chain([SOURCE]).collect::<Vec<_>>())?;
        // Variants that are not selected are validated too.
        table.entries().filter(|entry| entry.key() != SOURCE).try_for_each(|entry| number(&entry).map(|_| ()))?;
    }
    let mut source = None;
    for setting in settings {
        let refuse = |message: String| Err(InputError::new("", format!("model \"{named}\""), message));
        match setting.split_once('=') {
            Some((size, number)) => {
                let Some(value) = values.get_mut(size.trim()) else {
                    let cure = suggestion(size, values.keys().map(String::as_str));
                    return refuse(format!("the model has no size \"{size}\": {cure}"));
                };
                let Ok(number) = number.trim().parse() else {
                    return refuse(format!("{size} must be a whole number from 0 to {}, not \"{number}\"", u32::MAX));
                };
                *value = number;
            }
            None => {
                let Some((_, table)) = variants.iter().find(|(name, _)| name == setting) else {
                    let cure = suggestion(setting, variants.iter().map(|(name, _)| *name));
                    return refuse(format!("the model has no variant \"{setting}\": {cure}"));
                };
                for entry in table.entries() {
                    match entry.key() {
                        SOURCE => source = Some(entry.text()?),
                        key => {
                            values.insert(key.to_owned(), number(&entry)?);
                        }
                    }
                }
            }
        }
    }
    Ok(Sizes { values, source })
}

/// The names of a model's variants.
pub(super) fn variants<'a>(root: &Table<'a>) -> Result<Vec<&'a str>, InputError> {
    Ok(entries(root, "variant")?.into_iter().map(|entry| entry.key()).collect())
}

/// The entries of the table under `key`, if there is one.
fn entries<'a>(root: &Table<'a>, key: &str) -> Result<Vec<Entry<'a>>, InputError> {
    root.get(key).map_or(Ok(Vec::new()), |entry| Ok(entry.table()?.entries().collect()))
}

/// A size that no layer uses is a mistake.
fn check_used(root: &Table<'_>) -> Result<(), InputError> {
    let mut used = BTreeSet::new();
    ["input", "layer"].iter().filter_map(|key| root.get(key)).for_each(|entry| parameters(&entry, &mut used));
    match entries(root, "size")?.into_iter().find(|entry| !used.contains(entry.key())) {
        None => Ok(()),
        Some(entry) => {
            let message = format!("nothing uses this size: write \"${}\" where it belongs, or remove it", entry.key());
            Err(entry.error(message))
        }
    }
}
