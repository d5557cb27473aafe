//! Reads the keys of a table that describe a wire: kind, rate, latency, duplex and protocol.

use super::rate::rate;
use super::values::provenance;
use super::wire::Wire;
use super::{Duplex, LinkKind, Provenance, protocol_keys};
use crate::document::Table;
use crate::{InputError, Time};
use std::str::FromStr;
use std::sync::Arc;

const LINK: &[&str] = &["kind", "between", "latency", "bandwidth", "pcie", "nvlink", "duplex", "provenance"];
/// A link's keys with those of its protocol.
pub(super) fn link_keys() -> Vec<&'static str> {
    LINK.iter().copied().chain(protocol_keys::KEYS).collect()
}

/// The wire that a table describes, whose kind is under `key`.
pub(super) fn wire(table: &Table<'_>, key: &str, inherited: &Arc<Provenance>, plain: bool) -> Result<Wire, InputError> {
    let rate = rate(table, inherited)?;
    let kind = match (table.read(key, "\"ethernet\"", LinkKind::from_str)?, rate.kind) {
        (Some(kind), Some(implied)) if kind != implied => {
            return Err(table.error_at(key, format!("is {implied} by the key that gives its rate; use one of the two")));
        }
        (Some(kind), _) => kind,
        (None, Some(implied)) => implied,
        (None, None) => return Err(table.missing(key, "\"ethernet\"")),
    };
    let provenance = provenance(table, &rate.provenance)?;
    Ok(Wire {
        kind,
        latency: table.required("latency", "\"2us\"", Time::from_str)?,
        bandwidth: rate.bandwidth,
        duplex: table.read("duplex", "\"full\"", Duplex::from_str)?.unwrap_or(Duplex::Full),
        protocol: protocol_keys::read(table, kind, &provenance, plain, rate.bandwidth)?,
        provenance,
    })
}
