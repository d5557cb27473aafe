//! Reads values that several tables of a cluster file have: names, sizes of memories, sources.

use super::Provenance;
use crate::document::Table;
use crate::{Bytes, InputError};
use std::str::FromStr;
use std::sync::Arc;

/// The source of a table's figures: its own, else the inherited one.
pub(super) fn provenance(table: &Table<'_>, inherited: &Arc<Provenance>) -> Result<Arc<Provenance>, InputError> {
    let own = table.read("provenance", "\"datasheet: NAME\"", Provenance::from_str)?;
    Ok(own.map_or_else(|| inherited.clone(), Arc::new))
}

/// A name without dots that no part of a host has already.
pub(super) fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match text {
        "cpu" | "memory" => Err("is what a host calls its own; use another name".into()),
        _ if !text.is_empty() && text.len() <= 100 && text.chars().all(plain) => Ok(text.to_string()),
        _ => Err("must be a name of letters, digits, - and _".into()),
    }
}

/// A smaller memory is a number without its unit.
const LEAST_MEMORY: u64 = 1 << 20;

/// The size of a memory.
pub(super) fn memory(text: &str) -> Result<Bytes, String> {
    match text.parse()? {
        Bytes(bytes) if bytes < LEAST_MEMORY => Err("must be at least 1MiB; write a unit, as in 80GiB".into()),
        bytes => Ok(bytes),
    }
}
