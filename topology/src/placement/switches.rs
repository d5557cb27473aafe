//! Places the switches of an algorithm that sum in the network: next to the devices of the ranks that they join.

use std::collections::BTreeSet;
use std::fmt;

use petgraph::graph::NodeIndex;

use super::{Limits, Placement, PlacementRule, Rank};
use crate::InputError;
use crate::cluster::{Cluster, DeviceId, DeviceKind, VertexId, VertexKind};

/// Ranks that an error names.
const NAMED: usize = 4;

impl Placement {
    /// Adds switches after all ranks, one for each list of ranks in `joined`. Ranks of one host need a switch of that
    /// host which their devices are linked with; ranks of different hosts, a switch between hosts that a NIC of each
    /// host is cabled to. `algorithm` is the algorithm that sums in them, for errors.
    ///
    /// # Errors
    /// A cluster without switches that add, or ranks that none of them joins.
    ///
    /// ```
    /// # use lockstep_topology::{Cluster, Placement, PlacementRule, Rank};
    /// let cluster = Cluster::load("dgx-h100:2").unwrap();
    /// let gpus = Placement::new(&cluster, 16, &PlacementRule::Pack).unwrap();
    /// let nodes = [(0..8).collect(), (8..16).collect()];
    /// let all = gpus.and_switches(&cluster, &nodes, &"nvls-tree:2").unwrap();
    /// assert_eq!(all.ranks(), 18);
    /// let name = |rank| cluster.devices()[all.device(Rank(rank)).0 as usize].name.as_str();
    /// assert_eq!([name(15), name(16), name(17)], ["node1.gpu7", "node0.nvswitch", "node1.nvswitch"]);
    /// ```
    pub fn and_switches(
        self,
        cluster: &Cluster,
        joined: &[Vec<u32>],
        algorithm: &dyn fmt::Display,
    ) -> Result<Placement, InputError> {
        if joined.is_empty() {
            return Ok(self);
        }
        let ranks = self.devices.len();
        if let Some(nodes) = joined.iter().position(Vec::is_empty) {
            let message = format!(
                "leaves nodes without a rank: {ranks} ranks fill {nodes} nodes at most, so use fewer or more ranks"
            );
            return Err(InputError::flag("algorithm", algorithm.to_string(), message));
        }
        let mut devices = self.devices.clone();
        for (position, of_switch) in joined.iter().enumerate() {
            let hosts: BTreeSet<u32> = of_switch.iter().map(|rank| self.host(Rank(*rank)).0).collect();
            let between = hosts.len() > 1 && hosts.len() == of_switch.len();
            let Some(switch) = self.joining(cluster, of_switch, position).filter(|_| between || hosts.len() == 1)
            else {
                let message = refusal(cluster, of_switch, between);
                return Err(InputError::flag("algorithm", algorithm.to_string(), message));
            };
            devices.push(switch);
        }
        let shared = devices[ranks..].iter().map(|one| devices[ranks..].iter().filter(|other| *other == one).count());
        let most = shared.max().unwrap_or(0) as u32;
        let most = self.loads.iter().copied().max().unwrap_or(0).max(most);
        let limits = Limits { ranks_per_core: most, ranks_per_gpu: most, ..Limits::default() };
        Placement::within(cluster, devices.len() as u32, &PlacementRule::Listed(devices), limits)
    }

    /// The switch that adds and joins these ranks' devices, the nearest to the first; of several that are equally near,
    /// each `position` takes the next one.
    fn joining(&self, cluster: &Cluster, ranks: &[u32], position: usize) -> Option<DeviceId> {
        let reached = |rank: u32| reached(cluster, self.device(Rank(rank)));
        let mut common = reached(*ranks.first()?);
        for rank in &ranks[1..] {
            let by_rank = reached(*rank);
            common.retain(|(_, switch)| by_rank.iter().any(|(_, other)| other == switch));
        }
        let nearest = common.first()?.0;
        common.retain(|(links, _)| *links == nearest);
        Some(common[position % common.len()].1)
    }
}

/// Why no switch joins `ranks`, and the cure.
fn refusal(cluster: &Cluster, ranks: &[u32], between: bool) -> String {
    let hosts = cluster.hosts().len() as u32;
    let adds = cluster.devices().iter().rev().take_while(|device| matches!(device.kind, DeviceKind::Switch(_)));
    let adds = adds.filter(|device| (device.host.0 == hosts) == between).count() > 0;
    let name = cluster.name();
    let (first, last) = (ranks.first().copied().unwrap_or(0), ranks.last().copied().unwrap_or(0));
    match (between, adds) {
        (false, false) => format!(
            "adds in the switches of nodes, and none of cluster {name} adds: use ring, or a cluster whose NVSwitch does, such as dgx-h100 \
             (sums of a [[host.switch]] says so)"
        ),
        (false, true) => format!(
            "has nodes of {} ranks, and no switch that adds joins ranks {first} to {last}: use as many nodes as hosts that ranks fill evenly, \
             or ring",
            ranks.len()
        ),
        (true, false) => format!(
            "adds in switches between nodes, and none of cluster {name} adds: use ring, or a network whose switches do, such as \
             infiniband-ndr (sums of a [[fabric]] says so)"
        ),
        (true, true) => {
            let shown: Vec<String> = ranks.iter().take(NAMED).map(u32::to_string).collect();
            let more = if ranks.len() > NAMED { ", …" } else { "" };
            format!(
                "no switch that adds is cabled to a NIC beside each of the ranks {}{more}: use a network of rails, fewer nodes, or ring",
                shown.join(", ")
            )
        }
    }
}

/// The switches that add and that data of a device reaches through its host alone, nearest first, each with the
/// number of links.
fn reached(cluster: &Cluster, device: DeviceId) -> Vec<(u32, DeviceId)> {
    let Some(device) = cluster.device(device) else { return Vec::new() };
    let passes = |vertex: &VertexId| {
        let of = cluster.vertex(*vertex);
        of.host == Some(device.host) && matches!(of.kind, VertexKind::Switch | VertexKind::Nic | VertexKind::Cpu(_))
    };
    let (mut seen, mut frontier) = (BTreeSet::from([device.vertex]), vec![device.vertex]);
    let mut found = Vec::new();
    for links in 1.. {
        let beside = |at: &VertexId| cluster.graph().neighbors(NodeIndex::new(at.0 as usize));
        let next = frontier.iter().flat_map(beside).map(|vertex| VertexId(vertex.index() as u32));
        let next: BTreeSet<VertexId> = next.filter(|vertex| seen.insert(*vertex)).collect();
        if next.is_empty() {
            break;
        }
        found.extend(next.iter().filter_map(|vertex| cluster.adding_at(*vertex)).map(|switch| (links, switch)));
        frontier = next.into_iter().filter(passes).collect();
    }
    found
}
