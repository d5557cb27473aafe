//! Reads a machine's own report of its topology, NCCL's XML or nvidia-smi's matrix, and writes it as a cluster file.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod gpu;
mod machine;
mod matrix;
mod matrix_links;
mod pcie;
mod relation;
mod socket;
#[cfg(test)]
mod tests;
mod write;
mod xml;

use lockstep_topology::cluster::VertexKind;
use lockstep_topology::{Cluster, InputError};

use machine::Machine;

/// Settings that are not in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The cluster's name.
    pub name: String,
    /// The GPUs' model in the catalogue; without it, by their compute capability.
    pub gpu: Option<String>,
    /// How many such hosts there are.
    pub hosts: u64,
    /// The network that joins their NICs, one of [`lockstep_topology::cluster::networks`].
    pub network: Option<String>,
}

/// The cluster file, in TOML, of hosts whose topology is `text`, the content of `file`: the XML that NCCL writes to
/// `NCCL_TOPO_DUMP_FILE`, or the output of `nvidia-smi topo -m`.
///
/// # Errors
/// Text that is truncated, contradicts itself or has an impossible link or figure, with file, line and cure; a GPU that
/// the catalogue lacks, several hosts without a network, and a network faster than a NIC.
///
/// ```
/// # use lockstep_machines::{Import, import_machine};
/// let text = "      GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0  X    PHB  0-7          0\nGPU1  PHB  X    0-7          0\n";
/// let import = Import { name: "mine".into(), gpu: Some("t4".into()), hosts: 1, network: None };
/// let toml = import_machine("topo.txt", text, &import).unwrap();
/// assert_eq!(lockstep_topology::Cluster::parse("mine.toml", &toml).unwrap().devices().len(), 3);
/// ```
pub fn import_machine(file: &str, text: &str, import: &Import) -> Result<String, InputError> {
    let machine = match text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).starts_with('<') {
        true => xml::read(file, text, import.gpu.as_deref())?,
        false => matrix::read(file, text, import.gpu.as_deref())?,
    };
    if import.network.is_none() && import.hosts > 1 {
        let message = "is needed to join several hosts: name one, such as infiniband-hdr";
        return Err(InputError::flag("network", "", message));
    }
    if let (Some(network), true) = (&import.network, machine.nics.is_empty()) {
        return Err(InputError::flag("network", network, format!("{file} has no NIC to join: leave it out")));
    }
    let toml = write::toml(&machine, import);
    // What a reader accepts must be a cluster, with two hosts too.
    let parse = |text: &str| {
        let wrong =
            |error: InputError| InputError::new(file, error.value, format!("is not a cluster: {}", error.message));
        Cluster::parse(file, text).map_err(wrong)
    };
    parse(&toml)?;
    if let Some(network) = &import.network {
        let two = parse(&write::toml(&machine, &Import { hosts: 2, ..import.clone() }))?;
        check_speeds(&machine, &two, network)?;
    }
    Ok(toml)
}

/// Refuses a network that is faster than a NIC.
fn check_speeds(machine: &Machine, two: &Cluster, network: &str) -> Result<(), InputError> {
    for link in two.links() {
        let (from, to) = (two.vertex(link.from), two.vertex(link.to));
        if from.kind != VertexKind::Nic || to.host.is_some() {
            continue;
        }
        let nic = machine.nics.iter().find(|nic| from.name.split_once('.').is_some_and(|(_, name)| name == nic.name));
        let Some((nic, gbit)) = nic.and_then(|nic| Some((nic, nic.gbit_per_s?))) else { continue };
        let wire = link.bandwidth.bytes_per_s() * 8e-9;
        // FDR and similar kinds state rounded rates.
        if wire > gbit * 1.01 {
            let message = format!("has {wire} Gbit/s, but the NIC {} only {gbit}: name a slower network", nic.name);
            return Err(InputError::flag("network", network, message));
        }
    }
    Ok(())
}
