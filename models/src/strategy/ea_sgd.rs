//! Builds synchronous elastic averaging SGD (Zhang, Choromanska and LeCun 2015), as Koliousis et al. 2019, §5.5,
//! compare it with SMA: the same without momentum.

use std::fmt;

use lockstep_topology::InputError;

use super::settings::Settings;
use super::{Plan, Shard, Sma};
use crate::{Assignment, Averaging, Graph, Job};

/// The settings of EA-SGD: `ea-sgd`, `ea-sgd:tau=4:alpha=0.1:first-come`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EaSgd {
    /// τ: batches of a learner between synchronisations.
    pub period: u32,
    /// α; `None`: one over the number of learners.
    pub alpha: Option<f64>,
    /// Which learner takes which batch.
    pub assignment: Assignment,
}

impl Default for EaSgd {
    fn default() -> EaSgd {
        EaSgd { period: 1, alpha: None, assignment: Assignment::Own }
    }
}

impl EaSgd {
    /// SMA without momentum.
    fn sma(&self) -> Sma {
        let EaSgd { period, alpha, assignment } = *self;
        Sma { momentum: Some(0.0), period, alpha, assignment, reference_models: false }
    }
}

impl Plan for EaSgd {
    fn parse(settings: &str) -> Result<EaSgd, String> {
        let settings = Settings::parse(settings, &["tau", "alpha"])?;
        let (period, alpha) = (settings.count("tau")?.unwrap_or(1), settings.alpha()?);
        Ok(EaSgd { period, alpha, assignment: settings.assignment()? })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ea-sgd")?;
        super::settings::write_common(f, self.period, self.alpha, self.assignment)
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        self.sma().graph(job)
    }

    fn trains_apart(&self) -> bool {
        true
    }

    fn period(&self) -> u32 {
        self.period
    }

    fn averaging(&self, learners: u32, each: u32) -> Option<Averaging> {
        self.sma().averaging(learners, each)
    }
}
