//! Finds rings in a cluster's own graph for GPUs that are linked with some of the others of their node: RCCL's on boards of
//! MI250X, by the search that `orders.rs` makes for NCCL.

use std::collections::{BTreeMap, BTreeSet};

use super::machine::RingOrder;
use super::paths::{self, Channel};
use crate::InputError;
use crate::cluster::{Cluster, Device, DeviceId, DeviceKind, HostId, VertexKind};

/// The rings of a group of GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkedRings {
    /// The members in the order of each channel, and the number of its flow between nodes.
    pub orders: Vec<RingOrder>,
    /// Bytes per second that each member sends round all rings together, in equal parts: by the narrowest cut of all
    /// channels at once.
    pub rate: f64,
}

impl LinkedRings {
    /// The rings of `devices`, a rank on each in this order. `None` where each GPU has a link of its own to each other one
    /// of its node, or they share a switch: then all orders are alike. `None` too for other devices than GPUs, ranks that
    /// share one, and nodes with unlike numbers of ranks.
    ///
    /// ```
    /// use lockstep_topology::{Cluster, nccl::LinkedRings};
    /// let cluster = Cluster::load("mi300x-8").unwrap();
    /// let gpus: Vec<_> = cluster.devices()[1..9].iter().map(|gpu| gpu.id).collect();
    /// assert_eq!(LinkedRings::of(&cluster, &gpus).unwrap(), None);
    /// ```
    ///
    /// # Errors
    /// GPUs that cannot reach each other.
    pub fn of(cluster: &Cluster, devices: &[DeviceId]) -> Result<Option<LinkedRings>, InputError> {
        let own: BTreeSet<DeviceId> = devices.iter().copied().collect();
        let mut nodes: BTreeMap<HostId, Vec<u32>> = BTreeMap::new();
        for (number, id) in (0..).zip(devices) {
            match cluster.device(*id) {
                Some(device) if matches!(device.kind, DeviceKind::Gpu(_)) => {
                    nodes.entry(device.host).or_default().push(number);
                }
                _ => return Ok(None),
            }
        }
        let nodes: Vec<Vec<u32>> = nodes.into_values().collect();
        let each = nodes.first().map_or(0, Vec::len);
        if own.len() < devices.len() || each < 3 || nodes.iter().any(|node| node.len() != each) {
            return Ok(None);
        }
        let gpus = |node: &Vec<u32>| -> Vec<&Device> {
            node.iter().map(|number| &cluster.devices()[devices[*number as usize].0 as usize]).collect()
        };
        let first = gpus(&nodes[0]);
        if is_complete(cluster, &first)? {
            return Ok(None);
        }
        let (inside, hops) = paths::inside(cluster, &first, None)?;
        let (rate, channels) = match nodes.get(1) {
            Some(second) => {
                let rings = (Some((&inside, &hops)), nodes.len() % 2 == 1);
                let (outside, channels) = paths::outside(cluster, [&first, &gpus(second)], rings, None)?;
                (outside.rate, channels)
            }
            None => (inside.rate, (0..inside.cycles.len()).map(Channel::inside).collect()),
        };
        let flows = channels.iter().map(|channel| channel.flow);
        let orders = paths::orders(&nodes, &inside.cycles, &channels).into_iter().zip(flows).collect();
        Ok(Some(LinkedRings { orders, rate }))
    }
}

/// Whether each two GPUs of a node have a link of their own, or a switch of such links between them.
fn is_complete(cluster: &Cluster, members: &[&Device]) -> Result<bool, InputError> {
    for (at, from) in members.iter().enumerate() {
        for to in &members[at + 1..] {
            let links = cluster.route(from.id, to.id)?.links;
            let passed = links[..links.len().saturating_sub(1)].iter().map(|link| cluster.link(*link));
            let mut kinds = passed.map(|link| (link.kind, cluster.vertex(link.to).kind));
            let by_switch = |(kind, vertex)| kind == crate::cluster::LinkKind::NvLink && vertex == VertexKind::Switch;
            if !kinds.all(by_switch) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
