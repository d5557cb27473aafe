//! Explains the time of one collective: what is in use, and how the time depends on parameters.

use lockstep_sim::answer::{Bound, collective_sensitivities};
use lockstep_sim::{CollectiveRun, CollectiveTime, Platform, SimError};

use super::{by_strength, classes, euler_sum};
use crate::site::Site;
use lockstep_report::explanation::CollectiveExplanation;

/// Explains a time; `progress` gets the share of the work that is done, from 0 to 1.
///
/// # Errors
/// Errors of a simulation with other figures.
pub fn explain_collective(
    run: &CollectiveRun,
    platform: &Platform<'_>,
    site: &Site,
    time: &CollectiveTime,
    bound: &Bound,
    progress: &mut dyn FnMut(f64),
) -> Result<CollectiveExplanation, SimError> {
    let mut counted = |done: usize, all: usize| progress(done as f64 / all as f64);
    let sensitivities = collective_sensitivities(run, platform, time, &mut counted)?;
    let (reacts, still) = by_strength(&sensitivities, site, platform.placement);
    Ok(CollectiveExplanation {
        in_use: classes(bound),
        reacts_to: reacts,
        does_not_react_to: still,
        sensitivity_sum: euler_sum(&sensitivities),
    })
}
