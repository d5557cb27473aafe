//! The platform: where the ranks of a program run, and by what they are priced.

use lockstep_topology::cluster::{Device, DeviceId, DeviceKind};
use lockstep_topology::{Cluster, Hosting, InputError, Placement};

use crate::conditions::Conditions;
use crate::costs::Costs;

/// Which network model a platform has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkModel {
    /// Every transfer has its route to itself.
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
    /// Which device each rank is on.
    pub placement: &'a Placement,
    /// Which process each rank is in.
    pub hosting: &'a Hosting,
    /// What tasks and messages cost.
    pub costs: &'a dyn Costs,
    /// How transfers share links.
    pub network: NetworkModel,
    /// What disturbs the run.
    pub conditions: &'a Conditions,
}

impl<'a> Platform<'a> {
    /// Ranks that nothing disturbs and whose transfers share links.
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
