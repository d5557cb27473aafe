//! `lockstep clusters list`, `show` and `check`.

use clap::{Args, Subcommand};
use lockstep_topology::cluster::{DeviceKind, Table};
use lockstep_topology::{Cluster, InputError};

use crate::failure::Failure;
use crate::report::{CheckRow, ClusterRow, DetailRow, Format, Report, aligned, print};

/// What can be asked about clusters.
#[derive(Debug, Subcommand)]
pub(super) enum Clusters {
    /// The clusters that come with lockstep
    List(List),
    /// The parts of a cluster, each figure with where it comes from
    Show(Show),
    /// Read cluster files and say whether they make sense
    Check(Check),
}

/// Flags of `clusters list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep clusters list --format csv")]
pub(super) struct List {
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Flags of `clusters show`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep clusters show ethernet-4")]
pub(super) struct Show {
    /// Name of a cluster, or a .toml file
    cluster: String,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// Flags of `clusters check`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep clusters check my-cluster.toml")]
pub(super) struct Check {
    /// Names of clusters, or .toml files
    #[arg(required = true)]
    clusters: Vec<String>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Clusters {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Clusters::List(List { format }) => {
                let row = |(name, _): &(&str, &str)| Ok(cluster_row(&load(name)?));
                let rows: Result<Vec<ClusterRow>, InputError> = Cluster::presets().iter().map(row).collect();
                Report::new(rows?, Vec::new()).print(format)
            }
            Clusters::Show(Show { cluster, format }) => {
                let cluster = load(&cluster)?;
                if format == Format::Table {
                    return print(&tables(&cluster));
                }
                let rows = cluster.describe().iter().flat_map(details).collect();
                Report::new(rows, Vec::new()).print(format)
            }
            Clusters::Check(Check { clusters, format }) => {
                let mut rows = Vec::new();
                for name in clusters {
                    let (status, found) = ("ok".to_owned(), summary(&load(&name)?));
                    rows.push(CheckRow { check: name, status, found, cure: String::new() });
                }
                Report::new(rows, Vec::new()).print(format)
            }
        }
    }
}

/// A cluster by its name or path, the place of errors being the argument.
fn load(name: &str) -> Result<Cluster, InputError> {
    Cluster::load(name).map_err(|error| match error.place.as_str() {
        "--cluster" => InputError { place: "CLUSTER".to_owned(), ..error },
        _ => error,
    })
}

fn cluster_row(cluster: &Cluster) -> ClusterRow {
    let cores = |kind: &DeviceKind| match kind {
        DeviceKind::Cpu(cpu) => u64::from(cpu.cores),
        DeviceKind::Gpu(_) => 0,
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

/// One line: what there is of each.
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
        text.push_str(&format!("\n{}", aligned(table.columns, &table.rows)));
    }
    text
}

/// A row for each cell but the name.
fn details(table: &Table) -> Vec<DetailRow> {
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
