//! Parses orders of clusters: a name, the number of hosts, and the network, as in `dgx-a100:32@infiniband-hdr`.
//!
//! A cluster with one kind of host comes in any size, and on any network of `networks.toml`, to which every NIC is
//! attached, without editing a file.

use super::fabric_table::{FabricTable, fabric_keys, read_fabric};
use super::file::ClusterTable;
use super::wire::Wire;
use super::{LinkKind, MOST_DEVICES, Origin};
use crate::document::{Entry, SourceText, TextSpot, nearest_or_all};
use crate::input_error::squeezed;
use crate::{Bandwidth, InputError, Time};
use std::sync::Arc;

/// The networks' text.
const NETWORKS: &str = include_str!("../../networks.toml");

/// The changes ordered for a cluster file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// The whole order, for errors.
    asked: String,
    pub(super) count: Option<u64>,
    pub(super) network: Option<String>,
}

impl Order {
    /// `name:32@infiniband-hdr` → the name, and the rest.
    pub(super) fn parse(asked: &str) -> Result<(&str, Order), InputError> {
        let (rest, network) = match asked.rsplit_once('@') {
            Some((rest, network)) if !network.ends_with(".toml") => (rest, Some(network.to_string())),
            _ => (asked, None),
        };
        let (name, count) = match rest.rsplit_once(':') {
            Some((name, count)) if !count.ends_with(".toml") => (name, Some(count)),
            _ => (rest, None),
        };
        let count = count.map(|text| text.parse().ok().filter(|count| (1..=MOST_DEVICES).contains(count)).ok_or(text));
        let order = Order { asked: asked.to_string(), count: None, network };
        match count.transpose() {
            Ok(count) => Ok((name, Order { count, ..order })),
            Err(text) => Err(order.error(format!(
                "{text:?} must be a number of hosts from 1 to {MOST_DEVICES}, as in dgx-a100:32@infiniband-hdr"
            ))),
        }
    }

    fn error(&self, message: String) -> InputError {
        InputError::flag("cluster", self.asked.clone(), message)
    }

    /// Applies the order to a file's tables, and adds the network that either names.
    pub(super) fn apply<'a>(&'a self, tables: &mut ClusterTable<'a>) -> Result<(), InputError> {
        if let Some(count) = self.count {
            match tables.hosts.as_mut_slice() {
                [host] => host.stamp.recount(count),
                hosts => {
                    let message =
                        format!("{} has {} kinds of hosts; a number wants one kind", tables.name, hosts.len());
                    return Err(self.error(message));
                }
            }
        }
        let written = tables.network.as_ref().map(Entry::text).transpose()?;
        let Some(name) = self.network.as_deref().or(written) else { return Ok(()) };
        let spot = match (&self.network, &tables.network) {
            (None, Some(entry)) => entry.spot(),
            _ => tables.spot.clone().showing(&self.asked),
        };
        let wrong = |message| if self.network.is_some() { self.error(message) } else { spot.error(message) };
        let fabric = network(name, tables.plain, &spot)?.map_err(wrong)?;
        let hosts: u64 = tables.hosts.iter().map(|host| host.stamp.many()).sum();
        // A single host needs no network, unless one was ordered.
        if hosts > 1 || self.network.is_some() {
            tables.fabrics.push(fabric);
        }
        Ok(())
    }
}

/// The presets whose name or GPU contains `name`, as in `h100`, `8xH100` and `a100-80gb`.
pub(super) fn with_gpu(name: &str, presets: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    let squeezed_name = squeezed(name);
    let bare =
        squeezed_name.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix('x').unwrap_or(&squeezed_name);
    let wanted = bare.strip_suffix("gb").unwrap_or(bare);
    if wanted.len() < 3 || !wanted.contains(|c: char| c.is_ascii_digit()) {
        return Vec::new();
    }
    let gpus = |text: &'static str| text.lines().filter_map(|line| line.strip_prefix("model = "));
    let has = |(preset, text): &&(&'static str, &'static str)| {
        [*preset].into_iter().chain(gpus(text)).any(|of| squeezed(of).contains(wanted))
    };
    let mut found: Vec<&str> = presets.iter().filter(has).map(|(preset, _)| *preset).collect();
    // The maker's own machines first.
    found.sort_by_key(|preset| !preset.starts_with("dgx"));
    found
}

/// The name in an order, and its network with the @.
pub(crate) fn parts(asked: &str) -> Option<(&str, String)> {
    let (name, order) = Order::parse(asked).ok()?;
    Some((name, order.network.map(|network| format!("@{network}")).unwrap_or_default()))
}

/// A network that `@` may ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkFigures {
    /// Its name.
    pub name: String,
    /// The kind of its links.
    pub kind: LinkKind,
    /// The rate of a link from a host.
    pub bandwidth: Bandwidth,
    /// The latency of such a link.
    pub latency: Time,
    /// Where its figures come from.
    pub provenance: String,
}

/// The networks that `@` may ask for.
///
/// # Errors
/// None, unless the shipped file is broken; a test reads it.
pub fn networks() -> Result<Vec<NetworkFigures>, InputError> {
    let network = |table: FabricTable<'_>| {
        let Wire { kind, bandwidth, latency, provenance, .. } = table.wire;
        NetworkFigures { name: table.name, kind, bandwidth, latency, provenance: provenance.to_string() }
    };
    read_networks(false, |tables| Ok(tables.into_iter().map(network).collect()))
}

/// The network called `name`, or the error where there is none. A name of the catalogue may be followed by shapes:
/// `infiniband-ndr-rails`, `roce-400g-2to1`, `infiniband-ndr-rails-2to1`.
fn network<'a>(name: &str, plain: bool, spot: &TextSpot<'a>) -> Result<Result<FabricTable<'a>, String>, InputError> {
    read_networks(plain, |tables| {
        let names: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
        let follows =
            |known: &str| name.strip_prefix(known).is_some_and(|shapes| shapes.is_empty() || shapes.starts_with('-'));
        // The longest, since one name may begin with another.
        let found = tables.into_iter().filter(|table| follows(&table.name)).max_by_key(|table| table.name.len());
        Ok(match found {
            Some(table) => {
                let shapes = name[table.name.len()..].split('-').skip(1);
                let shaped = shapes.map(str::to_owned).try_fold(table, |table, shape| table.shaped(&shape));
                shaped.map(|table| FabricTable { name: name.to_owned(), ..table }.of_every_nic(spot.clone()))
            }
            None => {
                let names = || names.iter().map(String::as_str);
                let hint = nearest_or_all(name, names(), || names().collect());
                Err(format!("there is no network {name:?}; did you mean {hint}?"))
            }
        })
    })
}

/// The result of `take` for all networks, whose links are plain where the cluster's are.
fn read_networks<T>(
    plain: bool,
    take: impl Fn(Vec<FabricTable<'_>>) -> Result<T, InputError>,
) -> Result<T, InputError> {
    let document = SourceText { file: "networks.toml", text: NETWORKS }.parse()?;
    let root = document.table("the networks", &["network"])?;
    let assumed = Arc::new(Origin::Assumed.with(""));
    let tables = root.tables("network", "[[network]]", &fabric_keys())?;
    take(tables.iter().map(|table| read_fabric(table, false, &assumed, plain)).collect::<Result<_, _>>()?)
}
