//! `Fabric`: models switches between hosts by a few figures (a fat tree, rails, a torus), with routes in closed form.
//!
//! Its switches and wires are ordinary vertices and links of the cluster's graph. Only the route between two of its
//! ports is computed instead of searched, so a route among 100,000 hosts costs time in proportion to its length.

mod choice;
mod detour;
mod torus;
mod tree;

use super::{LinkId, VertexId};
pub(super) use choice::Choice;
pub use choice::Routing;
pub(super) use torus::Torus;
pub(super) use tree::Tree;

/// How the switches are wired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Tree(Tree),
    Torus(Torus),
}

impl Shape {
    /// Slots for ports.
    pub(super) fn slots(&self) -> u64 {
        match self {
            Shape::Tree(tree) => tree.slots(),
            Shape::Torus(torus) => torus.slots(),
        }
    }

    /// Slots at each switch that ports are cabled to.
    pub(super) fn per_switch(&self) -> u32 {
        match self {
            Shape::Tree(tree) => tree.down[0],
            Shape::Torus(torus) => torus.per_router,
        }
    }

    /// All switches.
    pub(super) fn switches(&self) -> u64 {
        match self {
            Shape::Tree(tree) => {
                (1..=tree.up.len() + 1).fold(0, |sum: u64, level| sum.saturating_add(tree.switches(level)))
            }
            Shape::Torus(torus) => torus.routers(),
        }
    }

    /// Stages of wires between switches: those between two levels of a tree, or along a dimension of a torus.
    pub(super) fn stages(&self) -> usize {
        match self {
            Shape::Tree(tree) => tree.up.len(),
            Shape::Torus(torus) => torus.shape.len(),
        }
    }

    /// Wires of a stage, from 0.
    pub(super) fn wires(&self, stage: usize) -> u64 {
        match self {
            Shape::Tree(tree) => tree.wires(stage + 1),
            Shape::Torus(torus) => torus.wires(stage),
        }
    }

    /// Wires of all stages.
    pub(super) fn trunks(&self) -> u64 {
        (0..self.stages()).fold(0, |sum: u64, stage| sum.saturating_add(self.wires(stage)))
    }

    /// Bytes per second across the worst cut of this many ports; `rates` are those of a port's wire and of a wire of
    /// each stage.
    pub(super) fn bisection(&self, ports: u64, rates: &[f64]) -> f64 {
        match self {
            Shape::Tree(tree) => tree.bisection(ports, rates),
            Shape::Torus(torus) => torus.bisection(ports, rates),
        }
    }

    /// As `clusters show` prints it.
    pub(super) fn shown(&self) -> String {
        match self {
            Shape::Tree(tree) => tree.shown(),
            Shape::Torus(torus) => torus.shown(),
        }
    }
}

/// A generated network: its ports are vertices of hosts, each on a slot of the shape.
#[derive(Debug, Clone)]
pub(super) struct Fabric {
    pub(super) name: String,
    /// What is built, and what it stands for: fewer switches where packets take all ways at once.
    pub(super) shape: Shape,
    pub(super) cabled: Shape,
    pub(super) routing: Routing,
    pub(super) seed: u64,
    /// Slot and vertex of each port, in the order of their wires.
    pub(super) ports: Vec<(u32, VertexId)>,
    /// The link from the first port to its switch; that of port i is 2 i further, and the wires between
    /// switches follow.
    pub(super) first: LinkId,
    /// Links that data cannot cross, sorted.
    pub(super) failed: Vec<LinkId>,
    /// Bytes per second across the worst cut, one way, of the attached hosts into halves of whole subtrees or of
    /// neighbouring planes; 0 where rails are not connected.
    pub(super) bisection: f64,
    /// Times as many cables down as up that were asked for; 1 where nothing was.
    pub(super) oversubscription: f64,
}

impl Fabric {
    /// Switches that ports are cabled to; the last ones have none where the shape is not full.
    pub(super) fn joined(&self) -> u32 {
        joined(&self.shape, &self.ports)
    }

    /// Says so where oversubscription was asked for and all ports are on one switch.
    pub(super) fn note(&self) -> Option<String> {
        let Shape::Tree(tree) = &self.shape else { return None };
        (self.oversubscription > 1.0 && tree.up.is_empty()).then(|| {
            format!(
                "network {}: one switch has ports for all {} NICs, so nothing is oversubscribed; a [[fabric]] with down and up \
                 describes smaller switches",
                self.name,
                self.ports.len()
            )
        })
    }

    /// The number of hosts that must move together for routes to move with them: 1 where routes depend only on the
    /// tree, `None` where they depend on everything. `host` numbers the host of a port's vertex.
    pub(super) fn grain(&self, hosts: u32, host: impl Fn(VertexId) -> Option<u32>) -> Option<u32> {
        let Shape::Tree(tree) = &self.shape else { return None };
        let options = tree.up.iter().chain(&tree.parallel).fold(1u32, |product, n| product.saturating_mul(*n));
        let each = self.ports.len() as u32 / hosts.max(1);
        let in_order = || {
            let at_place =
                |(at, (slot, vertex)): (u32, &(u32, VertexId))| at == *slot && host(*vertex) == Some(at / each);
            each > 0 && (0..).zip(&self.ports).all(at_place)
        };
        match self.routing {
            // Whether a flow takes a detour depends on its ends.
            _ if !self.failed.is_empty() => None,
            _ if options == 1 => Some(1),
            Routing::Lowest => Some(1),
            // Routes depend on the residues of a destination's slot, so whole hosts' slots must keep theirs.
            Routing::DModK if in_order() => (1..=options).find(|hosts| (hosts * each).is_multiple_of(options)),
            _ => None,
        }
    }

    /// The links from one port to another, in order; `None` where the two are not connected in this fabric.
    pub(super) fn way(&self, from: u32, to: u32, choice: &Choice) -> Option<Vec<LinkId>> {
        let [from_slot, to_slot] = [from, to].map(|port| u64::from(self.ports[port as usize].0));
        let choice = Choice { routing: self.routing, seed: self.seed, ..*choice };
        let inner = match &self.shape {
            Shape::Tree(tree) => tree.way(from_slot, to_slot, &choice)?,
            Shape::Torus(torus) => torus.way(from_slot, to_slot),
        };
        let whole = |link: LinkId| self.failed.binary_search(&link).is_err();
        let (out, into) = (LinkId(self.first.0 + 2 * from), LinkId(self.first.0 + 2 * to + 1));
        if !(whole(out) && whole(into)) {
            return None;
        }
        let inner = match inner.iter().all(|crossing| whole(self.trunk(*crossing))) {
            true => inner,
            false => match &self.shape {
                Shape::Tree(tree) => {
                    tree.detour(from_slot, to_slot, &choice, &|crossing| whole(self.trunk(crossing)))?
                }
                Shape::Torus(torus) => torus.detour(from_slot, to_slot, &|crossing| whole(self.trunk(crossing)))?,
            },
        };
        let mut links = Vec::with_capacity(inner.len() + 2);
        links.push(out);
        links.extend(inner.into_iter().map(|crossing| self.trunk(crossing)));
        links.push(into);
        Some(links)
    }

    /// The link of a wire between switches, in one of its directions.
    fn trunk(&self, (wire, back): (u64, bool)) -> LinkId {
        LinkId(self.first.0 + 2 * self.ports.len() as u32 + 2 * wire as u32 + u32::from(back))
    }

    /// Marks those of these links (sorted) that are its own as failed.
    pub(super) fn fail(&mut self, failed: &[LinkId]) {
        let end = self.first.0 + 2 * (self.ports.len() as u32 + self.shape.trunks() as u32);
        self.failed = failed.iter().filter(|link| (self.first.0..end).contains(&link.0)).copied().collect();
    }
}

/// Switches that these ports are cabled to.
pub(super) fn joined(shape: &Shape, ports: &[(u32, VertexId)]) -> u32 {
    ports.last().map_or(0, |(slot, _)| slot / shape.per_switch() + 1)
}
