//! Times work between steps: a shuffle, an evaluation or a checkpoint, each as a separate program.

use lockstep_models::{Driver, Op, Periodic, PeriodicSpan, Program, Timeline};
use lockstep_topology::Time;

use crate::conditions::Conditions;
use crate::costs::{Costs, MessageCost, Pair, WithMessages};
use crate::error::SimError;
use crate::platform::Platform;
use crate::simulate::{SimOptions, simulate};

/// When each task of `work` runs, if it begins after the last step of `timeline`. Its samples are in memory.
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
    let packs = work.roles.iter().flat_map(|role| &role.tasks).any(|task| matches!(task.op, Op::Samples { .. }));
    let once = sent_once(platform.costs, packs);
    let costs: &dyn Costs = if kind == Periodic::Shuffle { &once } else { platform.costs };
    let platform = Platform { conditions: &conditions, costs, ..*platform };
    let alone = SimOptions { warm_up: 0, counted: 1, ..*options };
    let found = simulate(work, &platform, Driver::fixed(1), &alone)?;
    let (at, iteration) = timeline.end();
    let later = |time: Time| Time(time.0 + at.0);
    let spans = found.timeline.spans.into_iter().map(|mut span| {
        (span.ready, span.start, span.end) = (later(span.ready), later(span.start), later(span.end));
        span.iteration = iteration;
        PeriodicSpan { kind, span }
    });
    Ok(spans.collect())
}

/// The costs of messages whose bytes are not cached: every byte of a shuffle is sent once. Messages hold packed samples
/// where it `packs`; else each is a sample.
fn sent_once(costs: &dyn Costs, packs: bool) -> impl Costs + '_ {
    WithMessages::new(costs, move |pair, warm| match costs.sample_copy().filter(|_| pair == Pair::Memory && !packs) {
        Some((copy, memory)) => MessageCost { copy, memory, ..warm },
        None => MessageCost { copy: warm.cold.unwrap_or(warm.copy), ..warm },
    })
}
