//! Finds the route between hosts over a fabric: the NIC nearest to each device, and the fabric's closed form
//! between the two.
//!
//! Inside a host the way to a NIC is searched among the few things of that host, never beyond it.

use super::Cluster;
use super::fabric::Choice;
use super::parts::*;
use crate::Time;
use petgraph::Direction;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;
use std::collections::BTreeMap;

/// A way inside a host: links, latency, and the last of the links with the vertex before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    links: u32,
    latency: Time,
    back: Option<(VertexId, LinkId)>,
}

/// A port that a device reaches inside its host.
#[derive(Clone, Copy)]
struct Exit {
    vertex: VertexId,
    fabric: u32,
    port: u32,
    step: Step,
}

/// Links, latency, and whether exit and entry differ from the preferred ones: the least is the best pair.
type Rank = (u32, Time, bool, bool);

impl Cluster {
    /// The links from a device to one of another host that is on the same fabric; `None` where no fabric joins the two.
    pub(super) fn across(&self, from: &Device, to: &Device, choice: &Choice) -> Option<Vec<LinkId>> {
        // A switch of a network is no port of it: the way there is searched.
        let between_hosts = |device: &Device| device.host.0 as usize >= self.hosts.len();
        if self.fabrics.is_empty() || from.host == to.host || between_hosts(from) || between_hosts(to) {
            return None;
        }
        let [out, into] = [from, to].map(|device| self.inside(device));
        let [exits, entries] = [(from, &out), (to, &into)].map(|(device, inside)| self.exits(device, inside));
        let nearest = |exits: &[Exit]| {
            let least = exits.iter().map(|exit| (exit.step.links, exit.step.latency)).min();
            exits.iter().filter(|exit| Some((exit.step.links, exit.step.latency)) == least).copied().collect::<Vec<_>>()
        };
        let (near_exits, near_entries) = (nearest(&exits), nearest(&entries));
        // Devices equally near to several NICs rotate over them.
        let [first, second] = [(from, &near_exits), (to, &near_entries)].map(|(device, near)| {
            let position = device.id.0 - self.hosts[device.host.0 as usize].devices[0].0;
            (position.saturating_sub(1) as usize + choice.flow as usize) % near.len().max(1)
        });
        let near = self.pair(&near_exits, &near_entries, (first, second), choice);
        let (exit, entry, between) = near.or_else(|| self.pair(&exits, &entries, (0, 0), choice))?;
        let mut links = trace(&out, exit.vertex);
        links.reverse();
        links.extend(between);
        links.extend(trace(&into, entry.vertex).into_iter().map(|link| self.link(link).reverse));
        Some(links)
    }

    /// Of exits and entries on one fabric, those with the shortest way in all; among equals the preferred ones,
    /// then the first.
    fn pair(
        &self,
        exits: &[Exit],
        entries: &[Exit],
        wanted: (usize, usize),
        choice: &Choice,
    ) -> Option<(Exit, Exit, Vec<LinkId>)> {
        let mut best: Option<(Rank, Exit, Exit, Vec<LinkId>)> = None;
        for (i, exit) in exits.iter().enumerate() {
            for (j, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.fabric == exit.fabric) {
                let fabric = &self.fabrics[exit.fabric as usize];
                let Some(between) = fabric.way(exit.port, entry.port, choice) else { continue };
                let latency: Time = between.iter().map(|link| self.link(*link).latency).sum();
                let links = exit.step.links + entry.step.links + between.len() as u32;
                let latency = exit.step.latency + entry.step.latency + latency;
                let rank = (links, latency, i != wanted.0, j != wanted.1);
                if best.as_ref().is_none_or(|(least, ..)| rank < *least) {
                    best = Some((rank, *exit, *entry, between));
                }
            }
        }
        best.map(|(_, exit, entry, between)| (exit, entry, between))
    }

    /// The ports of fabrics that a device reaches inside its host, by vertex.
    fn exits(&self, device: &Device, inside: &BTreeMap<VertexId, Step>) -> Vec<Exit> {
        let exit = |(vertex, step): (&VertexId, &Step)| {
            // A GPU or another CPU on a fabric is a port only for itself.
            if *vertex != device.vertex && matches!(self.vertex(*vertex).kind, VertexKind::Gpu(_)) {
                return None;
            }
            let at = self.attached.binary_search_by_key(vertex, |(vertex, ..)| *vertex).ok()?;
            let (_, fabric, port) = self.attached[at];
            Some(Exit { vertex: *vertex, fabric, port, step: *step })
        };
        inside.iter().filter_map(exit).collect()
    }

    /// From a device to all things of its host: fewest links, then least latency, then lowest ids.
    fn inside(&self, device: &Device) -> BTreeMap<VertexId, Step> {
        let start = Step { links: 0, latency: Time::ZERO, back: None };
        let mut steps = BTreeMap::from([(device.vertex, start)]);
        let mut frontier = vec![device.vertex];
        while !frontier.is_empty() {
            let mut next: BTreeMap<VertexId, Step> = BTreeMap::new();
            for vertex in &frontier {
                let here = steps[vertex];
                let passes =
                    matches!(self.vertex(*vertex).kind, VertexKind::Switch | VertexKind::Cpu(_) | VertexKind::Nic);
                if *vertex != device.vertex && !passes {
                    continue;
                }
                for edge in self.graph.edges_directed(NodeIndex::new(vertex.0 as usize), Direction::Outgoing) {
                    let far = VertexId(edge.target().index() as u32);
                    if steps.contains_key(&far) || self.vertex(far).host != Some(device.host) {
                        continue;
                    }
                    let latency = here.latency + self.link(*edge.weight()).latency;
                    let offer = Step { links: here.links + 1, latency, back: Some((*vertex, *edge.weight())) };
                    next.entry(far).and_modify(|step| *step = (*step).min(offer)).or_insert(offer);
                }
            }
            frontier = next.keys().copied().collect();
            steps.extend(next);
        }
        steps
    }

    /// The same links with a detour through the memory of every host whose CPU does not forward from bus to bus.
    pub(super) fn bounced(&self, links: Vec<LinkId>) -> Vec<LinkId> {
        let mut all = Vec::with_capacity(links.len());
        for (position, link) in links.iter().enumerate() {
            all.push(*link);
            let VertexKind::Cpu(cpu) = self.vertex(self.link(*link).to).kind else { continue };
            let cpu = &self.devices[cpu.0 as usize];
            let host = &self.hosts[cpu.host.0 as usize];
            if position + 1 < links.len() && host.peer_to_peer == PeerToPeer::HostMemory {
                all.extend([host.bounce, cpu.within[1], cpu.within[2]]);
            }
        }
        all
    }
}

/// The links of the way to `vertex`, from there back.
fn trace(steps: &BTreeMap<VertexId, Step>, vertex: VertexId) -> Vec<LinkId> {
    let mut links = Vec::new();
    let mut at = vertex;
    while let Some((before, link)) = steps[&at].back {
        links.push(link);
        at = before;
    }
    links
}
