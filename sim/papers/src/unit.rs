//! `Unit`: lists units of published figures and dimensions.

use std::str::FromStr;

/// A unit of published figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// Its printed name.
    pub name: &'static str,
    /// What it is called on an axis; empty: a number without a unit.
    pub words: &'static str,
    /// How many base units of a prediction (seconds, bytes, FLOPs, 1) make one.
    pub factor: f64,
    /// Its dimension.
    pub of: UnitDimension,
}

/// The dimension of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitDimension {
    /// Seconds.
    Time,
    /// Bytes.
    Size,
    /// Bytes per second.
    Rate,
    /// Floating-point operations.
    Work,
    /// Images per second.
    Throughput,
    /// A ratio or a count.
    Number,
}

/// All units.
const UNITS: [Unit; 15] = {
    use UnitDimension::{Number, Rate, Size, Throughput, Time, Work};
    [
        Unit { name: "us", words: "microseconds", factor: 1e-6, of: Time },
        Unit { name: "ms", words: "milliseconds", factor: 1e-3, of: Time },
        Unit { name: "s", words: "seconds", factor: 1.0, of: Time },
        Unit { name: "min", words: "minutes", factor: 60.0, of: Time },
        Unit { name: "h", words: "hours", factor: 3600.0, of: Time },
        Unit { name: "days", words: "days", factor: 86400.0, of: Time },
        Unit { name: "MB", words: "megabytes", factor: 1e6, of: Size },
        Unit { name: "MiB", words: "mebibytes", factor: 1_048_576.0, of: Size },
        Unit { name: "B", words: "bytes", factor: 1.0, of: Size },
        Unit { name: "Gbit/s", words: "gigabits per second", factor: 1.25e8, of: Rate },
        Unit { name: "TFLOP", words: "trillions of operations", factor: 1e12, of: Work },
        Unit { name: "images/s", words: "images per second", factor: 1.0, of: Throughput },
        Unit { name: "%", words: "percent", factor: 0.01, of: Number },
        Unit { name: "x", words: "as a ratio", factor: 1.0, of: Number },
        Unit { name: "1", words: "", factor: 1.0, of: Number },
    ]
};

impl FromStr for Unit {
    type Err = String;

    fn from_str(text: &str) -> Result<Unit, String> {
        let names = || UNITS.map(|unit| unit.name).join(", ");
        UNITS
            .into_iter()
            .find(|unit| unit.name == text)
            .ok_or_else(|| format!("{text:?}: unknown unit: write {}", names()))
    }
}
