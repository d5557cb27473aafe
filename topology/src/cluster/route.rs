//! Finds routes: the links that data crosses from one device to another, the same on every run.
//!
//! Fewest links first, then least total latency, then lowest ids. Each pair is searched from both ends at once, so that
//! a route across a switch of a thousand ports never looks at the thousand, and nothing has to be kept between calls.
//! Between ports of a fabric nothing is searched; see `crossing.rs`.

use super::fabric::{Choice, Routing};
use super::parts::*;
use super::{Cluster, RouteTransport};
use crate::{Bandwidth, InputError, Time};
use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;
use std::collections::BTreeMap;

/// The route from one device to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The links that data crosses, in order. A link that is crossed twice is listed twice.
    pub links: Vec<LinkId>,
    /// Sum of the links' latencies.
    pub latency: Time,
    /// The line rate that one transfer alone gets: the least of the links' bandwidths, a wire that is crossed n times
    /// counting 1/n.
    pub bandwidth: Bandwidth,
    /// The cost of its messages besides that.
    pub transport: RouteTransport,
}

impl Cluster {
    /// The route from device `from` to device `to`; from a device to itself (another rank on it), through its memory.
    ///
    /// Data is passed on by switches, and by the CPU and the NICs of the two hosts at its ends; never by a GPU, a third
    /// host or a memory. The way back is the same wires in reverse, unless a fabric or the cluster chooses among equal
    /// routes by destination, hash or dimension. This is the route of flow 0.
    ///
    /// # Errors
    /// An id of another cluster, or no way between the two.
    ///
    /// ```
    /// # use lockstep_topology::cluster::{Cluster, DeviceId};
    /// let cluster = Cluster::load("ethernet-4").unwrap();
    /// let route = cluster.route(DeviceId(0), DeviceId(3)).unwrap();
    /// assert_eq!(route.bandwidth.bytes_per_s(), 1.25e9);
    /// ```
    pub fn route(&self, from: DeviceId, to: DeviceId) -> Result<Route, InputError> {
        self.route_of_flow(from, to, 0)
    }

    /// Like [`Cluster::route`], for one of several flows between two devices, which equal-cost multi-path and hosts
    /// with several NICs may route differently.
    ///
    /// # Errors
    /// As there.
    pub fn route_of_flow(&self, from: DeviceId, to: DeviceId, flow: u32) -> Result<Route, InputError> {
        let (from, to) = (self.known(from)?, self.known(to)?);
        if from.id == to.id && !from.within.is_empty() {
            return Ok(self.crossing(from.within.clone(), from, to));
        }
        let choice = Choice { routing: self.routing, seed: self.seed, from: from.id, to: to.id, flow };
        let links = match from.id == to.id {
            true => None,
            false => self.across(from, to, &choice).or_else(|| self.searched(from, to, &choice)),
        };
        let Some(links) = links else {
            let value = format!("{} to {}", from.name, to.name);
            let message = match self.failed.is_empty() {
                true => "cannot be reached; add a [[link]], or a [[host.link]], on the way between the two",
                false => "cannot be reached without the links that have failed; keep another path",
            };
            return Err(InputError::new(&self.name, value, message));
        };
        Ok(self.crossing(self.bounced(links), from, to))
    }

    /// The route over these links from device `from` to device `to`, which another cluster with the same links
    /// may have found.
    ///
    /// # Errors
    /// An id of another cluster.
    pub fn route_along(&self, from: DeviceId, to: DeviceId, links: &[LinkId]) -> Result<Route, InputError> {
        Ok(self.crossing(links.to_vec(), self.known(from)?, self.known(to)?))
    }

    fn known(&self, id: DeviceId) -> Result<&Device, InputError> {
        let message = || format!("no such device; there are {}, counted from 0", self.devices.len());
        self.device(id).ok_or_else(|| InputError::new(&self.name, format!("device {}", id.0), message()))
    }

    /// The route that a search of the graph finds.
    pub(super) fn searched(&self, from: &Device, to: &Device, choice: &Choice) -> Option<Vec<LinkId>> {
        if choice.routing != Routing::Lowest || from.id < to.id {
            return self.search(from, to, choice);
        }
        // Ties are broken by ids, seen from one end: always the lower device's, so that both directions use
        // the same wires.
        let mut links = self.search(to, from, choice)?;
        links.reverse();
        links.iter_mut().for_each(|link| *link = self.link(*link).reverse);
        Some(links)
    }

    /// The route over `links`, with their total latency and least bandwidth.
    pub(super) fn crossing(&self, links: Vec<LinkId>, from: &Device, to: &Device) -> Route {
        let latency = links.iter().map(|link| self.link(*link).latency).sum();
        let least = self.shares(&links, |link| link.bandwidth).fold(f64::MAX, f64::min);
        let bandwidth = Bandwidth::new(least).expect("a positive finite bandwidth over a small count stays one");
        let transport = self.transport(&links, latency, from, to);
        Route { links, latency, bandwidth, transport }
    }

    /// The share of its wire's `rate` that each crossing of a link gets: a wire that is crossed twice is
    /// divided by two.
    pub(super) fn shares(&self, links: &[LinkId], rate: impl Fn(&Link) -> Bandwidth) -> impl Iterator<Item = f64> {
        links.iter().map(move |link| {
            let link = self.link(*link);
            let crossed = links.iter().filter(|other| self.link(**other).wire == link.wire).count();
            rate(link).bytes_per_s() / crossed as f64
        })
    }

    /// The best way between two different devices.
    fn search(&self, from: &Device, to: &Device, choice: &Choice) -> Option<Vec<LinkId>> {
        let passes = |vertex: &Vertex| match vertex.kind {
            VertexKind::Switch => true,
            VertexKind::Cpu(_) | VertexKind::Nic => vertex.host == Some(from.host) || vertex.host == Some(to.host),
            VertexKind::Gpu(_) | VertexKind::Memory => false,
        };
        let mut ahead = Side::new(from.vertex, Direction::Outgoing);
        let mut behind = Side::new(to.vertex, Direction::Incoming);
        while !ahead.meets(&behind) {
            let side = if ahead.work(self) <= behind.work(self) { &mut ahead } else { &mut behind };
            let goal = if side.direction == Direction::Outgoing { to.vertex } else { from.vertex };
            if !side.grow(self, |vertex| vertex.id == goal || passes(vertex)) {
                return None;
            }
        }
        Some(self.best(&ahead, &behind, choice))
    }

    /// The least latency, then the lowest ids, among the shortest ways that two connected sides have found.
    ///
    /// It looks only at edges that the searches have visited, so a wide switch in the middle costs nothing.
    fn best(&self, ahead: &Side, behind: &Side, choice: &Choice) -> Vec<LinkId> {
        let mut rest: BTreeMap<VertexId, Rest> = BTreeMap::new();
        rest.insert(behind.levels[0][0], Rest { latency: Time::ZERO, onward: Vec::new() });
        for pair in behind.levels.windows(2) {
            for next in &pair[0] {
                for edge in self.graph.edges_directed(node(*next), Direction::Incoming) {
                    let vertex = VertexId(edge.source().index() as u32);
                    if pair[1].binary_search(&vertex).is_ok() {
                        self.offer(&mut rest, vertex, *next, *edge.weight());
                    }
                }
            }
        }
        for pair in ahead.levels.windows(2).rev() {
            for vertex in &pair[0] {
                for edge in self.graph.edges_directed(node(*vertex), Direction::Outgoing) {
                    let next = VertexId(edge.target().index() as u32);
                    if pair[1].binary_search(&next).is_ok() {
                        self.offer(&mut rest, *vertex, next, *edge.weight());
                    }
                }
            }
        }
        let mut links = Vec::new();
        let mut at = ahead.levels[0][0];
        while let Some(onward) = rest.get_mut(&at).map(|rest| &mut rest.onward).filter(|ways| !ways.is_empty()) {
            onward.sort_unstable();
            let pick = match choice.routing {
                Routing::Ecmp => choice.hash(u64::from(at.0)) % onward.len() as u64,
                _ => 0,
            };
            let (next, link) = onward[pick as usize];
            links.push(link);
            at = next;
        }
        links
    }

    /// Adds `link` to `next` to the best ways of `vertex` if a way leads on from there and none so far is faster.
    fn offer(&self, rest: &mut BTreeMap<VertexId, Rest>, vertex: VertexId, next: VertexId, link: LinkId) {
        let Some(beyond) = rest.get(&next) else { return };
        let latency = beyond.latency + self.link(link).latency;
        let best = rest.entry(vertex).or_insert_with(|| Rest { latency, onward: Vec::new() });
        if latency < best.latency {
            *best = Rest { latency, onward: Vec::new() };
        }
        if latency == best.latency {
            best.onward.push((next, link));
        }
    }
}

/// The best ways from a vertex to the end.
struct Rest {
    latency: Time,
    /// The next vertices, each with the link to it; none at the end.
    onward: Vec<(VertexId, LinkId)>,
}

fn node(vertex: VertexId) -> NodeIndex {
    NodeIndex::new(vertex.0 as usize)
}

/// A vertex with more edges than this counts as wide, however many there are.
const ENOUGH: usize = 64;

/// A breadth-first search from one end: its levels, each sorted by id.
struct Side {
    direction: Direction,
    levels: Vec<Vec<VertexId>>,
    seen: Vec<VertexId>,
}

impl Side {
    fn new(start: VertexId, direction: Direction) -> Side {
        Side { direction, levels: vec![vec![start]], seen: vec![start] }
    }

    fn frontier(&self) -> &[VertexId] {
        self.levels.last().expect("a side has its start")
    }

    /// Whether some vertex is in both last levels: only then are the shortest ways found.
    fn meets(&self, other: &Side) -> bool {
        let (few, many) = if self.frontier().len() <= other.frontier().len() { (self, other) } else { (other, self) };
        few.frontier().iter().any(|vertex| many.frontier().binary_search(vertex).is_ok())
    }

    /// How many edges the next level looks at, at most [`ENOUGH`] of each vertex.
    fn work(&self, cluster: &Cluster) -> usize {
        let degree =
            |vertex: &VertexId| cluster.graph.edges_directed(node(*vertex), self.direction).take(ENOUGH).count();
        self.frontier().iter().map(degree).sum()
    }

    /// Adds the next level of vertices that `passes` admits; `false` where there is none.
    fn grow(&mut self, cluster: &Cluster, passes: impl Fn(&Vertex) -> bool) -> bool {
        let mut next = Vec::new();
        for vertex in self.frontier() {
            let edges = cluster.graph.edges_directed(node(*vertex), self.direction);
            next.extend(edges.filter_map(|edge| {
                let far = if self.direction == Direction::Outgoing { edge.target() } else { edge.source() };
                let far = VertexId(far.index() as u32);
                let fresh = self.seen.binary_search(&far).is_err();
                (fresh && passes(cluster.vertex(far))).then_some(far)
            }));
        }
        next.sort_unstable();
        next.dedup();
        self.seen.extend_from_slice(&next);
        self.seen.sort_unstable();
        let grown = !next.is_empty();
        self.levels.push(next);
        grown
    }
}
