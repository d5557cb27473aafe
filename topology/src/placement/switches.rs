//! Where the switches of an algorithm are that sum in the network: beside the ranks of their nodes.

use std::fmt;

use petgraph::graph::NodeIndex;

use super::{Limits, Placement, PlacementRule, Rank};
use crate::InputError;
use crate::cluster::{Cluster, DeviceId, DeviceKind};

impl Placement {
    /// With this number of `switches` that add behind all ranks, which are shared out among them in order: each is the switch that its ranks'
    /// devices are linked with. `algorithm` is what adds in them, for errors.
    ///
    /// # Errors
    /// A cluster without switches that add, or ranks of one node that no such switch joins.
    ///
    /// ```
    /// # use lockstep_topology::{Cluster, Placement, PlacementRule, Rank};
    /// let cluster = Cluster::load("dgx-h100:2").unwrap();
    /// let gpus = Placement::new(&cluster, 16, &PlacementRule::Pack).unwrap();
    /// let all = gpus.and_switches(&cluster, 2, &"nvls-tree:2").unwrap();
    /// assert_eq!(all.ranks(), 18);
    /// let name = |rank| cluster.devices()[all.device(Rank(rank)).0 as usize].name.as_str();
    /// assert_eq!([name(15), name(16), name(17)], ["node1.gpu7", "node0.nvswitch", "node1.nvswitch"]);
    /// ```
    pub fn and_switches(
        self,
        cluster: &Cluster,
        switches: u32,
        algorithm: &dyn fmt::Display,
    ) -> Result<Placement, InputError> {
        let ranks = self.ranks();
        if switches == 0 {
            return Ok(self);
        }
        let wrong = |message: String| Err(InputError::flag("algorithm", algorithm.to_string(), message));
        if !cluster.devices().iter().any(adds) {
            return wrong(format!(
                "adds in the switches of nodes, and none of cluster {} adds: take ring, or a cluster whose NVSwitch does, such as \
                 dgx-h100 (sums of a [[host.switch]] says so)",
                cluster.name()
            ));
        }
        let mut devices = self.devices.clone();
        for node in 0..switches {
            // The first nodes have a rank more.
            let start = |node: u32| ranks / switches * node + node.min(ranks % switches);
            let own = start(node)..start(node + 1);
            let Some(switch) = self.joining(cluster, own.clone()) else {
                return wrong(format!(
                    "has nodes of {} ranks, and no switch that adds joins ranks {} to {}: take as many nodes as hosts that ranks fill \
                     evenly, or ring",
                    own.end - own.start,
                    own.start,
                    own.end.saturating_sub(1)
                ));
            };
            devices.push(switch);
        }
        let most = self.loads.iter().copied().max().unwrap_or(0);
        let limits = Limits { ranks_per_core: most, ranks_per_gpu: most, ..Limits::default() };
        let total = ranks.saturating_add(switches);
        Placement::within(cluster, total, &PlacementRule::Listed(devices), limits)
    }

    /// The switch that adds and is linked with the device of each of these ranks.
    fn joining(&self, cluster: &Cluster, ranks: std::ops::Range<u32>) -> Option<DeviceId> {
        let first = cluster.device(self.device(Rank(ranks.clone().next()?)))?;
        let graph = cluster.graph();
        let linked = |device: DeviceId, vertex: crate::cluster::VertexId| {
            let of = &cluster.devices()[device.0 as usize];
            graph.contains_edge(NodeIndex::new(of.vertex.0 as usize), NodeIndex::new(vertex.0 as usize))
        };
        let near = cluster.devices().iter().rev().take_while(|device| adds(device)).filter(|of| of.host == first.host);
        let mut joins = near.filter(|switch| ranks.clone().all(|rank| linked(self.device(Rank(rank)), switch.vertex)));
        joins.next().map(|switch| switch.id)
    }
}

/// Whether a device is a switch that adds; they are the last devices of a cluster.
fn adds(device: &crate::cluster::Device) -> bool {
    matches!(device.kind, DeviceKind::Switch(_))
}
