//! Runs `lockstep clusters list`, `show`, `gpus` and `check`.

use clap::Subcommand;
use lockstep_topology::cluster::{
    CatalogueGpu, DescriptionTable, DeviceKind, GpuSpec, Lanes, NetworkFigures, PeakPrecision, catalogue, networks,
};
use lockstep_topology::{Cluster, ErrorPlace, InputError};

use super::clusters_import::ClustersImport;
use lockstep_report::failure::Failure;
use lockstep_report::{CheckRow, ClusterRow, DetailRow, Format, NetworkRow, Report, aligned_within, print, width};

/// What can be asked about clusters.
#[derive(Debug, Subcommand)]
pub(super) enum Clusters {
    /// The clusters that come with lockstep
    #[command(after_help = "Example:
  lockstep clusters list --format csv")]
    List {
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// The parts of a cluster, each figure with where it comes from
    #[command(after_help = "Examples:
  lockstep clusters show ethernet-4
  lockstep clusters show dgx-h100 --toml > mine.toml
      a copy to change")]
    Show {
        /// Name of a cluster, or a .toml file
        cluster: String,
        /// Print the cluster file, comments included, instead of its parts
        #[arg(long, conflicts_with = "format")]
        toml: bool,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// The GPUs that cluster files may name, each figure with where it comes from
    #[command(after_help = "Example:
  lockstep clusters gpus --format csv")]
    Gpus {
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// The networks that may follow a cluster's name and an @, as in dgx-a100:4@infiniband-hdr
    #[command(after_help = "Example:
  lockstep clusters networks --format csv")]
    Networks {
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Validate cluster files
    #[command(after_help = "Example:
  lockstep clusters check my-cluster.toml")]
    Check {
        /// Names of clusters, or .toml files
        #[arg(required = true)]
        clusters: Vec<String>,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Write a cluster file from what a machine says of its topology
    Import(ClustersImport),
}

impl Clusters {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Clusters::List { format } => {
                let row = |(name, _): &(&str, &str)| Ok(cluster_row(&load(name)?));
                let rows: Result<Vec<ClusterRow>, InputError> = Cluster::presets().iter().map(row).collect();
                Report::new(rows?, Vec::new()).print(format)
            }
            Clusters::Show { cluster, toml: true, .. } => print(file(&cluster)?),
            Clusters::Show { cluster, format, .. } => {
                let cluster = load(&cluster)?;
                if format == Format::Table {
                    return print(&tables(&cluster));
                }
                let rows = cluster.describe().iter().flat_map(details).collect();
                Report::new(rows, Vec::new()).print(format)
            }
            Clusters::Gpus { format } => gpus(format),
            Clusters::Networks { format } => {
                let row = |network: NetworkFigures| NetworkRow {
                    name: network.name,
                    kind: network.kind.to_string(),
                    bandwidth_gbps: network.bandwidth.bytes_per_s() * 1e-9,
                    latency_us: network.latency.as_secs_f64() * 1e6,
                    provenance: network.provenance,
                };
                let note = "a name may be followed by -rails, and by -2to1 or the like: docs/clusters.md".to_owned();
                Report::new(networks()?.into_iter().map(row).collect(), vec![note]).print(format)
            }
            Clusters::Import(import) => import.run(),
            Clusters::Check { clusters, format } => {
                let mut notes = Vec::new();
                let check = |name: String| {
                    let cluster = load(&name)?;
                    notes.extend(cluster.notes());
                    Ok(CheckRow::ok(&name, summary(&cluster)))
                };
                let rows: Result<Vec<CheckRow>, InputError> = clusters.into_iter().map(check).collect();
                Report::new(rows?, notes).print(format)
            }
        }
    }
}

/// A cluster by its name or path; errors are located at the argument.
pub(super) fn load(name: &str) -> Result<Cluster, InputError> {
    Cluster::load(name).map_err(|error| match error.place {
        ErrorPlace::Flag("cluster") => error.at("CLUSTER"),
        _ => error,
    })
}

/// The text of a cluster that comes with lockstep.
///
/// # Errors
/// An unknown name, an order such as `dgx-h100:32`, which has no file, or a name that is a file already.
fn file(name: &str) -> Result<&'static str, InputError> {
    if let Some((_, text)) = Cluster::presets().iter().find(|(preset, _)| *preset == name) {
        return Ok(text);
    }
    load(name)?;
    let message = "is not a file that comes with lockstep: name one as lockstep clusters list does, without a number of hosts or a network";
    Err(InputError::new("CLUSTER", name, message))
}

fn cluster_row(cluster: &Cluster) -> ClusterRow {
    let cores = |kind: &DeviceKind| match kind {
        DeviceKind::Cpu(cpu) => u64::from(cpu.cores),
        DeviceKind::Gpu(_) | DeviceKind::Switch(_) => 0,
    };
    let gpus = cluster.devices().iter().filter(|device| matches!(device.kind, DeviceKind::Gpu(_)));
    ClusterRow {
        name: cluster.name().to_owned(),
        hosts: cluster.hosts().len() as u32,
        cores: cluster.devices().iter().map(|device| cores(&device.kind)).sum(),
        gpus: gpus.count() as u32,
        switches: cluster.switches().count() as u32,
        description: cluster.description().to_owned(),
    }
}

/// A one-line summary: the number of each part.
fn summary(cluster: &Cluster) -> String {
    let row = cluster_row(cluster);
    format!(
        "{}: hosts {}, cores {}, GPUs {}, switches {}, wires {}",
        row.name,
        row.hosts,
        row.cores,
        row.gpus,
        row.switches,
        cluster.wires()
    )
}

fn tables(cluster: &Cluster) -> String {
    let mut text = summary(cluster) + "\n";
    if !cluster.description().is_empty() {
        text.push_str(&format!("{}\n", cluster.description()));
    }
    for table in cluster.describe().iter().filter(|table| !table.rows.is_empty()) {
        text.push_str(&format!("\n{}", aligned_within(table.columns, &table.rows, width())));
    }
    text
}

/// The catalogue of GPUs: a line for each, or two rows for each figure, the figure and its source.
fn gpus(format: Format) -> Result<(), Failure> {
    let gpus = catalogue()?;
    if format == Format::Table {
        let columns: Vec<&str> = std::iter::once("gpu").chain(FIGURES.map(|(_, column)| column)).collect();
        let row = |gpu: &CatalogueGpu| {
            let cells = FIGURES.map(|(key, _)| figure(&gpu.spec, key));
            std::iter::once(gpu.name.clone()).chain(cells).collect::<Vec<String>>()
        };
        return print(&aligned_within(&columns, &gpus.iter().map(row).collect::<Vec<_>>(), width()));
    }
    let rows = gpus.iter().flat_map(|gpu| {
        let known = FIGURES.into_iter().filter(|(key, _)| !figure(&gpu.spec, key).is_empty());
        known.flat_map(|(key, column)| {
            let row = |figure: String, value: String| DetailRow {
                table: "gpus".to_owned(),
                item: gpu.name.clone(),
                figure,
                value,
            };
            let source = gpu.provenance_of(key).to_string();
            [row(column.to_owned(), figure(&gpu.spec, key)), row(format!("{column}_provenance"), source)]
        })
    });
    Report::new(rows.collect(), Vec::new()).print(format)
}

/// Figures of a GPU: their keys in a cluster file, and their columns.
const FIGURES: [(&str, &str); 11] = [
    ("multiprocessors", "multiprocessors"),
    ("peak_fp64", "fp64_TFLOPs"),
    ("peak_flops", "fp32_TFLOPs"),
    ("peak_tf32", "tf32_TFLOPs"),
    ("peak_fp16", "fp16_TFLOPs"),
    ("peak_bf16", "bf16_TFLOPs"),
    ("peak_fp8", "fp8_TFLOPs"),
    ("memory", "memory"),
    ("memory_bandwidth", "memory_GBps"),
    ("nvlink", "nvlink"),
    ("pcie", "pcie"),
];

/// One of [`FIGURES`] as text; empty if the GPU has none.
fn figure(gpu: &GpuSpec, key: &str) -> String {
    let lanes = |lanes: Option<Lanes>| lanes.map_or(String::new(), |lanes| lanes.to_string());
    match key {
        "multiprocessors" => gpu.multiprocessors.to_string(),
        "memory" => gpu.memory.to_string(),
        "memory_bandwidth" => format!("{}", (gpu.memory_bandwidth.bytes_per_s() / 1e6).round() / 1e3),
        "nvlink" => lanes(gpu.nvlink),
        "pcie" => lanes(gpu.pcie),
        _ => {
            let precision = PeakPrecision::ALL.into_iter().find(|precision| precision.name() == key);
            let peak = precision.and_then(|precision| gpu.peak(precision));
            peak.map_or(String::new(), |peak| format!("{}", (peak / 1e9).round() / 1e3))
        }
    }
}

/// A row for each cell except the name.
fn details(table: &DescriptionTable) -> Vec<DetailRow> {
    let cells = |row: &Vec<String>| {
        let item = row[0].clone();
        let named = table.columns.iter().zip(row).skip(1);
        let detail = |(figure, value): (&&str, &String)| DetailRow {
            table: table.title.to_owned(),
            item: item.clone(),
            figure: (*figure).to_owned(),
            value: value.clone(),
        };
        named.map(detail).collect::<Vec<_>>()
    };
    table.rows.iter().flat_map(cells).collect()
}
