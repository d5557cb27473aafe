//! Finds how far an oversubscribed network slows NCCL: the share of their NICs' rate that nodes reach where the links
//! from a switch to other switches carry less than its NICs send.
//!
//! All nodes send at once, each NIC to the one with its number. Flows spread evenly over the links that leave a switch
//! (no collisions of hashes), and only switches with NICs are counted, not those above them.

use std::collections::BTreeMap;

use petgraph::graph::NodeIndex;

use crate::cluster::{Cluster, HostId, Link, LinkKind, VertexId, VertexKind};
use crate::collective::node_trees::neighbours;

/// Distances at which each node sends to represent all of them.
const SHIFTS: u32 = 16;

/// Shares of the NICs' rate, from 0 to 1, by who sends to whom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FabricShare {
    /// Each node to the next one.
    pub ring: f64,
    /// Along two complementary trees, both ways.
    pub tree: f64,
    /// Each node to every other one.
    pub pairs: f64,
}

impl FabricShare {
    /// A network that carries all that NICs send.
    pub const FULL: FabricShare = FabricShare { ring: 1.0, tree: 1.0, pairs: 1.0 };

    /// The shares between nodes, of which `node` gives that of a host, with `nics` NICs in use on each.
    pub(super) fn of(cluster: &Cluster, nodes: &BTreeMap<HostId, u32>, count: u32, nics: u32) -> FabricShare {
        let Some(leaves) = Leaves::of(cluster, nodes, count, nics as usize).filter(|leaves| !leaves.carry_all()) else {
            return FabricShare::FULL;
        };
        let ring = (0..count).map(|node| Flow { from: node, to: (node + 1) % count, part: 1.0 });
        let trees = (0..count).flat_map(|node| [(node, false), (node, true)]).flat_map(|(node, mirrored)| {
            let above = neighbours(node, count, mirrored).0;
            let both = move |above| [(node, above), (above, node)].map(|(from, to)| Flow { from, to, part: 0.5 });
            above.into_iter().flat_map(both)
        });
        let shifts = (1..count).step_by(count.div_ceil(SHIFTS) as usize);
        let pairs =
            shifts.flat_map(|by| (0..count).map(move |node| Flow { from: node, to: (node + by) % count, part: 1.0 }));
        FabricShare { ring: leaves.share(ring), tree: leaves.share(trees), pairs: leaves.share(pairs) }
    }
}

/// What a node sends to another one, in buffers.
#[derive(Debug, Clone, Copy)]
struct Flow {
    from: u32,
    to: u32,
    part: f64,
}

/// The switches that NICs are attached to.
struct Leaves {
    /// The switch of each NIC, by node.
    of: Vec<Vec<usize>>,
    /// Bytes per second of a NIC: the slowest.
    nic: f64,
    /// Bytes per second from each switch to others; infinite without such links.
    up: Vec<f64>,
}

impl Leaves {
    /// `None` where a node has no NICs on switches, or all NICs are on one switch.
    fn of(cluster: &Cluster, nodes: &BTreeMap<HostId, u32>, count: u32, nics: usize) -> Option<Leaves> {
        let graph = cluster.graph();
        let (mut of, mut nic) = (vec![Vec::new(); count as usize], f64::INFINITY);
        let mut numbers: BTreeMap<VertexId, usize> = BTreeMap::new();
        for index in graph.node_indices() {
            let vertex = &graph[index];
            let Some(node) = vertex.host.filter(|_| vertex.kind == VertexKind::Nic).and_then(|host| nodes.get(&host))
            else {
                continue;
            };
            let mut outward = graph.edges(index).map(|edge| cluster.link(*edge.weight())).filter(|link| network(link));
            if let Some(link) = outward.find(|link| is_switch(cluster, link.to)) {
                let next = numbers.len();
                of[*node as usize].push(*numbers.entry(link.to).or_insert(next));
                nic = nic.min(link.bandwidth.bytes_per_s());
            }
        }
        if numbers.len() < 2 || of.iter().any(Vec::is_empty) {
            return None;
        }
        // Of more NICs than are in use, evenly spaced ones.
        for all in &mut of {
            let used = nics.clamp(1, all.len());
            *all = (0..used).map(|index| all[index * all.len() / used]).collect();
        }
        let mut up = vec![f64::INFINITY; numbers.len()];
        for (leaf, number) in numbers {
            let links = graph.edges(NodeIndex::new(leaf.0 as usize)).map(|edge| cluster.link(*edge.weight()));
            let between = links.filter(|link| network(link) && is_switch(cluster, link.to));
            up[number] = between.map(|link| link.bandwidth.bytes_per_s()).sum();
        }
        Some(Leaves { of, nic, up })
    }

    /// Whether every switch has links to others for all of its NICs.
    fn carry_all(&self) -> bool {
        let mut attached = vec![0.0; self.up.len()];
        self.of.iter().flatten().for_each(|leaf| attached[*leaf] += self.nic);
        attached.iter().zip(&self.up).all(|(nics, up)| nics <= up)
    }

    /// The share of the NICs' rate of nodes that send like this.
    fn share(&self, flows: impl Iterator<Item = Flow>) -> f64 {
        let (nodes, switches) = (self.of.len(), self.up.len());
        let mut of_nodes = [vec![0.0f64; nodes], vec![0.0; nodes]];
        let mut of_switches = [vec![0.0f64; switches], vec![0.0; switches]];
        for Flow { from, to, part } in flows {
            of_nodes[0][from as usize] += part;
            of_nodes[1][to as usize] += part;
            for (leaving, entering) in self.of[from as usize].iter().zip(&self.of[to as usize]) {
                if leaving != entering {
                    of_switches[0][*leaving] += part;
                    of_switches[1][*entering] += part;
                }
            }
        }
        let nics = of_nodes.iter().flatten().fold(0.0, |most: f64, sent| most.max(sent / self.nic));
        let switches = of_switches.iter().flat_map(|way| way.iter().zip(&self.up));
        let switches = switches.fold(0.0, |most: f64, (sent, up)| most.max(if *sent > 0.0 { sent / up } else { 0.0 }));
        if switches > nics { nics / switches } else { 1.0 }
    }
}

fn network(link: &Link) -> bool {
    matches!(link.kind, LinkKind::Ethernet | LinkKind::InfiniBand)
}

fn is_switch(cluster: &Cluster, vertex: VertexId) -> bool {
    cluster.vertex(vertex).kind == VertexKind::Switch
}
