//! Defines the rows of `exec links`.

use lockstep_measure::calibrate::MeasuredPath;
use lockstep_report::Row;
use lockstep_topology::InputError;
use lockstep_topology::cluster::Cluster;
use schemars::JsonSchema;
use serde::Serialize;

/// Bytes of the short message.
const SHORT_BYTES: f64 = 4.0;

/// A row of `exec links`: the path from one host to another.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct PathRow {
    /// The sending host, as it calls itself.
    pub(super) from: String,
    /// The receiving one.
    pub(super) to: String,
    /// Links that data crosses, by the cluster file.
    pub(super) links: u32,
    /// A message of 4 bytes, by the file: overheads, latencies and bytes.
    pub(super) predicted_message_us: f64,
    /// Half a round trip of 4 bytes: the median of 100.
    pub(super) message_us: f64,
    /// The latency of each link with which the file would give that time; negative if overheads alone are longer.
    pub(super) link_latency_us: f64,
    /// The payload that one transfer gets, by the file.
    #[serde(rename = "predicted_rate_Mbitps")]
    pub(super) predicted_rate_mbit_per_s: f64,
    /// The rate of 4 MiB of a message of 5 MiB: the median of 5.
    #[serde(rename = "rate_Mbitps")]
    pub(super) rate_mbit_per_s: f64,
    /// predicted / measured rate - 1, in percent.
    pub(super) rate_error_pct: f64,
}

impl Row for PathRow {}

impl PathRow {
    /// A measured path between processes of these `names`, process k on host k of the cluster.
    ///
    /// # Errors
    /// A path that the cluster does not have.
    pub(super) fn of(path: &MeasuredPath, names: &[String], cluster: &Cluster) -> Result<PathRow, InputError> {
        let device = |process: u32| cluster.hosts()[process as usize].devices[0];
        let route = cluster.route(device(path.from), device(path.to))?;
        let protocol = &route.transport.protocol;
        let rate = route.transport.rate.bytes_per_s();
        let overheads_s =
            protocol.send_overhead.as_secs_f64() + protocol.receive_overhead.as_secs_f64() + SHORT_BYTES / rate;
        let links = route.links.len() as u32;
        Ok(PathRow {
            from: names[path.from as usize].clone(),
            to: names[path.to as usize].clone(),
            links,
            predicted_message_us: 1e6 * (overheads_s + route.latency.as_secs_f64()),
            message_us: 1e6 * path.message_s,
            link_latency_us: 1e6 * (path.message_s - overheads_s) / f64::from(links),
            predicted_rate_mbit_per_s: 8e-6 * rate,
            rate_mbit_per_s: 8e-6 * path.bytes_per_s,
            rate_error_pct: 100.0 * (rate / path.bytes_per_s - 1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_match_the_file_give_its_latency_and_rate() {
        let cluster = Cluster::load("ethernet-4").unwrap();
        let names = ["a", "b"].map(str::to_owned);
        let route = cluster.route(cluster.hosts()[0].devices[0], cluster.hosts()[1].devices[0]).unwrap();
        let rate = route.transport.rate.bytes_per_s();
        let path = |message_s| MeasuredPath { from: 0, to: 1, message_s, bytes_per_s: rate };
        let row = PathRow::of(&path(1.0), &names, &cluster).unwrap();
        assert_eq!((row.rate_error_pct, row.from.as_str()), (0.0, "a"));
        let alike = PathRow::of(&path(1e-6 * row.predicted_message_us), &names, &cluster).unwrap();
        let latency_us = 1e6 * route.latency.as_secs_f64() / f64::from(alike.links);
        assert!((alike.link_latency_us - latency_us).abs() < 1e-9, "{alike:?}");
    }
}
