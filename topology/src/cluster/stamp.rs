//! Makes a cluster of a file's text in four steps: read the tables, check them, build, and describe what was built.
//!
//! Building creates hosts and switches, then the wires of fabrics, then those that links name.
//! A host's inner links are resolved once by local names and repeated for each of its `count` copies.

use super::build::Builder;
use super::describe::{Wires, describe};
use super::fabric_stamp::stamp_fabrics;
use super::fabric_table::FabricTable;
use super::file::{ClusterTable, HostTable, LinkTable, read};
use super::names::Names;
use super::order::Order;
use super::size::Size;
use super::{Cluster, VertexId, VertexKind};
use crate::InputError;
use crate::document::{SourceText, TextSpot};

/// A link of the file may expand to at most this many pairs of ends.
const MOST_WIRES: u64 = 16_000_000;

/// The cluster that `text`, the content of `file`, describes.
pub(super) fn parse(file: &str, text: &str, order: &Order) -> Result<Cluster, InputError> {
    let source = SourceText { file, text };
    if text.trim().is_empty() {
        return Err(source.error(0..0, "is empty; a cluster has a name and at least one [[host]]"));
    }
    let document = source.parse()?;
    let mut tables = read(&document)?;
    order.apply(&mut tables)?;
    check_size(source, &tables)?;
    check_shared(&tables)?;
    let (mut cluster, wires) = build(&tables)?;
    cluster.tables = describe(&tables, &wires, &cluster)?;
    Ok(cluster)
}

/// The cluster of checked tables, not yet described, and the number of wires of each of their links.
fn build(tables: &ClusterTable<'_>) -> Result<(Cluster, Wires), InputError> {
    let mut builder = Builder::new(&tables.name, &tables.description);
    builder.routing(tables.routing, tables.seed);
    builder.shared_cores(tables.shared_cores);
    let mut wires = Wires::default();
    let mut starts = Vec::new();
    for host in &tables.hosts {
        starts.push((builder.vertices().len() as u32, &host.stamp.spot));
        wires.of_hosts.push(stamp_host(host, &mut builder)?);
    }
    for switch in &tables.switches {
        starts.push((builder.vertices().len() as u32, &switch.spot));
        for name in switch.names() {
            builder.vertex(name, VertexKind::Switch, None);
        }
    }
    // Sorting millions of names takes longer than all else, so it is skipped where nothing is looked up and no name can
    // occur twice.
    let one_table = starts.len() == 1 && tables.fabrics.iter().all(FabricTable::takes_every_nic);
    let owned = if one_table || tables.fabrics.is_empty() { Vec::new() } else { builder.linked_names() };
    let names = named(owned.iter().map(|(name, id)| (name.as_str(), *id)), &starts)?;
    stamp_fabrics(&tables.fabrics, &names, &mut builder)?;
    drop(owned);
    if !(one_table && tables.links.is_empty()) {
        wires.between_hosts = wire_up(&tables.links, &starts, &mut builder)?;
    }
    if let Some((first, apart)) = builder.separated() {
        let table = starts.partition_point(|(start, _)| *start <= apart.vertex.0) - 1;
        let message =
            format!("cannot be reached from {}; add a [[link]] or [[host.link]] that leads there", first.name);
        return Err(starts[table].1.clone().showing(&apart.name).error(message));
    }
    Ok((builder.finish(), wires))
}

/// Refuses what would not fit in memory, before anything is built.
fn check_size(source: SourceText<'_>, tables: &ClusterTable<'_>) -> Result<(), InputError> {
    let Some(first) = tables.hosts.first() else {
        return Err(source.error(0..0, "has no device; add a [[host]] with its [host.cpu]"));
    };
    let mut size = Size { things: tables.switches.iter().map(|switch| switch.many()).sum(), ..Size::default() };
    let mut last = &first.stamp.spot;
    for host in &tables.hosts {
        let gpus: u64 = host.gpus.iter().map(|gpu| gpu.stamp.many()).sum();
        let others: u64 = host.things.iter().map(|thing| thing.stamp.many()).sum();
        let adding: u64 = host.things.iter().filter(|thing| thing.sums.is_some()).map(|thing| thing.stamp.many()).sum();
        let many = host.stamp.many();
        size.devices = size.devices.saturating_add(many.saturating_mul(1 + gpus + adding));
        size.things = size.things.saturating_add(many.saturating_mul(2 + gpus + others));
        // A message's link and a memory's wire, and a link for each GPU's memory.
        size.wires = size.wires.saturating_add(many.saturating_mul(2 + gpus / 2));
        last = &host.stamp.spot;
        if size.refused().is_some() {
            break;
        }
    }
    size.refused().map_or(Ok(()), |message| Err(last.clone().showing(&tables.name).error(message)))
}

/// Refuses hosts that share the cores of one machine and describe different ones.
fn check_shared(tables: &ClusterTable<'_>) -> Result<(), InputError> {
    let differs = |host: &&HostTable<'_>| host.cpu.spec != tables.hosts[0].cpu.spec;
    match tables.hosts.iter().find(differs) {
        Some(host) if tables.shared_cores => {
            Err(host.stamp.spot.error("shared_cores: all hosts are on one machine; give each the same [host.cpu]"))
        }
        _ => Ok(()),
    }
}

/// Adds all copies of a host with their inner links; returns the number of wires of each link.
fn stamp_host(host: &HostTable<'_>, builder: &mut Builder) -> Result<Vec<u64>, InputError> {
    let gpus = || host.gpus.iter().flat_map(|gpu| gpu.stamp.names().map(move |name| (name, gpu)));
    let things = || host.things.iter().flat_map(|thing| thing.stamp.names().map(move |name| (name, thing)));
    // Local positions: the CPU is 0, the memory 1, which no link may name.
    let stamps = host.gpus.iter().map(|gpu| &gpu.stamp).chain(host.things.iter().map(|thing| &thing.stamp));
    let local: Vec<(String, &TextSpot<'_>)> =
        stamps.flat_map(|stamp| stamp.names().map(|name| (name, &stamp.spot))).collect();
    let numbered = local.iter().zip(2..).map(|((name, _), position)| (name.as_str(), position));
    let names = Names::new(std::iter::once(("cpu", 0)).chain(numbered)).map_err(|(name, position)| {
        let spot = local[position as usize - 2].1;
        spot.clone().showing(name).error("this name is given twice in one host; rename one of the two")
    })?;
    let wires = pairs_of_all(&host.links, &names, host.stamp.many(), builder)?;
    for name in host.stamp.names() {
        let base = builder.vertices().len() as u32;
        let cpu = &host.cpu;
        let id = builder.host(&name, &cpu.spec, cpu.message_latency, cpu.message_bandwidth, &cpu.provenance);
        builder.passing(host.peer_to_peer, cpu.bounce);
        builder.storage(host.storage);
        for (name, gpu) in gpus() {
            builder.gpu(&name, &gpu.spec, &gpu.provenance);
        }
        for (part, thing) in things() {
            let vertex = builder.vertex(format!("{name}.{part}"), thing.kind, Some(id));
            if let Some((spec, provenance)) = &thing.sums {
                builder.adds(vertex, spec.clone(), provenance);
            }
        }
        for (link, pairs) in host.links.iter().zip(&wires) {
            for (one, other) in pairs {
                builder.wire(VertexId(base + one), VertexId(base + other), &link.wire);
            }
        }
    }
    Ok(wires.iter().map(|pairs| pairs.len() as u64 * host.stamp.many()).collect())
}

/// Adds the links between hosts and switches; returns the number of wires of each.
fn wire_up(
    links: &[LinkTable<'_>],
    starts: &[(u32, &TextSpot<'_>)],
    builder: &mut Builder,
) -> Result<Vec<u64>, InputError> {
    let linked = builder.vertices().iter().filter(|vertex| vertex.weight.kind != VertexKind::Memory);
    let names = named(linked.map(|vertex| (vertex.weight.name.as_str(), vertex.weight.id.0)), starts)?;
    let wires = pairs_of_all(links, &names, 1, builder)?;
    let counts = wires.iter().map(|pairs| pairs.len() as u64).collect();
    for (link, pairs) in links.iter().zip(wires) {
        for (one, other) in pairs {
            builder.wire(VertexId(one), VertexId(other), &link.wire);
        }
    }
    Ok(counts)
}

/// The pairs that each of `links` joins, of which there will be `copies`; refuses more than fit.
fn pairs_of_all(
    links: &[LinkTable<'_>],
    names: &Names<'_>,
    copies: u64,
    builder: &Builder,
) -> Result<Vec<Vec<(u32, u32)>>, InputError> {
    let mut wires = Vec::new();
    let mut total = 0;
    for link in links {
        let pairs = pairs(link, names)?;
        total += pairs.len() as u64 * copies;
        check_wires(link, builder, total)?;
        wires.push(pairs);
    }
    Ok(wires)
}

/// Names of what links may join; `starts` gives the table of one that occurs twice.
fn named<'a>(
    linked: impl Iterator<Item = (&'a str, u32)>,
    starts: &[(u32, &TextSpot<'_>)],
) -> Result<Names<'a>, InputError> {
    Names::new(linked).map_err(|(name, position)| {
        let table = starts.partition_point(|(start, _)| *start <= position) - 1;
        starts[table].1.clone().showing(name).error("this name is given twice; rename one of the two")
    })
}

/// Every pair of different things that a link joins, once.
fn pairs(link: &LinkTable<'_>, names: &Names<'_>) -> Result<Vec<(u32, u32)>, InputError> {
    let [one, other] = &link.between;
    let (ones, others) = (names.find(one)?, names.find(other)?);
    if (ones.len() as u64).saturating_mul(others.len() as u64) > MOST_WIRES {
        let message = format!("joins {} parts with {} others, more than {MOST_WIRES} wires", ones.len(), others.len());
        return Err(other.error(message));
    }
    let mut pairs = Vec::new();
    for a in &ones {
        for b in &others {
            // Where both patterns match both things, the pair comes up twice.
            let again = b < a && others.binary_search(a).is_ok() && ones.binary_search(b).is_ok();
            if a != b && !again {
                pairs.push((*a, *b));
            }
        }
    }
    if pairs.is_empty() {
        return Err(other.error("joins a part with itself; name two different ones"));
    }
    Ok(pairs)
}

/// Refuses `wires` more where they would not fit.
fn check_wires(link: &LinkTable<'_>, builder: &Builder, wires: u64) -> Result<(), InputError> {
    let size = builder.size(Size { wires, ..Size::default() });
    size.refused().map_or(Ok(()), |message| Err(link.between[0].error(message)))
}
