//! Builds the fabrics of a file: counts what they attach, determines their shape, adds switches and wires.
//!
//! Wires are added in the order in which the closed forms number them.

use super::build::Builder;
use super::describe::{FABRICS, LINKS, PROTOCOLS, SUMS, fabric_row, link_row, protocol_row, sums_row};
use super::fabric::{Fabric, Routing, Shape, Torus, Tree};
use super::fabric_table::{FabricTable, Plan};
use super::names::Names;
use super::size::Size;
use super::wire::Wire;
use super::{VertexId, VertexKind};
use crate::Bandwidth;
use crate::InputError;

/// Adds all fabrics to a cluster whose hosts exist.
pub(super) fn stamp_fabrics(
    tables: &[FabricTable<'_>],
    names: &Names<'_>,
    builder: &mut Builder,
) -> Result<(), InputError> {
    let mut taken: Vec<u32> = Vec::new();
    let mut attached = Vec::new();
    for table in tables {
        let ports = ports(table, tables, names, builder)?;
        taken.extend(&ports);
        taken.sort_unstable();
        if let Some(twice) = taken.windows(2).find(|pair| pair[0] == pair[1]) {
            let name = builder.vertices()[twice[0] as usize].weight.name.clone();
            let message = match tables.len() > 1 && table.takes_every_nic() {
                true => "is attached by another [[fabric]] already; leave out that [[fabric]] or the network",
                false => "is attached twice; a port has one cable, so give each fabric a NIC of its own",
            };
            return Err(table.spot.clone().showing(name).error(message));
        }
        attached.push(ports);
    }
    for (table, ports) in tables.iter().zip(attached) {
        let (shape, ports) = resolve(table, ports, builder)?;
        stamp(table, shape, ports, builder)?;
    }
    Ok(())
}

/// The ports of a fabric, by vertex.
fn ports(
    table: &FabricTable<'_>,
    tables: &[FabricTable<'_>],
    names: &Names<'_>,
    builder: &Builder,
) -> Result<Vec<u32>, InputError> {
    let vertices = builder.vertices();
    if table.attach.is_empty() {
        let nics = vertices.iter().filter(|vertex| vertex.weight.kind == VertexKind::Nic);
        let nics: Vec<u32> = nics.map(|vertex| vertex.weight.id.0).collect();
        return match nics.is_empty() {
            true => Err(table.spot.error("there is no NIC to attach; add a [[host.nic]]")),
            false => Ok(nics),
        };
    }
    let mut ports = Vec::new();
    for at in &table.attach {
        let owner = tables
            .iter()
            .find(|other| at.text().ok().and_then(|name| name.split('.').next()) == Some(other.name.as_str()));
        if let Some(owner) = owner.filter(|_| names.find(at).is_err()) {
            let whose = if owner.name == table.name { "itself" } else { "another fabric" };
            let message = format!("attaches the fabric {} to {whose}; attach NICs, CPUs or GPUs of hosts", table.name);
            return Err(at.error(message));
        }
        let found = names.find(at)?;
        let switch =
            found.iter().map(|id| &vertices[*id as usize].weight).find(|vertex| vertex.kind == VertexKind::Switch);
        if let Some(switch) = switch {
            let message = format!("{} is a switch; a fabric attaches NICs, CPUs or GPUs of hosts", switch.name);
            return Err(at.error(message));
        }
        ports.extend(found);
    }
    ports.sort_unstable();
    Ok(ports)
}

/// The shape for this many ports, and the slot of each port in the order of the wires.
fn resolve(
    table: &FabricTable<'_>,
    ports: Vec<u32>,
    builder: &Builder,
) -> Result<(Shape, Vec<(u32, VertexId)>), InputError> {
    let count = ports.len() as u64;
    let wrong = |message: String| Err(table.spot.error(message));
    let shape = match &table.plan {
        Plan::Star => Shape::Tree(Tree { trees: 1, down: vec![count as u32], up: Vec::new(), parallel: Vec::new() }),
        Plan::Given(shape) => shape.clone(),
        Plan::Cube { dimensions, per_router } => Shape::Torus(Torus::near_cube(count, *dimensions, *per_router)),
        Plan::Ports { ports: each, oversubscription, rails } => {
            let none = || wrong(format!("switches of {each} ports make no tree for {count} hosts; use more ports"));
            if *rails {
                return rail_optimised(&ports, *each, *oversubscription, builder).map_or_else(none, Ok);
            }
            match Tree::of_ports(count, *each, *oversubscription) {
                Some(tree) => Shape::Tree(tree),
                None => return none(),
            }
        }
        Plan::Rails { spines, parallel } => return Ok(rails(&ports, *spines, *parallel, builder)),
    };
    let slots = match &shape {
        Shape::Tree(tree) => tree.slots(),
        Shape::Torus(torus) => torus.slots(),
    };
    if slots < count {
        let cure = if table.kind == "torus" { "a larger shape" } else { "larger numbers in down" };
        return wrong(format!("has room for {slots} and attaches {count}; attach fewer or write {cure}"));
    }
    Ok((shape, (0..).zip(ports.into_iter().map(VertexId)).collect()))
}

/// Port i of each host on leaf i of the host's unit; a unit is as many hosts as a leaf of a tree of such switches takes
/// (NVIDIA's rail-optimised fabrics); `None` where the switches make no tree.
fn rail_optimised(
    ports: &[u32],
    each: u32,
    oversubscription: f64,
    builder: &Builder,
) -> Option<(Shape, Vec<(u32, VertexId)>)> {
    let host = |port: u32| builder.vertices()[port as usize].weight.host;
    let hosts: Vec<&[u32]> = ports.chunk_by(|a, b| host(*a) == host(*b)).collect();
    let rails = hosts.iter().map(|own| own.len()).max()? as u64;
    let leaf = u64::from(Tree::leaf_of_ports(each, oversubscription)?);
    let leaves = rails * (hosts.len() as u64).div_ceil(leaf);
    let tree = Tree::of_ports(leaves.checked_mul(leaf)?, each, oversubscription)?;
    let slot = |at: u64, rail: u64| u32::try_from((at / leaf * rails + rail) * leaf + at % leaf).ok();
    let slotted = (0..).zip(&hosts).flat_map(|(at, own)| (0..).zip(*own).map(move |(rail, port)| (at, rail, *port)));
    let mut slots: Vec<(u32, VertexId)> =
        slotted.map(|(at, rail, port)| Some((slot(at, rail)?, VertexId(port)))).collect::<Option<_>>()?;
    slots.sort_unstable();
    Some((Shape::Tree(tree), slots))
}

/// Port i of each host on rail i: rail by rail, each with as many slots as the fullest.
fn rails(ports: &[u32], spines: u32, parallel: u32, builder: &Builder) -> (Shape, Vec<(u32, VertexId)>) {
    let host = |port: u32| builder.vertices()[port as usize].weight.host;
    let mut rails: Vec<Vec<VertexId>> = Vec::new();
    for own in ports.chunk_by(|a, b| host(*a) == host(*b)) {
        for (rail, port) in own.iter().enumerate() {
            if rails.len() == rail {
                rails.push(Vec::new());
            }
            rails[rail].push(VertexId(*port));
        }
    }
    let most = rails.iter().map(Vec::len).max().unwrap_or(1) as u32;
    let count = rails.len() as u32;
    let slotted = (0..).zip(&rails).flat_map(|(rail, ports)| (rail * most..).zip(ports.iter().copied()));
    let ports = slotted.collect();
    let tree = match spines {
        0 => Tree { trees: count, down: vec![most], up: Vec::new(), parallel: Vec::new() },
        _ => Tree { trees: 1, down: vec![most, count], up: vec![spines], parallel: vec![parallel] },
    };
    (Shape::Tree(tree), ports)
}

/// Adds switches and wires, after checking that they fit.
fn stamp(
    table: &FabricTable<'_>,
    shape: Shape,
    ports: Vec<(u32, VertexId)>,
    builder: &mut Builder,
) -> Result<(), InputError> {
    // What is cabled is described; where packets take all of it at once, less is built.
    let cabled = shape.clone();
    let (shape, merged) = match (shape, table.routing) {
        (Shape::Tree(tree), Routing::Spray) => {
            let (tree, cables) = tree.merged();
            (Shape::Tree(tree), cables)
        }
        (shape, _) => (shape, Vec::new()),
    };
    let stages = match &shape {
        Shape::Tree(tree) => tree.up.len(),
        Shape::Torus(torus) => torus.shape.len(),
    };
    let (switches, wires): (u64, u64) = match &shape {
        Shape::Tree(tree) => (
            (1..=stages + 1).fold(0, |sum: u64, level| sum.saturating_add(tree.switches(level))),
            (1..=stages).fold(0, |sum: u64, level| sum.saturating_add(tree.wires(level))),
        ),
        Shape::Torus(torus) => {
            (torus.routers(), (0..stages).fold(0, |sum: u64, dimension| sum.saturating_add(torus.wires(dimension))))
        }
    };
    let per_switch = match &shape {
        Shape::Tree(tree) => tree.down[0],
        Shape::Torus(torus) => torus.per_router,
    };
    // The last ones may not be full.
    let joined = ports.last().map_or(0, |(slot, _)| slot / per_switch + 1);
    let adding = table.sums.as_ref().map_or(0, |_| joined);
    let more = Size { devices: adding.into(), things: switches, wires: wires.saturating_add(ports.len() as u64) };
    if let Some(message) = builder.size(more).refused() {
        return Err(table.spot.error(message));
    }
    let cable = |stage: usize| {
        *table.trunk_bandwidth.get(stage).or(table.trunk_bandwidth.first()).unwrap_or(&table.wire.bandwidth)
    };
    let trunk = |stage: usize| Wire {
        latency: *table.trunk_latency.get(stage).or(table.trunk_latency.first()).unwrap_or(&table.wire.latency),
        bandwidth: merged
            .get(stage)
            .and_then(|cables| Bandwidth::new(cable(stage).bytes_per_s() * cables))
            .unwrap_or(cable(stage)),
        ..table.wire.clone()
    };
    let first_switch = builder.vertices().len() as u32;
    let mut starts = Vec::new();
    match &shape {
        Shape::Tree(tree) => {
            for level in 1..=stages + 1 {
                starts.push(builder.vertices().len() as u32);
                let title = level_name(table.kind, level, stages + 1);
                for switch in 0..tree.switches(level) {
                    builder.vertex(format!("{}.{title}{switch}", table.name), VertexKind::Switch, None);
                }
            }
        }
        Shape::Torus(torus) => {
            for router in 0..torus.routers() {
                builder.vertex(format!("{}.r{}", table.name, torus.named(router)), VertexKind::Switch, None);
            }
        }
    }
    let first = builder.next_link();
    for (slot, vertex) in &ports {
        builder.wire(*vertex, VertexId(first_switch + slot / per_switch), &table.wire);
    }
    let bottom = match table.kind {
        "torus" => "r*".to_string(),
        kind => level_name(kind, 1, stages + 1) + "*",
    };
    if let Some(spec) = &table.sums {
        (0..joined)
            .for_each(|switch| builder.adds(VertexId(first_switch + switch), spec.clone(), &table.wire.provenance));
        builder.row(SUMS, sums_row(&format!("{}.{bottom}", table.name), joined.into(), spec, &table.wire.provenance));
    }
    let joined = format!("{0}: hosts - {0}.{bottom}", table.name);
    builder.row(LINKS, link_row(&joined, ports.len() as u64, &table.wire));
    builder.row(PROTOCOLS, protocol_row(&joined, &table.wire.protocol));
    for stage in 0..stages {
        let wire = trunk(stage);
        match &shape {
            Shape::Tree(tree) => {
                for (below, above) in tree.cables(stage + 1) {
                    let [below, above] = [starts[stage] + below as u32, starts[stage + 1] + above as u32];
                    builder.wire(VertexId(below), VertexId(above), &wire);
                }
                let [below, above] = [stage + 1, stage + 2].map(|level| level_name(table.kind, level, stages + 1));
                let joined = format!("{0}.{below}* - {0}.{above}*", table.name);
                builder.row(LINKS, link_row(&joined, tree.wires(stage + 1), &wire));
            }
            Shape::Torus(torus) => {
                for (one, next) in torus.cables(stage) {
                    builder.wire(VertexId(first_switch + one as u32), VertexId(first_switch + next as u32), &wire);
                }
                let joined = format!("{}: along dimension {stage}", table.name);
                builder.row(LINKS, link_row(&joined, torus.wires(stage), &wire));
            }
        }
    }
    let rates: Vec<f64> =
        std::iter::once(table.wire.bandwidth).chain((0..stages).map(cable)).map(Bandwidth::bytes_per_s).collect();
    let bisection = match &cabled {
        Shape::Tree(tree) => tree.bisection(ports.len() as u64, &rates),
        Shape::Torus(torus) => torus.bisection(ports.len() as u64, &rates),
    };
    let (name, routing, seed) = (table.name.clone(), table.routing, table.seed);
    let failed = Vec::new();
    let oversubscription = match table.plan {
        Plan::Ports { oversubscription, .. } => oversubscription,
        _ => 1.0,
    };
    let switches = match &cabled {
        Shape::Tree(tree) => (1..=stages + 1).fold(0, |sum: u64, level| sum.saturating_add(tree.switches(level))),
        Shape::Torus(_) => switches,
    };
    let fabric =
        Fabric { name, shape: cabled, routing, seed, ports, first, failed, switches, bisection, oversubscription };
    builder.row(FABRICS, fabric_row(&fabric, table.kind));
    builder.fabric(Fabric { shape, ..fabric });
    Ok(())
}

/// The name of a level's switches.
fn level_name(kind: &str, level: usize, levels: usize) -> String {
    match (kind, level) {
        ("rails", 1) => "rail".into(),
        (_, 1) if levels == 1 => "switch".into(),
        (_, 1) => "leaf".into(),
        (_, 2) => "spine".into(),
        (_, 3) => "core".into(),
        _ => format!("level{level}-"),
    }
}
