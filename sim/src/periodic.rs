//! Times work between steps: a shuffle, an evaluation or a checkpoint, each a program of its own.

use lockstep_models::{Driver, Periodic, PeriodicSpan, Program, Timeline};
use lockstep_topology::Time;

use crate::conditions::Conditions;
use crate::error::SimError;
use crate::platform::Platform;
use crate::simulate::{SimOptions, simulate};

/// When each task of `work` runs, if it begins behind the last step of `timeline`. Its samples are in memory.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_periodic(
    kind: Periodic,
    work: &Program,
    platform: &Platform<'_>,
    options: &SimOptions,
    timeline: &Timeline,
) -> Result<Vec<PeriodicSpan>, SimError> {
    let conditions = Conditions { input: None, ..platform.conditions.clone() };
    let platform = Platform { conditions: &conditions, ..*platform };
    let once = SimOptions { warm_up: 0, counted: 1, ..*options };
    let found = simulate(work, &platform, Driver::fixed(1), &once)?;
    let (at, iteration) = timeline.end();
    let later = |time: Time| Time(time.0 + at.0);
    let spans = found.timeline.spans.into_iter().map(|mut span| {
        (span.ready, span.start, span.end) = (later(span.ready), later(span.start), later(span.end));
        span.iteration = iteration;
        PeriodicSpan { kind, span }
    });
    Ok(spans.collect())
}
