//! `Platform`: states where the ranks of a program run, and at what cost.

use lockstep_topology::cluster::{Device, DeviceId, DeviceKind};
use lockstep_topology::{Cluster, Hosting, InputError, Placement};

use crate::conditions::Conditions;
use crate::costs::Costs;

/// The network model of a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkModel {
    /// Every transfer has its route alone.
    AlphaBeta,
    /// Transfers share each wire max-min fair.
    #[default]
    MaxMin,
}

lockstep_topology::named!(NetworkModel, "network": AlphaBeta = "alpha-beta", MaxMin = "max-min");

/// A cluster with ranks on it.
#[derive(Clone, Copy)]
pub struct Platform<'a> {
    /// Devices and links.
    pub cluster: &'a Cluster,
    /// The device of each rank.
    pub placement: &'a Placement,
    /// The process of each rank.
    pub hosting: &'a Hosting,
    /// The costs of tasks and messages.
    pub costs: &'a dyn Costs,
    /// How transfers share links.
    pub network: NetworkModel,
    /// The disturbances of the run.
    pub conditions: &'a Conditions,
}

impl<'a> Platform<'a> {
    /// A platform without disturbances whose transfers share links.
    pub fn new(
        cluster: &'a Cluster,
        placement: &'a Placement,
        hosting: &'a Hosting,
        costs: &'a dyn Costs,
    ) -> Platform<'a> {
        let (network, conditions) = (NetworkModel::MaxMin, Conditions::none());
        Platform { cluster, placement, hosting, costs, network, conditions }
    }

    /// How many ranks compute on the cores that `device` computes on.
    pub(crate) fn ranks_beside(&self, device: DeviceId) -> u32 {
        let devices = self.cluster.devices();
        if !self.cluster.shares_cores() || !matches!(devices[device.0 as usize].kind, DeviceKind::Cpu(_)) {
            return self.placement.ranks_on(device);
        }
        let on_cpu = |device: &&Device| matches!(device.kind, DeviceKind::Cpu(_));
        devices.iter().filter(on_cpu).map(|device| self.placement.ranks_on(device.id)).sum()
    }

    /// Refuses a placement that leaves ranks out.
    pub(crate) fn check(&self, ranks: u32) -> Result<(), InputError> {
        if self.placement.ranks() < ranks {
            let message = format!("the placement has only {}; place every rank, servers too", self.placement.ranks());
            return Err(InputError::flag("ranks", ranks.to_string(), message));
        }
        Ok(())
    }
}
