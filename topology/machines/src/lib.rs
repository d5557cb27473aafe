//! Reads a machine's own report of its topology, NCCL's or RCCL's XML, the matrix of nvidia-smi, or the tables of rocm-smi
//! or amd-smi, and writes it as a cluster file; reads what nccl-tests measured on machines.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod gpu;
mod machine;
mod matrix;
mod matrix_groups;
mod matrix_links;
mod matrix_rows;
pub mod nccl_log;
mod nics;
mod pci_ids;
mod pcie;
mod relation;
mod rocm;
mod socket;
#[cfg(test)]
mod tests;
mod threads;
mod words;
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
    /// The GPUs' model in the catalogue; without it, by their PCI device or compute capability.
    pub gpu: Option<String>,
    /// The NICs that the network joins, by their names with commas between, or `all`; without it, those that look like
    /// a fabric's.
    pub nics: Option<String>,
    /// How many such hosts there are.
    pub hosts: u64,
    /// The network that joins their NICs, one of [`lockstep_topology::cluster::networks`].
    pub network: Option<String>,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The cluster file, in TOML.
    pub toml: String,
    /// What the file leaves open or has wrong, and what was assumed instead.
    pub notes: Vec<String>,
}

/// The cluster file of hosts whose topology is `text`, the content of `file`: the XML that NCCL or RCCL writes to
/// `NCCL_TOPO_DUMP_FILE` or a vendor publishes, or the output of `nvidia-smi topo -m`,
/// `rocm-smi --showtopo` or `amd-smi topology`.
///
/// # Errors
/// Text that is truncated, contradicts itself or has an impossible link or figure, with file, line and cure; a GPU that
/// the catalogue lacks, several hosts without a network, and a network faster than the NICs.
///
/// ```
/// # use lockstep_machines::{Import, import_machine};
/// let text = "      GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0  X    PHB  0-7          0\nGPU1  PHB  X    0-7          0\n";
/// let import = Import { name: "mine".into(), gpu: Some("t4".into()), nics: None, hosts: 1, network: None };
/// let toml = import_machine("topo.txt", text, &import).unwrap().toml;
/// assert_eq!(lockstep_topology::Cluster::parse("mine.toml", &toml).unwrap().devices().len(), 3);
/// ```
pub fn import_machine(file: &str, text: &str, import: &Import) -> Result<Imported, InputError> {
    let model = import.gpu.as_deref();
    let mut machine = match text {
        text if text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).starts_with('<') => {
            xml::read(file, text, model)?
        }
        text if rocm::is_its(text) => rocm::read(file, text, model)?,
        text => matrix::read(file, text, model)?,
    };
    if import.network.is_none() && import.hosts > 1 {
        let message = "is needed to join several hosts: name one, such as infiniband-hdr";
        return Err(InputError::flag("network", "", message));
    }
    if let (Some(network), true) = (&import.network, machine.nics.is_empty()) {
        return Err(InputError::flag("network", network, format!("{file} has no NIC to join: leave it out")));
    }
    nics::choose(&mut machine, import.nics.as_deref(), import.network.as_deref())?;
    if let (Some(network), true) = (&import.network, machine.nics.is_empty()) {
        let message = "has no NIC to join, since all are virtual: name those to join by --nics";
        return Err(InputError::flag("network", network, message));
    }
    note_links(&mut machine, import)?;
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
    Ok(Imported { toml, notes: machine.notes })
}

/// Notes links that the model has and the file has not.
fn note_links(machine: &mut Machine, import: &Import) -> Result<(), InputError> {
    let model = gpu::named(&machine.model)?;
    let is_board = model.name.contains("sxm") || gpu::has_switch(&model);
    if let (true, Some(lanes), false) = (is_board && machine.gpus > 1, model.spec.nvlink, machine.has_gpu_links()) {
        machine.notes.push(format!(
            "no GPU has an NVLink in it, and a {} has {}: its GPUs are joined by PCI Express alone (nvidia-smi topo -mp \
             leaves NVLinks out, -m has them)",
            model.name, lanes.count
        ));
    }
    if import.hosts > 1 && matches!(model.name.as_str(), "gb200" | "gb300") {
        machine.notes.push(format!(
            "NVLinks of {} also join trays of a rack, which this has not: --cluster {}-nvl72 is the whole rack",
            model.name, model.name
        ));
    }
    Ok(())
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
