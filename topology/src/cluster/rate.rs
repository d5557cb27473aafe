//! Reads the rate of a link in a cluster file: a bandwidth, or generation and lanes of PCI Express or NVLink.
//!
//! The last two also determine the link's kind and the source of its rate.

use super::gpu::Lanes;
use super::{LinkKind, Origin, Provenance};
use crate::document::Table;
use crate::{Bandwidth, InputError};
use std::str::FromStr;
use std::sync::Arc;

/// The rate of a table.
pub(super) struct Rate {
    pub(super) bandwidth: Bandwidth,
    /// The kind that the key implies.
    pub(super) kind: Option<LinkKind>,
    /// The source of the figures, unless the table states one.
    pub(super) provenance: Arc<Provenance>,
}

/// The rate given by exactly one of `bandwidth`, `pcie` and `nvlink`.
pub(super) fn rate(table: &Table<'_>, inherited: &Arc<Provenance>) -> Result<Rate, InputError> {
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
