//! Reads the file that nccl-tests write with `-J`, as the table that they print.

use lockstep_topology::{ErrorPlace, InputError};
use serde::Deserialize;
use serde_json::Value;

use super::lines::{Columns, RankLine, program};
use super::runs::{Family, Row, Run};

/// The part of the file that is read.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    args: Vec<String>,
    nccl_version: Option<u32>,
    config: Option<Config>,
    results: Vec<Measured>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    rank: u32,
    group: Option<u32>,
    pid: Option<u64>,
    hostname: String,
    device: u32,
    device_hex: String,
    device_info: String,
}

#[derive(Deserialize)]
struct Measured {
    size: u64,
    count: u64,
    r#type: String,
    redop: String,
    root: String,
    out_of_place: Option<Group>,
    in_place: Option<Group>,
}

#[derive(Deserialize)]
struct Group {
    time: Option<f64>,
    cpu_time: Option<f64>,
    alg_bw: f64,
    bus_bw: f64,
    #[serde(default)]
    nwrong: Value,
}

/// The run in `text`.
///
/// # Errors
/// Another form.
pub(super) fn list(file: &str, text: &str) -> Result<Vec<Run>, InputError> {
    let read: File = serde_json::from_str(text).map_err(|error| {
        let message = "is not the file that nccl-tests write with -J: name that, or what they printed";
        InputError::new(ErrorPlace::line(file, error.line()), error.to_string(), message)
    })?;
    let of_group = |group: &Option<Group>| match group {
        Some(of) => {
            let time = of.time.or(of.cpu_time).unwrap_or(0.0);
            [format!("{time}"), format!("{:.4}", of.alg_bw), format!("{:.4}", of.bus_bw), of.nwrong.to_string()]
        }
        None => ["N/A"; 4].map(str::to_owned),
    };
    let row = |of: &Measured| {
        let head =
            [of.size.to_string(), of.count.to_string(), of.r#type.clone(), of.redop.clone(), of.root.trim().to_owned()];
        let cells = head.into_iter().chain(of_group(&of.out_of_place)).chain(of_group(&of.in_place)).collect();
        Row { line: 1, cells }
    };
    let groups = || read.results.iter().flat_map(|of| [&of.out_of_place, &of.in_place]).flatten();
    let rank = |of: Device| RankLine {
        rank: of.rank,
        group: of.group.unwrap_or(0),
        pid: of.pid,
        host: of.hostname,
        device: format!("{} {}", of.device, of.device_hex),
        gpu: of.device_info,
    };
    let run = Run {
        line: 1,
        columns: Columns { is_of_cpu: groups().any(|group| group.cpu_time.is_some()), ..Columns::usual() },
        rows: read.results.iter().map(row).collect(),
        has_failed: groups().any(|group| group.nwrong.as_f64().is_some_and(|wrong| wrong > 0.0)),
        ranks: read.config.into_iter().flat_map(|config| config.devices).map(rank).collect(),
        program: read.args.first().and_then(|arg| program(&[arg])).map(|name| (Family::Nccl, name)),
        version: read.nccl_version.map(|code| (code / 10_000, code / 100 % 100)),
        ..Run::default()
    };
    Ok(if run.rows.is_empty() { Vec::new() } else { vec![run] })
}
