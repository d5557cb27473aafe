//! `Levels`: arranges the ranks of a placement as a tree of equal blocks whose siblings may be swapped.
//!
//! Four GPUs behind one bridge, 32 hosts on a leaf switch and 16 leaves on a core give 1, 4, 128, 2048: any two GPUs of
//! a host, any two hosts of a leaf and any two leaves can be swapped, each with everything below it.

use super::layers::{Layer, LayerIndex, Layers, NONE};
use super::permutations::Permutations;
use crate::cluster::{Cluster, DeviceId, LinkId, VertexId};
use crate::{Placement, Rank};

/// The declared symmetry of ranks on a cluster.
#[derive(Debug, Clone)]
pub struct Levels {
    ranks: u32,
    /// Ranks of a block, level by level: each divides the next, and the last is all ranks. Empty without symmetry.
    sizes: Vec<u32>,
    /// Ranks that must move together for routes to move with them.
    grain: u32,
    layers: Vec<Layer>,
    places: Vec<LayerIndex>,
}

impl Levels {
    /// The symmetry of the ranks of `placement`, which must fill equal devices (or equal hosts) evenly and in order;
    /// found by comparing everything, in a time that is linear in the size of the cluster.
    ///
    /// ```
    /// # use lockstep_topology::{Cluster, Levels, Placement, PlacementRule};
    /// let cluster = Cluster::load("ethernet-gpu-8").unwrap();
    /// let placement = Placement::new(&cluster, 32, &PlacementRule::Pack).unwrap();
    /// assert_eq!(Levels::of(&cluster, &placement).sizes(), [1, 4, 32]);
    /// ```
    pub fn of(cluster: &Cluster, placement: &Placement) -> Levels {
        let ranks = placement.ranks();
        let (hosts, alike) = cluster.grain().unwrap_or((0, false));
        let found = if hosts == 0 {
            None
        } else {
            alike.then(|| by_device(cluster, placement)).flatten().or_else(|| by_host(cluster, placement))
        };
        // A grain of hosts is one of ranks where hosts are filled evenly and in order, as they are where levels exist.
        let host = placement.all().take_while(|rank| placement.host(*rank) == placement.host(Rank(0))).count() as u32;
        let grain = if hosts > 1 { hosts.saturating_mul(host) } else { 1 };
        let (sizes, layers, places) = found.unwrap_or_default();
        Levels { ranks, sizes, grain, layers, places }
    }

    /// Ranks of a block, level by level: each divides the next, and the last is all ranks. Empty where there is no such
    /// symmetry.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// The permutations of `group`, which acts on all ranks, that the levels allow.
    pub fn allowed(&self, group: Permutations) -> Permutations {
        let Some((all, below)) = self.sizes.split_last() else { return Permutations::Identity };
        match group {
            Permutations::Identity | Permutations::Grid { .. } => Permutations::Identity,
            // Whole siblings of the highest level may rotate; anything less would move part of one into another.
            Permutations::Rotations { .. } => {
                let unit = below.last().copied().unwrap_or(*all);
                let whole = group.common(Permutations::Rotations { unit }, self.ranks);
                whole.common(Permutations::Rotations { unit: self.grain }, self.ranks)
            }
            Permutations::Masks { unit } => {
                let mut unit = unit;
                while unit < *all && !(self.masked(unit) && unit.is_multiple_of(self.grain)) {
                    unit = unit.saturating_mul(2);
                }
                if unit < *all { Permutations::Masks { unit } } else { Permutations::Identity }
            }
        }
    }

    /// Whether blocks of `unit` ranks may be XORed: they are whole siblings, and each level above doubles them.
    fn masked(&self, unit: u32) -> bool {
        let whole = self.sizes.iter().rev().find(|size| **size <= unit).is_some_and(|size| unit.is_multiple_of(*size));
        let mut above = self.sizes.iter().filter(|size| **size > unit);
        whole && above.all(|size| size.is_multiple_of(unit) && (size / unit).is_power_of_two())
    }

    /// Ranks of the smallest block that a vertex belongs to, all of them where it belongs to none.
    pub(super) fn block(&self, vertex: VertexId) -> u32 {
        match self.layers.get(self.places[vertex.0 as usize].layer as usize) {
            Some(layer) => layer.size,
            None => self.ranks,
        }
    }

    /// The image of a vertex in the first `unit` ranks, under a group of that unit.
    pub(super) fn canonical(&self, vertex: VertexId, unit: u32) -> VertexId {
        let place = self.places[vertex.0 as usize];
        if place.layer == NONE {
            return vertex;
        }
        let layer = &self.layers[place.layer as usize];
        let block = place.index / layer.stride % (unit / layer.size).max(1);
        layer.vertices[(block * layer.stride + place.index % layer.stride) as usize]
    }

    /// The image of a link in the first `unit` ranks, and the number of ranks in the block that contains it.
    pub(super) fn link(&self, cluster: &Cluster, id: LinkId, unit: u32) -> (LinkId, u32) {
        use petgraph::graph::NodeIndex;
        let link = cluster.link(id);
        let size = self.block(link.from).min(self.block(link.to));
        let node = |vertex: VertexId| NodeIndex::new(vertex.0 as usize);
        let (from, to) = (node(link.from), node(link.to));
        let (image_from, image_to) = (node(self.canonical(link.from, unit)), node(self.canonical(link.to, unit)));
        if (from, to) == (image_from, image_to) {
            return (id, size);
        }
        // Of parallel links the n-th goes to the n-th.
        let before = cluster.graph().edges_connecting(from, to).filter(|edge| *edge.weight() < id).count();
        let mut images: Vec<LinkId> =
            cluster.graph().edges_connecting(image_from, image_to).map(|edge| *edge.weight()).collect();
        images.sort_unstable();
        (images.get(before).copied().unwrap_or(id), size)
    }
}

type RankLevels = (Vec<u32>, Vec<Layer>, Vec<LayerIndex>);

/// Levels that start at devices with the same number of ranks each.
fn by_device(cluster: &Cluster, placement: &Placement) -> Option<RankLevels> {
    let device = |rank: u32| placement.device(Rank(rank));
    let load = placement.ranks_on(device(0));
    let firsts: Vec<DeviceId> = (0..placement.ranks()).step_by(load as usize).map(device).collect();
    let even = placement.all().all(|rank| placement.device(rank) == firsts[(rank.0 / load) as usize])
        && firsts.len() as u32 * load == placement.ranks();
    if !even {
        return None;
    }
    let vertices = firsts.iter().map(|id| cluster.devices()[id.0 as usize].vertex).collect();
    let sizes = if load > 1 { vec![1, load] } else { vec![1] };
    peel(Layers::new(cluster, load, 1, vertices)?, sizes)
}

/// Levels that start at hosts with the same ranks each, whose ranks keep their order.
fn by_host(cluster: &Cluster, placement: &Placement) -> Option<RankLevels> {
    let ranks: Vec<Rank> = placement.all().collect();
    let sizes = placement.node_sizes(&ranks);
    let size = sizes[0];
    if sizes.iter().any(|other| *other != size) {
        return None;
    }
    let mut vertices = Vec::new();
    let mut stride = 0;
    for first in ranks.iter().step_by(size as usize) {
        let host = cluster.hosts().get(placement.host(*first).0 as usize)?;
        // A host's vertices are numbered in one go, its CPU first.
        let start = cluster.devices()[host.devices[0].0 as usize].vertex.0;
        let within = (start..cluster.graph().node_count() as u32).map(VertexId);
        let before = vertices.len();
        vertices.extend(within.take_while(|vertex| cluster.vertex(*vertex).host == Some(host.id)));
        let own = vertices.len() - before;
        if *first == Rank(0) {
            stride = own;
        }
        let on_same = (0..size).all(|rank| {
            let local =
                |rank: u32, base: u32| cluster.devices()[placement.device(Rank(rank)).0 as usize].vertex.0 - base;
            local(first.0 + rank, start) == local(rank, vertices[0].0)
        });
        if own != stride || !on_same {
            return None;
        }
    }
    peel(Layers::new(cluster, size, stride as u32, vertices)?, vec![size])
}

/// Peels to the end; `None` if that is not all ranks.
fn peel(mut layers: Layers<'_>, mut sizes: Vec<u32>) -> Option<RankLevels> {
    layers.peel(&mut sizes).then_some((sizes, layers.layers, layers.places))
}
