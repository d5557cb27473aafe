//! Conditions: what a run meets that is neither program nor platform, so that the same job can be asked about twice.

use crate::noise::Jitter;

/// What disturbs a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conditions {
    /// Stated noise.
    pub noise: Jitter,
    /// Which of several runs of one seed this is; another one draws all noise anew.
    pub trial: u32,
}

/// Nothing, for whoever needs a reference to it.
static UNDISTURBED: Conditions = Conditions {
    noise: Jitter { seed: 0, kernel: None, step: None, rank: None, latency: None, bandwidth: None },
    trial: 0,
};

impl Conditions {
    /// Nothing disturbs.
    pub fn none() -> &'static Conditions {
        &UNDISTURBED
    }

    /// Why ranks that are equal otherwise differ under them; `None` where they do not.
    pub(crate) fn apart(&self) -> Option<&'static str> {
        (!self.noise.is_empty()).then_some("every rank has noise of its own")
    }
}
