//! `Way`: states how much of each wire on a route NCCL's copies reach, by the kind of the wire and by what the route
//! passes.
//!
//! Through a root complex GPUs write to the host's memory and read from there: GPUDirect and peer access end at PCIe
//! switches (`src/graph/paths.cc`). A GPU whose NICs are behind the CPU sends by NVLink to one that is near (PXN).

use petgraph::graph::NodeIndex;

use super::{Generation, pace};
use crate::cluster::{Cluster, Device, Link, LinkKind, Route, Sharing, VertexId, VertexKind};

/// A route between two GPUs as NCCL uses it, or another library.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    cluster: &'a Cluster,
    route: &'a Route,
    generation: Option<Generation>,
    /// The share of the line rate of PCI Express.
    pcie: f64,
}

impl<'a> Way<'a> {
    /// The way of `route` between two GPUs of `generation`; without one, copies reach all that links carry.
    pub(super) fn new(
        cluster: &'a Cluster,
        ends: [&Device; 2],
        route: &'a Route,
        generation: Option<Generation>,
    ) -> Way<'a> {
        let across = ends[0].host != ends[1].host;
        let through = |device: &Device| {
            let links = route.links.iter().map(|link| cluster.link(*link));
            // A coherent link to the CPU has no such limit.
            let by_pcie = links
                .clone()
                .any(|link| (link.from == device.vertex || link.to == device.vertex) && link.kind == LinkKind::Pcie);
            let inside = |vertex: &VertexId| cluster.vertex(*vertex).host == Some(device.host);
            by_pcie && links.map(|link| link.to).filter(inside).any(|vertex| is_root(cluster, vertex))
        };
        let pcie = match (ends.into_iter().any(through), across) {
            (false, _) => pace::PCIE_SHARE,
            (true, false) => pace::PCIE_THROUGH_HOST,
            (true, true) if ends.into_iter().filter(|end| through(end)).all(|end| has_near(cluster, end)) => {
                pace::PCIE_SHARE
            }
            (true, true) => pace::NIC_THROUGH_HOST,
        };
        Way { cluster, route, generation, pcie }
    }

    /// The share of the payload of a link that it reaches.
    pub(super) fn share(&self, link: &Link) -> f64 {
        let Some(generation) = self.generation else { return 1.0 };
        let [line, payload] = [link.bandwidth, link.payload()].map(crate::Bandwidth::bytes_per_s);
        // A share of the line rate, while headers leave the payload.
        match link.kind {
            LinkKind::NvLink => pace::ring_share(generation) * line / payload,
            LinkKind::Pcie => (self.pcie * line / payload).min(1.0),
            LinkKind::Ethernet | LinkKind::InfiniBand => pace::nic_share(generation),
            _ => 1.0,
        }
    }

    /// The wires that it shares with other transfers, each with the seconds that a byte takes there.
    pub(super) fn uses(&self) -> impl Iterator<Item = (&'a Link, f64)> {
        let shared = self.route.links.iter().map(|link| self.cluster.link(*link));
        let shared = shared.filter(|link| link.sharing == Sharing::Shared);
        shared.map(move |link| (link, 1.0 / (link.payload().bytes_per_s() * self.share(link))))
    }

    /// Whether it takes NVLinks alone; between GPUs that NCCL does not know, whether it is a link of their own.
    pub(super) fn is_nvlink(&self) -> bool {
        if self.generation.is_none() && self.route.links.len() == 1 {
            return true;
        }
        self.route.links.iter().all(|link| self.cluster.link(*link).kind == LinkKind::NvLink)
    }
}

/// Whether a vertex is a CPU or one of its root complexes.
fn is_root(cluster: &Cluster, vertex: VertexId) -> bool {
    let bridged = || {
        let mut links =
            cluster.graph().edges(NodeIndex::new(vertex.0 as usize)).map(|edge| cluster.link(*edge.weight()));
        links.any(|link| link.kind == LinkKind::HostBridge)
    };
    match cluster.vertex(vertex).kind {
        VertexKind::Cpu(_) => true,
        VertexKind::Switch => bridged(),
        VertexKind::Gpu(_) | VertexKind::Memory | VertexKind::Nic => false,
    }
}

/// Whether a GPU, or one that it reaches by NVLink in its host, has a NIC that no root complex separates from it.
fn has_near(cluster: &Cluster, device: &Device) -> bool {
    let mut seen = vec![device.vertex];
    let mut next = 0;
    while let Some(vertex) = seen.get(next).copied() {
        next += 1;
        let edges = cluster.graph().edges(NodeIndex::new(vertex.0 as usize));
        for link in edges.map(|edge| cluster.link(*edge.weight())) {
            let far = cluster.vertex(link.to);
            let bus = matches!(link.kind, LinkKind::Pcie | LinkKind::NvLink);
            if far.host != Some(device.host) || !bus || seen.contains(&link.to) {
                continue;
            }
            if far.kind == VertexKind::Nic {
                return true;
            }
            // From a switch to another GPU by PCI Express is not PXN's way.
            let by_peer = matches!(far.kind, VertexKind::Gpu(_)) && link.kind == LinkKind::Pcie;
            if far.kind != VertexKind::Memory && !by_peer && !is_root(cluster, link.to) {
                seen.push(link.to);
            }
        }
    }
    false
}
