//! Reads a link's keys for the cost of messages: `protocol`, and one for each figure that differs from its default.

use super::protocol::UNLIMITED;
use super::{Burst, Incast, LinkKind, Protocol, Provenance, Rendezvous, Stack};
use crate::document::{Entry, Table};
use crate::{Bandwidth, Bytes, InputError, Time};
use std::str::FromStr;
use std::sync::Arc;

/// Keys of a link that are read here.
pub(super) const KEYS: [&str; 18] = [
    "protocol",
    "mtu",
    "efficiency",
    "send_overhead",
    "receive_overhead",
    "eager",
    "rendezvous",
    "transmit_queue",
    "window",
    "slow_start",
    "core_bandwidth",
    "burst",
    "burst_bandwidth",
    "burst_at_once",
    "incast_senders",
    "incast_goodput",
    "pageable_bandwidth",
    "peer_bandwidth",
];

/// Whether a file makes its links plain.
pub(super) fn plain(root: &Table<'_>) -> Result<bool, InputError> {
    let only = |text: &str| match text {
        "plain" => Ok(true),
        _ => Err("must be \"plain\" here, for all links; give others to a [[link]] each".to_string()),
    };
    Ok(root.read("protocol", "\"plain\"", only)?.is_some())
}

/// The protocol of a link of `kind` and `bandwidth`: the defaults of its stack, overridden by the table.
pub(super) fn read(
    table: &Table<'_>,
    kind: LinkKind,
    source: &Arc<Provenance>,
    plain: bool,
    bandwidth: Bandwidth,
) -> Result<Arc<Protocol>, InputError> {
    let named = table.read("protocol", "\"tcp\"", Stack::from_str)?;
    let unnamed = if plain { Stack::Plain } else { Stack::of(kind) };
    let stack = named.unwrap_or(unnamed);
    let mut protocol = stack.defaults();
    let defaults = protocol.clone();
    let efficiency = table.optional("efficiency", share)?;
    if let Some(mtu) = table.whole("mtu", 1..=1 << 20)? {
        if efficiency.is_some() {
            return Err(table.error_at("mtu", "and efficiency are both given; leave out one of the two"));
        }
        let none = || table.error_at("mtu", format!("leaves no payload beside the headers of {stack}"));
        protocol.efficiency = stack.efficiency(mtu).ok_or_else(none)?;
    }
    set(&mut protocol.efficiency, efficiency);
    let time = |key| table.read(key, "\"1us\"", Time::from_str);
    set(&mut protocol.send_overhead, time("send_overhead")?);
    set(&mut protocol.receive_overhead, time("receive_overhead")?);
    set(&mut protocol.eager, table.read("eager", "\"64KiB\"", eager)?);
    set(&mut protocol.rendezvous, table.read("rendezvous", "\"read\"", Rendezvous::from_str)?);
    set(&mut protocol.transmit_queue, time("transmit_queue")?);
    set(&mut protocol.window, table.read("window", "\"4MiB\"", window)?);
    protocol.slow_start = table.read("slow_start", "\"14600B\"", size)?;
    protocol.burst = burst(table, bandwidth)?;
    protocol.incast = incast(table)?;
    let rate = |key| table.read(key, "\"6GB/s\"", Bandwidth::from_str);
    protocol.core_bandwidth = rate("core_bandwidth")?;
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

fn burst(table: &Table<'_>, bandwidth: Bandwidth) -> Result<Option<Burst>, InputError> {
    let bytes = table.read("burst", "\"250kB\"", size)?;
    let peak = table.read("burst_bandwidth", "\"10Gbit/s\"", Bandwidth::from_str)?;
    let at_once = table.read("burst_at_once", "\"16KiB\"", size)?;
    let (bytes, peak) = match (bytes, peak) {
        (Some(bytes), Some(peak)) => (bytes, peak.bytes_per_s() / bandwidth.bytes_per_s()),
        (None, None) if at_once.is_none() => return Ok(None),
        (Some(_), None) => {
            let message = "needs burst_bandwidth beside it, e.g. burst_bandwidth = \"10Gbit/s\"";
            return Err(table.error_at("burst", message));
        }
        (None, _) => {
            let key = if peak.is_some() { "burst_bandwidth" } else { "burst_at_once" };
            return Err(table.error_at(key, "needs burst beside it, e.g. burst = \"250kB\""));
        }
    };
    if peak <= 1.0 {
        return Err(table.error_at("burst_bandwidth", "must be above the link's bandwidth"));
    }
    let at_once = at_once.unwrap_or(Bytes(0));
    if at_once > bytes {
        return Err(table.error_at("burst_at_once", "must be at most burst"));
    }
    Ok(Some(Burst { bytes, peak, at_once }))
}

fn incast(table: &Table<'_>) -> Result<Option<Incast>, InputError> {
    match (table.optional("incast_senders", Entry::count)?, table.optional("incast_goodput", share)?) {
        (None, None) => Ok(None),
        (Some(senders), Some(goodput)) => Ok(Some(Incast { senders, goodput })),
        (Some(_), None) => {
            Err(table.error_at("incast_senders", "needs incast_goodput beside it, e.g. incast_goodput = 0.5"))
        }
        (None, Some(_)) => {
            Err(table.error_at("incast_goodput", "needs incast_senders beside it, e.g. incast_senders = 16"))
        }
    }
}

/// A number above 0 and at most 1.
fn share(entry: &Entry<'_>) -> Result<f64, InputError> {
    let right = |number: f64| number > 0.0 && number <= 1.0;
    entry.checked(|number| right(number).then_some(number).ok_or_else(|| "must be above 0 and at most 1".to_owned()))
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
