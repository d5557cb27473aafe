//! Defines a row of `calibrate`: one figure of the profile.

use lockstep_models::profile::{ComputeEntry, Interval, Point, Profile};
use lockstep_report::Row;
use lockstep_topology::Dtype;
use schemars::JsonSchema;
use serde::Serialize;

/// What one operation takes on this host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CalibrationRow {
    /// The operation.
    pub operation: String,
    /// Samples of a layer's batch, elements of an update or load; none for messages.
    pub size: Option<u64>,
    /// Microseconds on one core, the median; for `per MiB`, of each MiB.
    pub time_us: f64,
    /// Lower end of the 95 % confidence interval.
    pub time_low_us: f64,
    /// Its upper end.
    pub time_high_us: f64,
    /// How many times longer it takes when every core does the same.
    pub slowdown: f64,
}

impl Row for CalibrationRow {}

impl CalibrationRow {
    /// The row of a figure; `scale` is what its seconds are multiplied by, such as the bytes of a MiB.
    pub(crate) fn of(
        operation: String,
        size: Option<u64>,
        seconds: Interval,
        scale: f64,
        slowdown: f64,
    ) -> CalibrationRow {
        CalibrationRow {
            operation,
            size,
            time_us: seconds.value * scale * 1e6,
            time_low_us: seconds.low * scale * 1e6,
            time_high_us: seconds.high * scale * 1e6,
            slowdown,
        }
    }
}

/// The figures of layers, updates and loads; `whose` is prefixed to each.
pub(crate) fn of_layers(
    whose: &str,
    compute: &[ComputeEntry],
    update: &[Point],
    load: &[Point],
) -> Vec<CalibrationRow> {
    let of = |name: String, size: u64, seconds: Interval, slowdown: f64| {
        CalibrationRow::of(format!("{whose}{name}"), Some(size), seconds, 1.0, slowdown)
    };
    let layer = |e: &ComputeEntry| of(format!("{} {}", e.phase, e.chain), e.samples.into(), e.seconds, e.slowdown);
    let mut rows: Vec<CalibrationRow> = compute.iter().map(layer).collect();
    for (name, points) in [("update", update), ("load", load)] {
        rows.extend(points.iter().map(|point| of(name.to_owned(), point.elements, point.seconds, point.slowdown)));
    }
    rows
}

/// The figures of a profile.
pub fn rows(profile: &Profile) -> Vec<CalibrationRow> {
    let mut rows = of_layers("", &profile.compute, &profile.update, &profile.load);
    for entry in &profile.formulas {
        let (size, name) = (Some(entry.elements), entry.formula.clone());
        rows.push(CalibrationRow::of(name, size, entry.seconds, 1.0, entry.slowdown));
    }
    for entry in &profile.decode {
        let name = format!("decode of {} bytes, {} pixels", entry.bytes, entry.pixels);
        rows.push(CalibrationRow::of(name, Some(entry.elements), entry.seconds, 1.0, entry.slowdown));
        if let Some(seconds) = entry.transform {
            let name = format!("of which crop, flip and normalise to {} elements", entry.elements);
            rows.push(CalibrationRow::of(name, Some(entry.elements), seconds, 1.0, entry.slowdown));
        }
    }
    for entry in &profile.moves {
        for (what, seconds) in [("pack", entry.pack), ("unpack", entry.unpack)] {
            let name = format!("{what} a sample in a shuffle");
            rows.push(CalibrationRow::of(name, Some(entry.elements), seconds, 1.0, entry.slowdown));
        }
    }
    if let Some(storage) = &profile.storage {
        let mib = f64::from(1u32 << 20);
        for (what, rate) in [("sequential", storage.sequential), ("random", storage.random), ("cached", storage.cached)]
        {
            let seconds = Interval { value: 1.0 / rate.value, low: 1.0 / rate.high, high: 1.0 / rate.low };
            rows.push(CalibrationRow::of(format!("read, per MiB: {what}"), None, seconds, mib, 1.0));
        }
    }
    for (name, transport) in
        std::iter::once(("memory", &profile.memory)).chain(profile.mpi.iter().map(|mpi| ("mpi", mpi)))
    {
        let mib = f64::from(1u32 << 20);
        let wake = transport.wake.map(|wake| ("extra time to wake a sleeping receiver", wake, 1.0));
        let figures = [
            ("latency", transport.latency, 1.0),
            ("overhead", transport.overhead, 1.0),
            ("copy, per MiB", transport.copy, mib),
            ("sum, per MiB", transport.sum, mib),
        ];
        let cold = transport.cold.map(|cold| ("copy into memory that no cache holds, per MiB", cold, mib));
        for (what, figure, scale) in figures.into_iter().chain(cold).chain(wake) {
            rows.push(CalibrationRow::of(format!("message ({name}): {what}"), None, figure, scale, transport.slowdown));
        }
        for entry in &transport.repeated {
            for (what, figure) in [("copy", entry.copy), ("sum", entry.sum)] {
                let what = format!("message ({name}): {what} of a repeated buffer, per MiB");
                rows.push(CalibrationRow::of(
                    what,
                    Some(Dtype::F32.elements_within(entry.bytes)),
                    figure,
                    mib,
                    transport.slowdown,
                ));
            }
        }
    }
    rows
}
