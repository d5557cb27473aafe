//! Reads a `[[fabric]]` as plain values: its shape, what it attaches and its wires, checked before anything is built.

use super::fabric::{Routing, Shape, Torus, Tree};
use super::values::name;
use super::wire::{Wire, link_keys, wire};
use super::{Provenance, SwitchSpec};
use crate::document::{Entry, Table, TextSpot};
use crate::{Bandwidth, InputError, Time};
use std::str::FromStr;
use std::sync::Arc;

/// Keys of a `[[fabric]]` besides those of a wire.
const FABRIC: &[&str] = &[
    "name",
    "kind",
    "attach",
    "wire",
    "down",
    "up",
    "parallel",
    "ports",
    "oversubscription",
    "spines",
    "shape",
    "dimensions",
    "hosts_per_router",
    "trunk_latency",
    "trunk_bandwidth",
    "routing",
    "seed",
    "sums",
];

/// At most this many levels or dimensions.
const MOST_LEVELS: usize = 16;
/// At most this much of anything that a switch has.
const MOST: u32 = 1_000_000;

/// A `[[fabric]]`.
pub(super) struct FabricTable<'a> {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// Patterns of what it attaches; none: every NIC.
    pub(super) attach: Vec<Entry<'a>>,
    pub(super) plan: Plan,
    /// The wire from a host.
    pub(super) wire: Wire,
    /// Latency and bandwidth between switches: none, one for all, or one for each level or dimension.
    pub(super) trunk_latency: Vec<Time>,
    pub(super) trunk_bandwidth: Vec<Bandwidth>,
    pub(super) routing: Routing,
    pub(super) seed: u64,
    /// The sums of each switch that hosts are cabled to, if it adds.
    pub(super) sums: Option<SwitchSpec>,
    /// `name = "ib"` or `network = "…"`.
    pub(super) spot: TextSpot<'a>,
}

impl<'a> FabricTable<'a> {
    /// Whether it attaches every NIC, so that no name is looked up.
    pub(super) fn takes_every_nic(&self) -> bool {
        self.attach.is_empty()
    }

    /// The wire of a stage between switches, from 0.
    pub(super) fn trunk(&self, stage: usize) -> Wire {
        Wire {
            latency: *self.trunk_latency.get(stage).or(self.trunk_latency.first()).unwrap_or(&self.wire.latency),
            bandwidth: *self
                .trunk_bandwidth
                .get(stage)
                .or(self.trunk_bandwidth.first())
                .unwrap_or(&self.wire.bandwidth),
            ..self.wire.clone()
        }
    }

    /// What the names of a level's switches begin with; level 1 is that of the ports.
    pub(super) fn level_name(&self, level: usize, levels: usize) -> String {
        let name = match (self.kind, level) {
            ("torus", _) => "r",
            ("rails", 1) => "rail",
            (_, 1) if levels == 1 => "switch",
            (_, 1) => "leaf",
            (_, 2) => "spine",
            (_, 3) => "core",
            _ => return format!("{}.level{level}-", self.name),
        };
        format!("{}.{name}", self.name)
    }

    /// The same in another shape: `rails`, where each leaf takes one NIC of each of its hosts, or `2to1`, with twice as
    /// many cables down as up in each level but the last.
    ///
    /// # Errors
    /// Another word, or a fabric that is no fat tree of switches of equal ports.
    pub(super) fn shaped(self, word: &str) -> Result<FabricTable<'a>, String> {
        let Plan::Ports { ports, oversubscription, rails } = self.plan else {
            return Err(format!(
                "{} is not a fat tree of equal switches, so {word} says nothing of it; drop it",
                self.name
            ));
        };
        let plan = |oversubscription, rails| Plan::Ports { ports, oversubscription, rails };
        if word == "rails" {
            return Ok(FabricTable { kind: "rails", plan: plan(oversubscription, true), ..self });
        }
        let down = word.strip_suffix("to1").and_then(|down| down.parse::<u32>().ok());
        match down.filter(|down| (1..ports).contains(down) && Tree::of_ports(1, ports, f64::from(*down)).is_some()) {
            Some(down) => Ok(FabricTable { plan: plan(down.into(), rails), ..self }),
            None => Err(format!(
                "{word:?} is not a shape of a network of {ports} ports; there are rails, and 2to1 or the like"
            )),
        }
    }

    /// The same, attaching every NIC; `spot` asked for it.
    pub(super) fn of_every_nic<'b>(self, spot: TextSpot<'b>) -> FabricTable<'b> {
        FabricTable {
            name: self.name,
            kind: self.kind,
            attach: Vec::new(),
            plan: self.plan,
            wire: self.wire,
            trunk_latency: self.trunk_latency,
            trunk_bandwidth: self.trunk_bandwidth,
            routing: self.routing,
            seed: self.seed,
            sums: self.sums,
            spot,
        }
    }
}

/// The shape as far as it is known before the hosts are counted.
pub(super) enum Plan {
    /// One switch.
    Star,
    /// A rail for each NIC of a host; rails are joined by `spines` spines with `parallel` cables each.
    Rails { spines: u32, parallel: u32 },
    /// As written.
    Given(Shape),
    /// A fat tree of switches of that many ports; with `rails` each leaf takes one NIC of each of its hosts.
    Ports { ports: u32, oversubscription: f64, rails: bool },
    /// A nearly cubic torus.
    Cube { dimensions: u32, per_router: u32 },
}

/// Reads a `[[fabric]]`; one of a catalogue (`attached` is false) attaches every NIC.
pub(super) fn read_fabric<'a>(
    table: &Table<'a>,
    attached: bool,
    inherited: &Arc<Provenance>,
    plain: bool,
) -> Result<FabricTable<'a>, InputError> {
    let (kind, own) = table.required("kind", "\"fat-tree\"", |text| {
        let known = KINDS.into_iter().find(|(kind, _)| *kind == text);
        let names = KINDS.map(|(kind, _)| kind).join(", ");
        known.ok_or_else(|| format!("is not a kind of fabric; there are {names}"))
    })?;
    for key in KINDS.into_iter().flat_map(|(_, keys)| keys).filter(|key| !own.contains(key)) {
        if let Some(entry) = table.get(key) {
            return Err(entry.error(format!("means nothing to a {kind}, which has {}; drop it", own.join(", "))));
        }
    }
    let plan = plan(table, kind)?;
    let trunks = match &plan {
        Plan::Given(Shape::Tree(tree)) => Some(tree.up.len()),
        Plan::Given(Shape::Torus(torus)) => Some(torus.shape.len()),
        Plan::Cube { dimensions, .. } => Some(*dimensions as usize),
        Plan::Star => Some(0),
        Plan::Rails { .. } => Some(1),
        Plan::Ports { .. } => None,
    };
    let trunk_latency = table.optional("trunk_latency", |entry| each(entry, Time::from_str))?.unwrap_or_default();
    let trunk_bandwidth =
        table.optional("trunk_bandwidth", |entry| each(entry, Bandwidth::from_str))?.unwrap_or_default();
    for (key, given) in [("trunk_latency", trunk_latency.len()), ("trunk_bandwidth", trunk_bandwidth.len())] {
        if given > 1 && Some(given) != trunks {
            let most = trunks.map_or("one for all".to_string(), |trunks| format!("one for all or {trunks}"));
            return Err(table.error_at(key, format!("{given} values for the wires between switches; give {most}")));
        }
    }
    let routing = table.read("routing", "\"ecmp\"", |text| {
        let routing = Routing::from_str(text)?;
        let fits = match routing {
            Routing::Lowest => kind != "torus",
            // A star has one route.
            Routing::Ecmp | Routing::DModK | Routing::Spray => !["torus", "star"].contains(&kind),
            Routing::DimensionOrder => kind == "torus",
        };
        if fits { Ok(routing) } else { Err(format!("does not go with a {kind}; leave it out for its default")) }
    })?;
    seed_is_read(table, routing)?;
    let default = if kind == "torus" { Routing::DimensionOrder } else { Routing::Lowest };
    let spot = table.spot().showing(table.need("name", "\"ib\"")?.shown());
    let attach = || {
        let attach = table.need("attach", "\"node*.ib0\"")?.items()?;
        attach.iter().try_for_each(|item| item.text().map(|_| ()))?;
        Ok::<_, InputError>(attach)
    };
    let wire = wire(table, "wire", inherited, plain)?;
    let sums = table.read("sums", "\"3.2TB/s\"", Bandwidth::from_str)?;
    Ok(FabricTable {
        name: table.required("name", "\"ib\"", name)?,
        kind,
        attach: if attached { attach()? } else { Vec::new() },
        plan,
        sums: sums.map(|sums| SwitchSpec { sums, links: wire.kind }),
        wire,
        trunk_latency,
        trunk_bandwidth,
        routing: routing.unwrap_or(default),
        seed: table.whole("seed", 0..=u64::MAX >> 1)?.unwrap_or(0),
        spot,
    })
}

/// Refuses a seed where no route is chosen by it.
///
/// # Errors
/// Such a seed.
pub(super) fn seed_is_read(table: &Table<'_>, routing: Option<Routing>) -> Result<(), InputError> {
    match table.get("seed") {
        Some(entry) if routing != Some(Routing::Ecmp) => {
            Err(entry.error("is read with routing = \"ecmp\" alone: give that too, or leave it out"))
        }
        _ => Ok(()),
    }
}

/// The kinds, and the keys that only some of them have.
const KINDS: [(&str, &[&str]); 4] = [
    ("star", &["sums"]),
    (
        "fat-tree",
        &["down", "up", "parallel", "ports", "oversubscription", "seed", "sums", "trunk_latency", "trunk_bandwidth"],
    ),
    ("rails", &["spines", "parallel", "ports", "oversubscription", "seed", "sums", "trunk_latency", "trunk_bandwidth"]),
    ("torus", &["shape", "dimensions", "hosts_per_router", "trunk_latency", "trunk_bandwidth"]),
];

fn plan(table: &Table<'_>, kind: &str) -> Result<Plan, InputError> {
    let count = |key, most: u32| Ok::<_, InputError>(table.whole(key, 1..=most.into())?.map(|count| count as u32));
    match kind {
        "star" => Ok(Plan::Star),
        "rails" if table.get("ports").is_some() => {
            if let Some(entry) = table.get("spines").or(table.get("parallel")) {
                return Err(entry.error("has no place beside ports, which say how many spines there are; keep one"));
            }
            tree(table, true)
        }
        "rails" => {
            if let Some(entry) = table.get("oversubscription") {
                return Err(entry.error("needs ports, of each switch; add ports = 64"));
            }
            let parallel = counts(table, "parallel")?.first().copied().unwrap_or(1);
            Ok(Plan::Rails { spines: count("spines", MOST)?.unwrap_or(0), parallel })
        }
        "torus" => {
            let per_router = count("hosts_per_router", MOST)?.unwrap_or(1);
            let shape = counts(table, "shape")?;
            match (shape.len(), count("dimensions", 8)?) {
                (0, None) => Err(table.missing("shape", "[4, 4, 2], or dimensions = 3")),
                (0, Some(dimensions)) => Ok(Plan::Cube { dimensions, per_router }),
                (n, None) if n <= MOST_LEVELS => Ok(Plan::Given(Shape::Torus(Torus { shape, per_router }))),
                (_, None) => Err(table.error(format!("has more than {MOST_LEVELS} dimensions; lower them"))),
                _ => Err(table.error("has both shape and dimensions; keep one")),
            }
        }
        _ => tree(table, false),
    }
}

/// Whole numbers, one or more; none where the key is missing.
fn counts(table: &Table<'_>, key: &str) -> Result<Vec<u32>, InputError> {
    let given = table.get(key).filter(|entry| !entry.list().is_some_and(|items| items.is_empty()));
    given.map_or(Ok(Vec::new()), |entry| entry.counts(MOST))
}

/// The result of `read` for each text of a list.
fn each<T>(entry: &Entry<'_>, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, InputError> {
    entry.items()?.iter().map(|item| item.read(&read)).collect()
}

/// Cables down over cables up.
fn ratio(entry: &Entry<'_>) -> Result<f64, InputError> {
    let range = 1e-3..=1e6;
    entry.checked(|number| {
        range.contains(&number).then_some(number).ok_or_else(|| format!("must be a number from {} to {}", 1e-3, 1e6))
    })
}

/// A tree as a file describes it, on rails or not.
fn tree(table: &Table<'_>, rails: bool) -> Result<Plan, InputError> {
    let down = counts(table, "down")?;
    let oversubscription = table.optional("oversubscription", ratio)?;
    if let Some(ports) = table.whole("ports", 1..=MOST.into())? {
        if !down.is_empty() {
            return Err(table.error("has both ports and down; keep one"));
        }
        let oversubscription = oversubscription.unwrap_or(1.0);
        let ports = ports as u32;
        if ports < 2 || Tree::of_ports(1, ports, oversubscription).is_none() {
            return Err(table.error_at("ports", "leaves no port for a host; use more ports or less oversubscription"));
        }
        return Ok(Plan::Ports { ports, oversubscription, rails });
    }
    if down.is_empty() {
        return Err(table.missing("down", "[16, 8], the hosts of a leaf and the leaves; or ports = 36"));
    }
    if down.len() > MOST_LEVELS {
        return Err(table.error(format!("has more than {MOST_LEVELS} levels; lower them")));
    }
    let levels = down.len() - 1;
    let mut parallel = counts(table, "parallel")?;
    if parallel.is_empty() {
        parallel = vec![1; levels];
    }
    let mut up = counts(table, "up")?;
    match (up.is_empty(), oversubscription) {
        (false, Some(_)) => return Err(table.error("has both up and oversubscription; keep one")),
        // Uplinks of a switch: its cables down, over the ratio and the cables to each switch above.
        (true, ratio) if parallel.len() == levels => {
            let wanted = |level: usize| {
                let below = if level == 0 { 1 } else { parallel[level - 1] };
                let cables = f64::from(down[level]) * f64::from(below) / ratio.unwrap_or(1.0);
                ((cables / f64::from(parallel[level])).round() as u32).clamp(1, MOST)
            };
            up = (0..levels).map(wanted).collect();
        }
        _ => {}
    }
    for (key, given) in [("up", up.len()), ("parallel", parallel.len())] {
        if given != levels {
            let message = format!("{key} has {given} numbers; down has {}, so it must have {levels}", down.len());
            return Err(table.error(message));
        }
    }
    Ok(Plan::Given(Shape::Tree(Tree { trees: 1, down, up, parallel })))
}

/// Keys of a `[[fabric]]`: its own and those of its wires.
pub(super) fn fabric_keys() -> Vec<&'static str> {
    let wires = link_keys().into_iter().filter(|key| !matches!(*key, "kind" | "between"));
    FABRIC.iter().copied().chain(wires).collect()
}
