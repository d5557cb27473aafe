//! Builds the fabrics of a file: counts what they attach, determines their shape, adds switches and wires.
//!
//! Wires are added in the order in which the closed forms number them.

use super::build::Builder;
use super::fabric::{Fabric, Routing, Shape, Torus, Tree, joined};
use super::fabric_table::{FabricTable, Plan};
use super::names::Names;
use super::size::Size;
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
    let slots = shape.slots();
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
    // Where packets take all of what is cabled at once, less is built.
    let cabled = shape;
    let (shape, merged) = match &cabled {
        Shape::Tree(tree) if table.routing == Routing::Spray => {
            let (tree, cables) = tree.merged();
            (Shape::Tree(tree), cables)
        }
        cabled => (cabled.clone(), Vec::new()),
    };
    check_size(table, &shape, &ports, builder)?;
    let levels = switches(table, &shape, builder);
    let first = builder.next_link();
    for (slot, vertex) in &ports {
        builder.wire(*vertex, VertexId(levels[0] + slot / shape.per_switch()), &table.wire);
    }
    if let Some(spec) = &table.sums {
        let adding = levels[0]..levels[0] + joined(&shape, &ports);
        adding.for_each(|switch| builder.adds(VertexId(switch), spec.clone(), &table.wire.provenance));
    }
    trunks(table, &shape, (&levels, &merged), builder);
    let trunk_rates = (0..cabled.stages()).map(|stage| table.trunk(stage).bandwidth);
    let rates = std::iter::once(table.wire.bandwidth).chain(trunk_rates).map(Bandwidth::bytes_per_s);
    let bisection = cabled.bisection(ports.len() as u64, &rates.collect::<Vec<_>>());
    let (name, routing, seed) = (table.name.clone(), table.routing, table.seed);
    let oversubscription = match table.plan {
        Plan::Ports { oversubscription, .. } => oversubscription,
        _ => 1.0,
    };
    let failed = Vec::new();
    builder.fabric(Fabric { name, shape, cabled, routing, seed, ports, first, failed, bisection, oversubscription });
    Ok(())
}

/// Refuses a fabric that would not fit in memory.
fn check_size(
    table: &FabricTable<'_>,
    shape: &Shape,
    ports: &[(u32, VertexId)],
    builder: &Builder,
) -> Result<(), InputError> {
    let adding = table.sums.as_ref().map_or(0, |_| joined(shape, ports));
    let wires = shape.trunks().saturating_add(ports.len() as u64);
    let more = Size { devices: adding.into(), things: shape.switches(), wires };
    builder.size(more).refused().map_or(Ok(()), |message| Err(table.spot.error(message)))
}

/// Adds the switches level by level; returns the first vertex of each level. A torus has one level.
fn switches(table: &FabricTable<'_>, shape: &Shape, builder: &mut Builder) -> Vec<u32> {
    let levels = if matches!(shape, Shape::Tree(_)) { shape.stages() + 1 } else { 1 };
    let mut starts = Vec::with_capacity(levels);
    for level in 1..=levels {
        starts.push(builder.vertices().len() as u32);
        let title = table.level_name(level, levels);
        let count = if let Shape::Tree(tree) = shape { tree.switches(level) } else { shape.switches() };
        for switch in 0..count {
            let name = match shape {
                Shape::Tree(_) => format!("{title}{switch}"),
                Shape::Torus(torus) => format!("{title}{}", torus.named(switch)),
            };
            builder.vertex(name, VertexKind::Switch, None);
        }
    }
    starts
}

/// Adds the wires between switches, whose levels begin at these vertices; each stands for `merged` cables, by stage.
fn trunks(table: &FabricTable<'_>, shape: &Shape, (levels, merged): (&[u32], &[f64]), builder: &mut Builder) {
    for stage in 0..shape.stages() {
        let mut wire = table.trunk(stage);
        if let Some(all) = merged.get(stage).and_then(|cables| Bandwidth::new(wire.bandwidth.bytes_per_s() * cables)) {
            wire.bandwidth = all;
        }
        let mut join = |one: u32, other: u32| {
            builder.wire(VertexId(one), VertexId(other), &wire);
        };
        match shape {
            Shape::Tree(tree) => tree
                .cables(stage + 1)
                .for_each(|(below, above)| join(levels[stage] + below as u32, levels[stage + 1] + above as u32)),
            Shape::Torus(torus) => {
                torus.cables(stage).for_each(|(one, next)| join(levels[0] + one as u32, levels[0] + next as u32));
            }
        }
    }
}
