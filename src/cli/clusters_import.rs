//! Runs `lockstep clusters import`: writes a cluster file from a machine's topology.

use std::path::PathBuf;

use clap::Args;
use lockstep_machines::{Import, Imported, import_machine};
use lockstep_topology::cluster::MOST_DEVICES;
use lockstep_topology::{DESCRIPTION, InputError, read_text};

use lockstep_report::failure::Failure;
use lockstep_report::output::{check_writable, write_atomically};
use lockstep_report::print;

/// Flags of `clusters import`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  NCCL_TOPO_DUMP_FILE=topo.xml python train.py
  lockstep clusters import topo.xml --output mine.toml
  nvidia-smi topo -m > topo.txt
  lockstep clusters import topo.txt --gpu h100-sxm --hosts 4 --network infiniband-ndr --output mine.toml")]
pub(super) struct ClustersImport {
    /// The XML that NCCL or RCCL writes to NCCL_TOPO_DUMP_FILE or that a cloud's vendor publishes, or the text that
    /// nvidia-smi topo -m, rocm-smi --showtopo or amd-smi topology prints
    file: PathBuf,
    /// Model of the GPUs (lockstep clusters gpus), instead of the one that has their PCI device or compute capability
    #[arg(long)]
    gpu: Option<String>,
    /// NICs that are in the network, such as mlx5_0,mlx5_1 or mlx5_*, or all; by default those that look like a fabric's
    #[arg(long)]
    nics: Option<String>,
    /// How many such hosts there are
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..=MOST_DEVICES))]
    hosts: u64,
    /// Network that joins all NICs, such as infiniband-hdr
    #[arg(long)]
    network: Option<String>,
    /// The cluster's name
    #[arg(long, default_value = "imported")]
    name: String,
    /// Where to write the cluster file, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl ClustersImport {
    pub(super) fn run(self) -> Result<(), Failure> {
        if let Some(output) = &self.output {
            check_writable("--output", output)?;
        }
        let file = self.file.display().to_string();
        let cure = "name a file that NCCL or nvidia-smi has written";
        let text = read_text(&self.file, DESCRIPTION)
            .map_err(|error| InputError::new("FILE", &file, error.with_cure(cure)))?;
        let import =
            Import { name: self.name, gpu: self.gpu, nics: self.nics, hosts: self.hosts, network: self.network };
        let Imported { toml, notes } = import_machine(&file, &text, &import)?;
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        match &self.output {
            Some(output) => Ok(write_atomically("--output", output, |file| file.write_all(toml.as_bytes()))?),
            None => print(&toml),
        }
    }
}
