//! Evaluates sizes: a whole number, a parameter `$channels` of the block or of the model, or a product such as
//! `4*$channels`.
//!
//! Products are all that the networks of the papers need; a larger language would hide shapes from the reader.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_topology::InputError;
use lockstep_topology::document::Entry;

/// Values of a block's parameters where it is used, or of a model's sizes.
pub(super) type Arguments = BTreeMap<String, u32>;

/// Evaluates an entry as a size.
pub(super) fn size(entry: &Entry<'_>, arguments: &Arguments) -> Result<u32, InputError> {
    let Some(text) = entry.plain_text() else { return number(entry) };
    let mut product = 1u64;
    for factor in text.split('*').map(str::trim) {
        let value = match factor.strip_prefix('$') {
            Some(name) => arguments.get(name).copied().ok_or_else(|| {
                let known: Vec<String> = arguments.keys().map(|name| format!("${name}")).collect();
                let known = if known.is_empty() { "none here".to_owned() } else { known.join(", ") };
                entry.error(format!("there is no size ${name} here: known are {known}"))
            })?,
            None => factor.parse::<u32>().map_err(|_| {
                entry.error(format!(
                    "{} must be a whole number, a size such as \"$channels\" or a product such as \"4*$channels\"",
                    entry.key()
                ))
            })?,
        };
        product = product.saturating_mul(u64::from(value));
    }
    u32::try_from(product).map_err(|_| entry.error(format!("{} is more than {}", entry.key(), u32::MAX)))
}

/// Two sizes, vertical and horizontal, or one for both.
pub(super) fn pair(entry: &Entry<'_>, arguments: &Arguments) -> Result<(u32, u32), InputError> {
    match entry.list() {
        None => size(entry, arguments).map(|both| (both, both)),
        Some(items) if items.len() == 2 => Ok((size(&items[0], arguments)?, size(&items[1], arguments)?)),
        Some(_) => Err(entry.error(format!("{} must be one size or [vertical, horizontal]", entry.key()))),
    }
}

/// A whole number that fits 32 bits.
pub(super) fn number(entry: &Entry<'_>) -> Result<u32, InputError> {
    Ok(entry.whole(0..=u64::from(u32::MAX))? as u32)
}

/// Names of the parameters anywhere in an entry.
pub(super) fn parameters(entry: &Entry<'_>, found: &mut BTreeSet<String>) {
    if let Some(text) = entry.plain_text() {
        let names = text.split('*').filter_map(|factor| factor.trim().strip_prefix('$'));
        found.extend(names.map(str::to_owned));
    }
    entry.list().into_iter().flatten().for_each(|item| parameters(&item, found));
    // Not by the error for a value that is no table: that one counts the lines before the entry.
    if let Some(table) = entry.as_table() {
        table.entries().for_each(|item| parameters(&item, found));
    }
}
