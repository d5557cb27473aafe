//! The keys of a link that say what its messages pay: `protocol`, and one for each figure that differs from its default.

use super::protocol::UNLIMITED;
use super::reader::Reader;
use super::{Incast, LinkKind, Protocol, Provenance, Rendezvous, Stack};
use crate::{Bandwidth, Bytes, InputError, Time};
use std::str::FromStr;
use std::sync::Arc;

/// Keys of a link that are read here.
pub(super) const KEYS: [&str; 13] = [
    "protocol",
    "mtu",
    "efficiency",
    "send_overhead",
    "receive_overhead",
    "eager",
    "rendezvous",
    "window",
    "slow_start",
    "incast_senders",
    "incast_goodput",
    "pageable_bandwidth",
    "peer_bandwidth",
];

/// Whether a file says that its links are plain.
pub(super) fn plain(root: &Reader<'_>) -> Result<bool, InputError> {
    let only = |text: &str| match text {
        "plain" => Ok(true),
        _ => Err("must be \"plain\" here, for all links; give others to a [[link]] each".to_string()),
    };
    Ok(root.read("protocol", "\"plain\"", only)?.is_some())
}

/// The protocol of a link of `kind`: the defaults of its stack, and over them what the table says.
pub(super) fn read(table: &Reader<'_>, kind: LinkKind, source: &Arc<Provenance>) -> Result<Arc<Protocol>, InputError> {
    let named = table.read("protocol", "\"tcp\"", Stack::from_str)?;
    let unnamed = if table.source.plain { Stack::Plain } else { Stack::of(kind) };
    let stack = named.map_or(unnamed, |at| at.value);
    let mut protocol = stack.defaults();
    let defaults = protocol.clone();
    let efficiency = table.share("efficiency", "0.94")?;
    if let Some(at) = table.count("mtu", 1 << 20)? {
        if efficiency.is_some() {
            return Err(table.error_at(&at, "stands beside efficiency; leave out one of the two"));
        }
        let none = || table.error_at(&at, format!("leaves no payload beside the headers of {stack}"));
        protocol.efficiency = stack.efficiency(at.value).ok_or_else(none)?;
    }
    set(&mut protocol.efficiency, efficiency.map(|at| at.value));
    let time = |key| Ok(table.read(key, "\"1us\"", Time::from_str)?.map(|at| at.value));
    set(&mut protocol.send_overhead, time("send_overhead")?);
    set(&mut protocol.receive_overhead, time("receive_overhead")?);
    set(&mut protocol.eager, table.read("eager", "\"64KiB\"", eager)?.map(|at| at.value));
    let rendezvous = table.read("rendezvous", "\"read\"", Rendezvous::from_str)?;
    set(&mut protocol.rendezvous, rendezvous.map(|at| at.value));
    if let Some(at) = table.read("window", "\"4MiB\"", window)? {
        protocol.window = at.value;
    }
    protocol.slow_start = table.read("slow_start", "\"14600B\"", size)?.map(|at| at.value);
    protocol.incast = incast(table)?;
    let rate = |key| Ok(table.read(key, "\"6GB/s\"", Bandwidth::from_str)?.map(|at| at.value));
    protocol.pageable = rate("pageable_bandwidth")?;
    protocol.peer = rate("peer_bandwidth")?;
    if protocol != defaults {
        protocol.provenance = source.clone();
    }
    Ok(Arc::new(protocol))
}

fn set<T>(figure: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *figure = given;
    }
}

fn incast(table: &Reader<'_>) -> Result<Option<Incast>, InputError> {
    let senders = table.count("incast_senders", u64::from(u32::MAX))?;
    match (senders, table.share("incast_goodput", "0.5")?) {
        (None, None) => Ok(None),
        (Some(senders), Some(goodput)) => Ok(Some(Incast { senders: senders.value as u32, goodput: goodput.value })),
        (Some(at), None) => Err(table.error_at(&at, "needs incast_goodput beside it, e.g. incast_goodput = 0.5")),
        (None, Some(at)) => Err(table.error_at(&at, "needs incast_senders beside it, e.g. incast_senders = 16")),
    }
}

fn eager(text: &str) -> Result<Bytes, String> {
    if text == "unlimited" { Ok(UNLIMITED) } else { text.parse() }
}

fn window(text: &str) -> Result<Option<Bytes>, String> {
    if text == "unlimited" { Ok(None) } else { size(text).map(Some) }
}

fn size(text: &str) -> Result<Bytes, String> {
    match text.parse()? {
        Bytes(0) => Err("must be positive".into()),
        bytes => Ok(bytes),
    }
}
