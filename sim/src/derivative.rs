//! Computes derivatives of a run's times by the figures of its platform, together with the times in one simulation.
//!
//! A run's times are sums of durations and maxima, so the derivative of each is that of what came last before it plus
//! that of the duration between the two: infinitesimal perturbation analysis (Ho and Cao, "Perturbation analysis of
//! discrete event dynamic systems", 1991). It is exact wherever a small change does not alter the order of events. For
//! each moment the engine reports which other one it follows (`trace.rs`); for activities that share resources the
//! solver's speeds are differentiated (`speeds.rs`), and durations, caps and capacities by pricing everything once more
//! on platforms with one figure changed (`shadow.rs`).

mod shadow;
mod speeds;
mod tracked;

use lockstep_models::{Program, Timeline};
use lockstep_topology::Time;

pub(crate) use shadow::CHANGE;
use tracked::Tracked;

use crate::collective::{CollectiveRun, simulate_collective_with};
use crate::error::SimError;
use crate::fold::SimulatedRanks;
use crate::platform::Platform;
use crate::simulate::{SimOptions, simulate_ranks};
use crate::trace::Dual;

/// The timeline of a run, and the derivatives of the ends of its iterations by the
/// figures that `changed` platforms have changed; none where the run did something that is not differentiated.
///
/// # Errors
/// As [`simulate`](crate::simulate).
pub(crate) fn differentiate(
    ranks: &SimulatedRanks,
    program: &Program,
    platform: &Platform<'_>,
    options: &SimOptions,
    changed: &[Platform<'_>],
) -> Result<(Timeline, Option<Vec<Dual>>), SimError> {
    let here = ranks.platform(platform);
    let changed: Vec<Platform<'_>> = changed.iter().map(|changed| ranks.platform(changed)).collect();
    let fluid = Tracked::new(&here, &changed);
    let (predicted, by) = simulate_ranks(fluid, ranks, program, platform, options.driver(), options)?;
    Ok((predicted.timeline, by))
}

/// The time of a collective whose every message is an event, and its derivatives by the figures that `changed`
/// platforms have changed; none where the run did something that is not differentiated.
///
/// # Errors
/// As [`simulate_collective`](crate::simulate_collective).
pub(crate) fn differentiate_collective(
    run: &CollectiveRun,
    platform: &Platform<'_>,
    changed: &[Platform<'_>],
) -> Result<(Time, Option<Dual>), SimError> {
    let run = CollectiveRun { long_way: true, ..run.clone() };
    let costs = run.repeated(platform.costs);
    let here = Platform { costs: &costs, ..*platform };
    let costs: Vec<_> = changed.iter().map(|changed| run.repeated(changed.costs)).collect();
    let both = changed.iter().zip(&costs);
    let changed: Vec<Platform<'_>> = both.map(|(changed, costs)| Platform { costs, ..*changed }).collect();
    let (found, by) = simulate_collective_with(Tracked::new(&here, &changed), None, &run, &here)?;
    Ok((found.time, by))
}
