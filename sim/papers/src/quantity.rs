//! `Quantity`: states what a figure measures.

use super::computed::Computed;
use super::unit::UnitDimension;
use lockstep_experiment::Experiment;
use lockstep_topology::InputError;
use lockstep_topology::document::Table;

/// The quantity that is published and predicted.
#[derive(Debug, Clone)]
pub enum Quantity {
    /// Seconds that a number of passes over a number of samples take.
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
    /// Learners on each device that the auto-tuner chooses.
    TunedLearners,
    /// Throughput over that of another configuration.
    Speedup {
        /// The other configuration.
        over: Box<Experiment>,
    },
    /// Seconds of a step over those in another configuration.
    Slowdown {
        /// The other configuration.
        over: Box<Experiment>,
    },
    /// Throughput per rank over that of another configuration.
    Efficiency {
        /// The other configuration.
        over: Box<Experiment>,
    },
    /// Share of the time in flight of the exchanges between layers split by samples and layers split by features, in
    /// which a rank computes as well (Krizhevsky 2014 §4).
    HiddenShare,
    /// In each case a step, or an image, takes less time than in the case's next one; with `grows`, their ratio grows
    /// from case to case.
    Order {
        /// The configurations of each case, fastest first.
        cases: Vec<Vec<Experiment>>,
        /// Whether the ratio of the last to the first grows from case to case.
        grows: bool,
        /// Whether the time of a step is divided by its images, which are as many in each configuration as
        /// an epoch has.
        per_image: bool,
    },
    /// A closed form over model and algorithm.
    Computed(Computed),
}

impl Quantity {
    /// The quantity of this kind, if figures can show it along an axis as rows can state it; `table` has the sizes of a
    /// time, `over` gives the configuration to compare with.
    pub(super) fn along_axes(
        kind: &str,
        table: &Table<'_>,
        over: impl FnOnce() -> Result<Box<Experiment>, InputError>,
    ) -> Result<Option<Quantity>, InputError> {
        let number = |key, example| table.need(key, example)?.number(f64::MIN_POSITIVE);
        if kind != "time" {
            table.unread(&["epochs", "samples"], "only a time is of epochs and samples")?;
        }
        Ok(Some(match kind {
            "time" => Quantity::Time { epochs: number("epochs", "90")?, samples: number("samples", "1281167")? },
            "step-time" => Quantity::StepTime,
            "throughput" => Quantity::Throughput,
            "speedup" => Quantity::Speedup { over: over()? },
            "slowdown" => Quantity::Slowdown { over: over()? },
            "efficiency" => Quantity::Efficiency { over: over()? },
            _ => return Ok(None),
        }))
    }

    /// The dimension of its unit.
    pub fn dimension(&self) -> UnitDimension {
        match self {
            Quantity::Time { .. } | Quantity::StepTime | Quantity::TaskTime | Quantity::BackwardTime => {
                UnitDimension::Time
            }
            Quantity::Throughput => UnitDimension::Throughput,
            Quantity::Computed(computed) => computed.dimension(),
            _ => UnitDimension::Number,
        }
    }

    /// The throughput that follows from a figure, in images per second, for a configuration with this global batch.
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
