//! `Wire`: describes a wire between two vertices before its links are created, and reads it from a table of a file.
//!
//! Its rate is a bandwidth, or generation and lanes of PCI Express or NVLink; these also determine the wire's kind and
//! the source of its rate.

use std::str::FromStr;
use std::sync::Arc;

use super::gpu::Lanes;
use super::values::provenance;
use super::{Duplex, LinkKind, Origin, Protocol, Provenance, protocol_keys};
use crate::document::Table;
use crate::{Bandwidth, InputError, Time};

/// The wire between two vertices.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) kind: LinkKind,
    pub(super) latency: Time,
    pub(super) bandwidth: Bandwidth,
    pub(super) duplex: Duplex,
    pub(super) protocol: Arc<Protocol>,
    pub(super) provenance: Arc<Provenance>,
}

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

/// The rate of a table.
struct Rate {
    bandwidth: Bandwidth,
    /// The kind that the key implies.
    kind: Option<LinkKind>,
    /// The source of the figures, unless the table states one.
    provenance: Arc<Provenance>,
}

/// The rate given by exactly one of `bandwidth`, `pcie` and `nvlink`.
fn rate(table: &Table<'_>, inherited: &Arc<Provenance>) -> Result<Rate, InputError> {
    let plain = table.read("bandwidth", "\"10Gbit/s\"", Bandwidth::from_str)?;
    let pcie = table.read("pcie", "\"3.0 x16\"", |text| lanes(text, "PCI Express", 6, Lanes::pcie))?;
    let nvlink = table.read("nvlink", "\"2.0 x1\"", |text| lanes(text, "NVLink", 5, Lanes::nvlink))?;
    let by_lanes = |(bandwidth, lanes): (Bandwidth, Lanes), kind, maker, what| {
        let Lanes { generation, count } = lanes;
        let sheet = format!("{maker} {generation}.0, {count} {what} (bandwidth); latency {inherited}");
        Ok(Rate { bandwidth, kind: Some(kind), provenance: Arc::new(Origin::Datasheet.with(sheet)) })
    };
    match (plain, pcie, nvlink) {
        (Some(bandwidth), None, None) => Ok(Rate { bandwidth, kind: None, provenance: inherited.clone() }),
        (None, Some(rate), None) => by_lanes(rate, LinkKind::Pcie, "PCI Express", "lanes"),
        (None, None, Some(rate)) => by_lanes(rate, LinkKind::NvLink, "NVIDIA NVLink", "links"),
        (None, None, None) => Err(table.missing("bandwidth", "\"10Gbit/s\"")),
        _ => Err(table.error("has more than one of bandwidth, pcie and nvlink; keep one")),
    }
}

fn lanes(
    text: &str,
    what: &str,
    last: u32,
    rate: impl Fn(Lanes) -> Option<Bandwidth>,
) -> Result<(Bandwidth, Lanes), String> {
    let lanes: Lanes = text.parse()?;
    let bandwidth = rate(lanes).ok_or_else(|| format!("is not a generation of {what}; there are 1.0 to {last}.0"))?;
    Ok((bandwidth, lanes))
}
