//! Synchronous model averaging (Koliousis et al. 2019, Alg. 1): learners with models of their own, and momentum on their
//! average.

use std::fmt;

use super::settings::Settings;
use crate::{Assignment, Averaging};

/// The settings of SMA: `sma`, `sma:momentum=0.9:tau=2:alpha=0.25:first-come`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sma {
    /// μ; `None`: the optimizer's.
    pub momentum: Option<f64>,
    /// τ: batches of a learner between synchronisations.
    pub period: u32,
    /// α; `None`: one over the number of learners.
    pub alpha: Option<f64>,
    /// Which learner takes which batch.
    pub assignment: Assignment,
}

impl Default for Sma {
    fn default() -> Sma {
        Sma { momentum: None, period: 1, alpha: None, assignment: Assignment::RoundRobin }
    }
}

impl Sma {
    /// What follows the colon of `sma:…`.
    pub(super) fn parse(settings: &str) -> Result<Sma, String> {
        let settings = Settings::parse(settings, &["momentum", "tau", "alpha"])?;
        let sma = Sma {
            momentum: settings.number("momentum", 0.0..1.0)?,
            period: settings.count("tau")?.unwrap_or(1),
            alpha: settings.alpha()?,
            assignment: settings.assignment(),
        };
        Ok(sma)
    }

    /// Its numbers among so many learners.
    pub(super) fn averaging(&self, learners: u32) -> Averaging {
        let alpha = self.alpha.unwrap_or(1.0 / f64::from(learners.max(1)));
        Averaging { alpha, momentum: self.momentum, period: self.period, assignment: self.assignment }
    }
}

impl fmt::Display for Sma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sma")?;
        self.momentum.map_or(Ok(()), |momentum| write!(f, ":momentum={momentum}"))?;
        super::settings::write_common(f, self.period, self.alpha, self.assignment)
    }
}
