//! What a published figure is of, and in which unit it stands.

use std::str::FromStr;

use super::Computed;
use crate::experiment::Experiment;

/// What is published and predicted.
#[derive(Debug, Clone)]
pub enum Quantity {
    /// Seconds that so many passes over so many samples take.
    Time {
        /// Passes.
        epochs: f64,
        /// Samples in one.
        samples: f64,
    },
    /// Seconds of a step.
    StepTime,
    /// Seconds of a step in which a rank's backward passes run.
    BackwardTime,
    /// Images per second over all ranks.
    Throughput,
    /// Seconds that a learning task takes: one micro-batch's load, forward and backward passes.
    TaskTime,
    /// Learners on each device that the auto-tuner ends with.
    TunedLearners,
    /// Throughput over that of another configuration.
    Speedup {
        /// That one.
        over: Box<Experiment>,
    },
    /// Seconds of a step over those in another configuration.
    Slowdown {
        /// That one.
        over: Box<Experiment>,
    },
    /// Throughput per rank over that of another configuration.
    Efficiency {
        /// That one.
        over: Box<Experiment>,
    },
    /// Share of the time in flight of the exchanges between layers split by samples and layers split by features, in which a
    /// rank computes as well (Krizhevsky 2014 §4).
    HiddenShare,
    /// In each case a step, or an image, takes less time than in the case's next one; with `grows`, their ratio grows from case to
    /// case.
    Order {
        /// The configurations of each case, fastest first.
        cases: Vec<Vec<Experiment>>,
        /// Whether the last takes more times as long as the first from case to case.
        grows: bool,
        /// Whether the time of a step is shared out among its images, which are as many in each configuration as an epoch has.
        per_image: bool,
    },
    /// A closed form over model and algorithm.
    Computed(Computed),
}

/// A unit of published figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// As it is printed.
    pub name: &'static str,
    /// How many of what is predicted (seconds, bytes, FLOPs, 1) make one.
    pub factor: f64,
    /// Of what it is a unit.
    pub of: Dimension,
}

/// What a unit measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
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
    use Dimension::{Number, Rate, Size, Throughput, Time, Work};
    [
        Unit { name: "us", factor: 1e-6, of: Time },
        Unit { name: "ms", factor: 1e-3, of: Time },
        Unit { name: "s", factor: 1.0, of: Time },
        Unit { name: "min", factor: 60.0, of: Time },
        Unit { name: "h", factor: 3600.0, of: Time },
        Unit { name: "days", factor: 86400.0, of: Time },
        Unit { name: "MB", factor: 1e6, of: Size },
        Unit { name: "MiB", factor: 1_048_576.0, of: Size },
        Unit { name: "B", factor: 1.0, of: Size },
        Unit { name: "Gbit/s", factor: 1.25e8, of: Rate },
        Unit { name: "TFLOP", factor: 1e12, of: Work },
        Unit { name: "images/s", factor: 1.0, of: Throughput },
        Unit { name: "%", factor: 0.01, of: Number },
        Unit { name: "x", factor: 1.0, of: Number },
        Unit { name: "1", factor: 1.0, of: Number },
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

impl Quantity {
    /// What its unit must measure.
    pub fn dimension(&self) -> Dimension {
        match self {
            Quantity::Time { .. } | Quantity::StepTime | Quantity::TaskTime | Quantity::BackwardTime => Dimension::Time,
            Quantity::Throughput => Dimension::Throughput,
            Quantity::Computed(computed) => computed.dimension(),
            Quantity::Speedup { .. }
            | Quantity::Slowdown { .. }
            | Quantity::Efficiency { .. }
            | Quantity::TunedLearners
            | Quantity::HiddenShare
            | Quantity::Order { .. } => Dimension::Number,
        }
    }

    /// The throughput that a figure means, in images per second, for a configuration with this global batch.
    ///
    /// # Errors
    /// Quantities to which computation cannot be scaled.
    pub fn images_per_s(&self, figure: f64, global_batch: u64) -> Result<f64, String> {
        match self {
            Quantity::Time { epochs, samples } => Ok(epochs * samples / figure),
            Quantity::StepTime => Ok(global_batch as f64 / figure),
            Quantity::Throughput => Ok(figure),
            _ => Err("computation can be scaled to a time or a throughput alone".to_owned()),
        }
    }
}
