//! Defines the rows of `lab up` and `lab list`.

use lockstep_lab::{LabParts, LabPlan};
use lockstep_report::Row;
use schemars::JsonSchema;
use serde::Serialize;

/// A row of `lab up`: one direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct CableRow {
    /// Where data enters: a NIC, a CPU or a switch of the cluster file.
    pub(super) from: String,
    /// Where it leaves.
    pub(super) to: String,
    /// The address of the host on the link; empty between switches.
    pub(super) address: String,
    /// The link's rate, headers included.
    #[serde(rename = "line_Mbitps")]
    pub(super) line_mbit_per_s: f64,
    /// What of it is payload by the link's protocol: what a stream gets.
    #[serde(rename = "payload_Mbitps")]
    pub(super) payload_mbit_per_s: f64,
    /// What the kernel's shaper is set to, which counts frames without preamble, checksum and gap.
    #[serde(rename = "shaped_Mbitps")]
    pub(super) shaped_mbit_per_s: f64,
    /// The latency of the cluster file, which the lab does not imitate.
    pub(super) file_latency_us: f64,
}

impl Row for CableRow {}

/// Both directions of each link.
pub(super) fn cable_rows(plan: &LabPlan) -> Vec<CableRow> {
    let directions = plan.cables.iter().flat_map(|cable| {
        let [one, other] = &cable.ends;
        [(cable, one, other), (cable, other, one)]
    });
    let row = |(cable, from, to): (&lockstep_lab::Cable, &lockstep_lab::End, &lockstep_lab::End)| CableRow {
        from: from.name.clone(),
        to: to.name.clone(),
        address: match from.place {
            lockstep_lab::LabNode::Host(host) => plan.hosts[host].address.to_string(),
            lockstep_lab::LabNode::Switch(_) => String::new(),
        },
        line_mbit_per_s: from.rate.line_bit_per_s * 1e-6,
        payload_mbit_per_s: from.rate.payload_bit_per_s() * 1e-6,
        shaped_mbit_per_s: from.rate.shaped_bit_per_s() as f64 * 1e-6,
        file_latency_us: cable.latency().as_secs_f64() * 1e6,
    };
    directions.map(row).collect()
}

/// A row of `lab list`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct LabRow {
    /// The lab's name.
    pub(super) name: String,
    /// `up`, or `leftover`: a command that made or removed it was killed.
    pub(super) status: String,
    /// The cluster that it is; empty for leftovers without a record.
    pub(super) cluster: String,
    /// Its hosts.
    pub(super) hosts: u32,
    /// The first address of its /24.
    pub(super) first_address: String,
    /// Network namespaces that there are of it.
    pub(super) namespaces: u32,
    /// Links that are cut or slowed.
    pub(super) changed: Vec<String>,
    /// What to do about a leftover.
    pub(super) cure: String,
}

impl Row for LabRow {}

impl LabRow {
    pub(super) fn of(found: &LabParts) -> LabRow {
        let plan = found.lab.as_ref().map(|lab| &lab.plan);
        let up = found.whole().is_some();
        let first = plan.and_then(|plan| plan.hosts.first());
        LabRow {
            name: found.name.to_string(),
            status: if up { "up" } else { "leftover" }.to_owned(),
            cluster: plan.map_or(String::new(), |plan| plan.cluster.clone()),
            hosts: plan.map_or(0, |plan| plan.hosts.len() as u32),
            first_address: first.map_or(String::new(), |host| host.address.to_string()),
            namespaces: found.namespaces.len() as u32,
            changed: found.lab.iter().flat_map(|lab| lab.changes.values().cloned()).collect(),
            cure: if up { String::new() } else { format!("lockstep lab down {}", found.name) },
        }
    }
}
