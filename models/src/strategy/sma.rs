//! Builds synchronous model averaging (Koliousis et al. 2019, Alg. 1): learners with their own models, and momentum on
//! their average; optionally with a reference model on each device (§3.3).

use std::fmt;

use lockstep_topology::InputError;

use super::settings::Settings;
use super::{Plan, Shard, learners};
use crate::{Assignment, Averaging, Graph, Job};

/// The settings of SMA: `sma`, `sma:momentum=0.9:tau=2:alpha=0.25:first-come`, `sma:reference-models`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sma {
    /// μ; `None`: the optimizer's.
    pub momentum: Option<f64>,
    /// τ: batches of a learner between synchronisations.
    pub period: u32,
    /// α; `None`: one over the number of learners, or of those that share a reference.
    pub alpha: Option<f64>,
    /// Whether the learners of a device are corrected against its own reference model, and the references against z. It
    /// makes a difference only where several devices have several learners each.
    pub reference_models: bool,
    /// Which learner takes which batch.
    pub assignment: Assignment,
}

impl Default for Sma {
    fn default() -> Sma {
        Sma { momentum: None, period: 1, alpha: None, reference_models: false, assignment: Assignment::Own }
    }
}

impl Plan for Sma {
    fn parse(settings: &str) -> Result<Sma, String> {
        let settings = Settings::parse(settings, &["momentum", "tau", "alpha", "reference-models"])?;
        let sma = Sma {
            momentum: settings.number("momentum", 0.0..1.0)?,
            period: settings.count("tau")?.unwrap_or(1),
            alpha: settings.alpha()?,
            reference_models: settings.reference_models(),
            assignment: settings.assignment()?,
        };
        Ok(sma)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sma")?;
        self.momentum.map_or(Ok(()), |momentum| write!(f, ":momentum={momentum}"))?;
        let word = if self.reference_models { ":reference-models" } else { "" };
        f.write_str(word)?;
        super::settings::write_common(f, self.period, self.alpha, self.assignment)
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        Ok((learners::graph(job, &self.numbers(job.workers, job.learners))?, None))
    }

    fn trains_apart(&self) -> bool {
        true
    }

    fn period(&self) -> u32 {
        self.period
    }

    fn averaging(&self, learners: u32, each: u32) -> Option<Averaging> {
        Some(self.numbers(learners, each))
    }
}

impl Sma {
    /// Its constants for `learners` learners, `each` of them on a device.
    pub(super) fn numbers(&self, learners: u32, each: u32) -> Averaging {
        let alpha = |among: u32| self.alpha.unwrap_or(1.0 / f64::from(among.max(1)));
        let Sma { momentum, period, assignment, .. } = *self;
        let one_level = Averaging { alpha: alpha(learners), momentum, period, assignment, reference_alpha: None };
        // If there is only one device or one learner per device, a single level remains, which is Alg. 1.
        if !self.reference_models || each < 2 || learners <= each {
            return one_level;
        }
        Averaging { alpha: alpha(each), reference_alpha: Some(alpha(learners / each)), ..one_level }
    }
}
