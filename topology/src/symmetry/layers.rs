//! `Layers`: groups a cluster's vertices into equal items, from the ranks' devices outwards.
//!
//! Items start as devices (or whole hosts). A vertex that touches one item alone joins it: a host's bridge joins its
//! GPUs, a leaf switch its hosts. Neighbouring items whose links lead to the same vertices are interchangeable and
//! become one larger item. All items are compared link by link with the first, which proves that swapping two of them
//! leaves the cluster unchanged. Every link is looked at a few times: linear in the cluster.

use std::sync::Arc;

use petgraph::visit::EdgeRef;

use crate::Time;
use crate::cluster::{Cluster, DeviceKind, LinkKind, Protocol, Sharing, VertexId, VertexKind};

pub(super) const NONE: u32 = u32::MAX;

/// Vertices that joined the items together.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// Ranks of an item at that time.
    pub(super) size: u32,
    /// Vertices per item.
    pub(super) stride: u32,
    /// Item by item, in each by number.
    pub(super) vertices: Vec<VertexId>,
}

/// The position of a vertex: a layer and an index into it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayerIndex {
    pub(super) layer: u32,
    pub(super) index: u32,
}

/// Items being peeled.
pub(super) struct Layers<'c> {
    cluster: &'c Cluster,
    pub(super) layers: Vec<Layer>,
    pub(super) places: Vec<LayerIndex>,
    /// Ranks of an item, and how many items there are.
    pub(super) size: u32,
    pub(super) items: u32,
    /// Vertices in items with links that lead out of them, with their items, item by item.
    open: Vec<(u32, VertexId)>,
    /// By link: which of the different protocols it has.
    protocols: Vec<u32>,
}

/// The properties of a link that an interchange must keep.
type Wire = (LinkKind, Time, u64, bool, bool, u32);

impl<'c> Layers<'c> {
    /// Items of `size` ranks each with these vertices, `stride` per item; `None` if they are not equal.
    pub(super) fn new(cluster: &'c Cluster, size: u32, stride: u32, vertices: Vec<VertexId>) -> Option<Layers<'c>> {
        let nowhere = LayerIndex { layer: NONE, index: 0 };
        let items = vertices.len() as u32 / stride.max(1);
        let places = vec![nowhere; cluster.graph().node_count()];
        let mut layers = Layers {
            cluster,
            layers: Vec::new(),
            places,
            size,
            items,
            open: Vec::new(),
            protocols: protocols(cluster),
        };
        layers.add(stride, vertices).then_some(layers)
    }

    /// Peels until all ranks are in one item, noting each size; whether that was reached.
    pub(super) fn peel(&mut self, sizes: &mut Vec<u32>) -> bool {
        while self.items > 1 {
            let joining = self.joining();
            if !joining.is_empty() {
                let stride = joining.len() as u32 / self.items;
                let even = joining.len() as u32 == stride * self.items
                    && (0..).zip(&joining).all(|(at, (item, _))| at / stride == *item);
                if !even || !self.add(stride, joining.into_iter().map(|(_, vertex)| vertex).collect()) {
                    return false;
                }
                continue;
            }
            let run = self.run();
            if run < 2 {
                return false;
            }
            self.size *= run;
            self.items /= run;
            sizes.push(self.size);
            self.open.iter_mut().for_each(|(item, _)| *item /= run);
        }
        true
    }

    /// The item of a vertex, [`NONE`] if it is in none.
    fn item(&self, vertex: VertexId) -> u32 {
        let place = self.places[vertex.0 as usize];
        match self.layers.get(place.layer as usize) {
            Some(layer) => place.index / (self.size / layer.size * layer.stride),
            None => NONE,
        }
    }

    /// The position of a vertex within its item.
    fn within(&self, vertex: VertexId) -> (u32, u32) {
        let place = self.places[vertex.0 as usize];
        let layer = &self.layers[place.layer as usize];
        (place.layer, place.index % (self.size / layer.size * layer.stride))
    }

    /// The vertices in no item that touch exactly one, by item and number.
    fn joining(&self) -> Vec<(u32, VertexId)> {
        const SHARED: u32 = NONE - 1;
        let mut owner = vec![NONE; self.places.len()];
        let mut touched = Vec::new();
        for (item, vertex) in &self.open {
            for edge in self.cluster.graph().edges(node(*vertex)) {
                let far = VertexId(edge.target().index() as u32);
                if self.item(far) == NONE {
                    let known = &mut owner[far.0 as usize];
                    if *known == NONE {
                        touched.push(far);
                        *known = *item;
                    } else if *known != *item {
                        *known = SHARED;
                    }
                }
            }
        }
        let mut joining: Vec<(u32, VertexId)> =
            touched.into_iter().map(|far| (owner[far.0 as usize], far)).filter(|(item, _)| *item != SHARED).collect();
        joining.sort_unstable();
        joining
    }

    /// Adds a layer; returns whether all items are still equal.
    fn add(&mut self, stride: u32, vertices: Vec<VertexId>) -> bool {
        let layer = self.layers.len() as u32;
        for (index, vertex) in (0..).zip(&vertices) {
            if self.places[vertex.0 as usize].layer != NONE {
                return false;
            }
            self.places[vertex.0 as usize] = LayerIndex { layer, index };
        }
        self.layers.push(Layer { size: self.size, stride, vertices });
        let vertices = &self.layers[layer as usize].vertices;
        let mut shown = Vec::new();
        for place in 0..stride as usize {
            let first = self.view(vertices[place], 0);
            for item in 1..self.items {
                let vertex = vertices[item as usize * stride as usize + place];
                if !self.alike(vertices[place], vertex, item) || !self.shows(vertex, item, &first, &mut shown) {
                    return false;
                }
            }
        }
        let mut open = std::mem::take(&mut self.open);
        open.extend((0..).zip(vertices).map(|(at, vertex)| (at / stride, *vertex)));
        open.retain(|(item, vertex)| {
            let mut far = self.cluster.graph().edges(node(*vertex)).map(|edge| VertexId(edge.target().index() as u32));
            far.any(|far| self.item(far) != *item)
        });
        open.sort_by_key(|(item, vertex)| (*item, self.within(*vertex)));
        self.open = open;
        true
    }

    /// Whether a vertex equals its counterpart in the first item.
    fn alike(&self, first: VertexId, other: VertexId, item: u32) -> bool {
        let (a, b) = (self.cluster.vertex(first), self.cluster.vertex(other));
        let devices = |a: crate::cluster::DeviceId, b: crate::cluster::DeviceId| {
            let [a, b] = [a, b].map(|id| &self.cluster.devices()[id.0 as usize].kind);
            match (a, b) {
                (DeviceKind::Gpu(a), DeviceKind::Gpu(b)) if Arc::ptr_eq(a, b) => true,
                _ => a == b,
            }
        };
        let kinds = match (a.kind, b.kind) {
            (VertexKind::Cpu(a), VertexKind::Cpu(b)) | (VertexKind::Gpu(a), VertexKind::Gpu(b)) => devices(a, b),
            (a, b) => a == b,
        };
        // Hosts keep their order inside an item, so that the same vertices are of one host.
        let host = |vertex: &crate::cluster::Vertex, item: u32| {
            let start = item as usize * (self.layers[0].stride * (self.size / self.layers[0].size)) as usize;
            let origin = self.cluster.vertex(self.layers[0].vertices[start]).host;
            vertex.host.zip(origin).map(|(host, origin)| i64::from(host.0) - i64::from(origin.0))
        };
        kinds && host(a, 0) == host(b, item)
    }

    /// The links of a vertex that stay in its item: where in it they lead, and their properties.
    fn view(&self, vertex: VertexId, item: u32) -> Vec<((u32, u32), Wire)> {
        let mut view = Vec::new();
        self.shows(vertex, item, &[], &mut view);
        view
    }

    /// Fills `view` with the links of a vertex that stay in its item; returns whether they equal those of `first`.
    fn shows(
        &self,
        vertex: VertexId,
        item: u32,
        first: &[((u32, u32), Wire)],
        view: &mut Vec<((u32, u32), Wire)>,
    ) -> bool {
        view.clear();
        for edge in self.cluster.graph().edges(node(vertex)) {
            let far = VertexId(edge.target().index() as u32);
            if self.item(far) == item {
                view.push((self.within(far), self.wire(*edge.weight())));
            }
        }
        view.sort_unstable();
        view.as_slice() == first
    }

    fn wire(&self, id: crate::cluster::LinkId) -> Wire {
        let link = self.cluster.link(id);
        let half = link.reverse != id && self.cluster.link(link.reverse).wire == link.wire;
        let bandwidth = link.bandwidth.bytes_per_s().to_bits();
        (link.kind, link.latency, bandwidth, link.sharing == Sharing::Shared, half, self.protocols[id.0 as usize])
    }

    /// How many neighbouring items each have the same links to the same vertices outside; 0 where runs
    /// differ in length.
    fn run(&self) -> u32 {
        let mut runs: Vec<u32> = Vec::new();
        let (mut before, mut links) = (Vec::new(), Vec::new());
        let mut rest = self.open.as_slice();
        for item in 0..self.items {
            let count = rest.iter().take_while(|(other, _)| *other == item).count();
            let (own, after) = rest.split_at(count);
            rest = after;
            links.clear();
            for (_, vertex) in own {
                for edge in self.cluster.graph().edges(node(*vertex)) {
                    let far = VertexId(edge.target().index() as u32);
                    if self.item(far) != item {
                        links.push((self.within(*vertex), far, self.wire(*edge.weight())));
                    }
                }
            }
            links.sort_unstable();
            match runs.last_mut() {
                Some(run) if links == before => *run += 1,
                _ => runs.push(1),
            }
            std::mem::swap(&mut before, &mut links);
        }
        let first = runs.first().copied().unwrap_or(0);
        if runs.iter().all(|run| *run == first) { first } else { 0 }
    }
}

fn node(vertex: VertexId) -> petgraph::graph::NodeIndex {
    petgraph::graph::NodeIndex::new(vertex.0 as usize)
}

/// Numbers for the different protocols of links, by link.
fn protocols(cluster: &Cluster) -> Vec<u32> {
    let mut known: Vec<&Arc<Protocol>> = Vec::new();
    let mut of_link = Vec::with_capacity(cluster.links().len());
    for link in cluster.links() {
        let own = &link.protocol;
        let at = known.iter().position(|other| Arc::ptr_eq(other, own));
        let at = at.or_else(|| known.iter().position(|other| *other == own)).unwrap_or_else(|| {
            known.push(own);
            known.len() - 1
        });
        of_link.push(at as u32);
    }
    of_link
}
