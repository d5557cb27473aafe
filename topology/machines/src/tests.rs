//! Tests the readers: their output is a cluster with the devices and links of the file, and invalid files are refused.

mod bad_matrix;
mod bad_xml;
mod cures;
mod links;
mod matrices;
mod matrix_text;
mod nics;
mod rocm;
mod vendors;
mod xml_attributes;
mod xml_files;

use lockstep_topology::cluster::{DeviceKind, LinkKind, Route};
use lockstep_topology::{Cluster, InputError};

use crate::{Import, Imported, import_machine};

const DGX_A100: &str = include_str!("tests/dgx-a100.xml");

fn import(gpu: Option<&str>) -> Import {
    Import { name: "mine".to_owned(), gpu: gpu.map(str::to_owned), nics: None, hosts: 1, network: None }
}

/// The file as a cluster of one host.
fn cluster(text: &str, gpu: Option<&str>) -> Result<Cluster, InputError> {
    noted(text, gpu).map(|(cluster, _)| cluster)
}

/// The file as a cluster of one host, and the notes, one a line.
fn noted(text: &str, gpu: Option<&str>) -> Result<(Cluster, String), InputError> {
    let Imported { toml, notes } = import_machine("t.txt", text, &import(gpu))?;
    let cluster = Cluster::parse("written.toml", &toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    Ok((cluster, notes.join("\n")))
}

/// The file's toml.
fn toml(text: &str, import: &Import) -> String {
    import_machine("t.txt", text, import).unwrap_or_else(|error| panic!("{error}")).toml
}

fn refused(text: &str, gpu: Option<&str>) -> String {
    cluster(text, gpu).map(|cluster| panic!("{} is taken", cluster.name())).unwrap_err().to_string()
}

fn route(cluster: &Cluster, from: &str, to: &str) -> Route {
    let device = |name: &str| {
        let found = cluster.devices().iter().find(|device| device.name == name);
        found.unwrap_or_else(|| panic!("there is no {name}")).id
    };
    cluster.route(device(from), device(to)).expect("a way")
}

/// The parts that a route passes.
fn way(cluster: &Cluster, from: &str, to: &str) -> Vec<String> {
    let links = route(cluster, from, to).links;
    links.iter().map(|link| cluster.vertex(cluster.link(*link).to).name.replace("node0.", "")).collect()
}

/// The same, without the memory that data is copied through from bus to bus.
fn buses(cluster: &Cluster, from: &str, to: &str) -> Vec<String> {
    let mut all: Vec<String> = way(cluster, from, to).into_iter().filter(|part| part != "memory").collect();
    all.dedup();
    all
}

fn gpu_model(cluster: &Cluster) -> &str {
    match &cluster.devices()[1].kind {
        DeviceKind::Gpu(spec) => &spec.model,
        DeviceKind::Cpu(_) | DeviceKind::Switch(_) => panic!("no GPU"),
    }
}

/// Bandwidths in GB/s of the links of a kind from a part.
fn rates(cluster: &Cluster, name: &str, kind: LinkKind) -> Vec<f64> {
    let own = cluster.links().iter().filter(|link| cluster.vertex(link.from).name == format!("node0.{name}"));
    own.filter(|link| link.kind == kind).map(|link| (link.bandwidth.bytes_per_s() * 1e-6).round() * 1e-3).collect()
}
