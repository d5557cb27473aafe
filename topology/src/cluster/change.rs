//! Changes a cluster by degrading or removing some of its wires, for what-if questions about single links.

use super::names::matches;
use super::{Cluster, Device, LinkId, VertexKind};
use crate::document::nearest_or_all;
use crate::{Bandwidth, Time};
use petgraph::unionfind::UnionFind;
use petgraph::visit::EdgeRef;

/// A hint is chosen among at most this many names.
const HINTS: usize = 5_000;

impl Cluster {
    /// Whether `pattern` matches `name`, as in a cluster file: `node[0-15].gpu*`.
    pub fn matches(pattern: &str, name: &str) -> bool {
        matches(pattern, name)
    }

    /// The wires between things that match two patterns, in either order, one direction of each, by number; `*` alone
    /// matches any other end.
    ///
    /// # Errors
    /// A pattern that matches nothing, with the nearest names, or things that no wire joins.
    ///
    /// ```
    /// # use lockstep_topology::cluster::Cluster;
    /// let cluster = Cluster::load("ethernet-4").unwrap();
    /// assert_eq!(cluster.wires_between("node[1-2].eth0", "*").unwrap().len(), 2 * 2); // to the CPU and to the switch
    /// ```
    pub fn wires_between(&self, one: &str, other: &str) -> Result<Vec<LinkId>, String> {
        for pattern in [one, other].into_iter().filter(|pattern| *pattern != "*") {
            let linked = || self.graph.node_weights().filter(|vertex| vertex.kind != VertexKind::Memory);
            if !linked().any(|vertex| matches(pattern, &vertex.name)) {
                let names = || linked().map(|vertex| vertex.name.as_str());
                let hint = nearest_or_all(pattern, names().take(HINTS), || names().take(3).collect());
                return Err(format!("{pattern:?} matches nothing; did you mean {hint}?"));
            }
        }
        let is = |pattern: &str, name: &str| pattern == "*" || matches(pattern, name);
        let joins = |a: &str, b: &str| (is(one, a) && is(other, b)) || (is(one, b) && is(other, a));
        let memory = |id| self.vertex(id).kind == VertexKind::Memory;
        let found: Vec<LinkId> = (self.links.iter())
            .filter(|link| link.id < link.reverse && !memory(link.from) && !memory(link.to))
            .filter(|link| joins(&self.vertex(link.from).name, &self.vertex(link.to).name))
            .map(|link| link.id)
            .collect();
        if found.is_empty() { Err(format!("no link joins {one:?} and {other:?}")) } else { Ok(found) }
    }

    /// `node0.eth0 - switch`: the ends of a wire.
    ///
    /// # Panics
    /// When the id comes from another cluster.
    pub fn wire_name(&self, link: LinkId) -> String {
        let link = self.link(link);
        format!("{} - {}", self.vertex(link.from).name, self.vertex(link.to).name)
    }

    /// The cluster with both directions of these wires at `bandwidth` times their rate and with `latency` more.
    ///
    /// # Errors
    /// A factor that leaves no bandwidth.
    pub fn degraded(&self, wires: &[LinkId], bandwidth: f64, latency: Time) -> Result<Cluster, String> {
        let mut cluster = self.clone();
        for id in wires.iter().flat_map(|id| [*id, self.link(*id).reverse]) {
            let link = &mut cluster.links[id.0 as usize];
            let rate = Bandwidth::new(link.bandwidth.bytes_per_s() * bandwidth);
            link.bandwidth =
                rate.ok_or_else(|| format!("bandwidth = {bandwidth}: leaves {} nothing", self.wire_name(id)))?;
            link.latency += latency;
        }
        Ok(cluster)
    }

    /// The cluster without these wires: their traffic takes other routes.
    ///
    /// # Errors
    /// Two devices that can no longer reach each other.
    pub fn without(&self, wires: &[LinkId]) -> Result<Cluster, String> {
        let mut cluster = self.clone();
        cluster.failed.extend(wires.iter().flat_map(|id| [*id, self.link(*id).reverse]));
        cluster.failed.sort_unstable();
        cluster.failed.dedup();
        let failed = cluster.failed.clone();
        cluster
            .graph
            .retain_edges(|graph, edge| graph.edge_weight(edge).is_none_or(|id| failed.binary_search(id).is_err()));
        for fabric in &mut cluster.fabrics {
            fabric.fail(&failed);
        }
        match cluster.separated() {
            Some((first, apart)) => {
                Err(format!("without it {} and {} cannot reach each other", first.name, apart.name))
            }
            None => Ok(cluster),
        }
    }

    /// The first device that no wire connects to the first device, with that first device.
    pub(super) fn separated(&self) -> Option<(&Device, &Device)> {
        let mut joined: UnionFind<u32> = UnionFind::new(self.graph.node_count());
        let gpu = |index: usize| matches!(self.graph.raw_nodes()[index].weight.kind, VertexKind::Gpu(_));
        // GPUs pass nothing on, so a wire between two of them connects neither to the rest.
        for edge in self.graph.edge_references() {
            let [from, to] = [edge.source(), edge.target()].map(|node| node.index());
            if !(gpu(from) && gpu(to)) {
                joined.union(from as u32, to as u32);
            }
        }
        let first = self.devices.first()?;
        let apart = self.devices.iter().find(|device| !joined.equiv(first.vertex.0, device.vertex.0))?;
        Some((first, apart))
    }
}
