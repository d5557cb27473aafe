//! Times work between steps: a shuffle, an evaluation or a checkpoint, each as a separate program.

use lockstep_models::{Driver, Op, Periodic, PeriodicSpan, Phase, Program, Timeline};
use lockstep_topology::Time;
use lockstep_topology::cluster::{Device, Route};

use crate::conditions::Conditions;
use crate::costs::{Cost, Costs, MessageCost, Pair};
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
    let once = SentOnce { inner: platform.costs, packs };
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

/// The costs of messages whose bytes are in no cache: every byte of a shuffle is sent once.
struct SentOnce<'a> {
    inner: &'a dyn Costs,
    /// Whether messages hold packed samples; else each is a sample.
    packs: bool,
}

impl Costs for SentOnce<'_> {
    fn adjusted(&self) -> Option<&dyn Costs> {
        Some(self.inner)
    }

    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.inner.compute(device, program, chain, phase, samples)
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.inner.update(device, elements)
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        self.inner.load(device, program, samples)
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        let warm = self.inner.message(pair, receiver, route);
        match self.inner.sample_copy().filter(|_| pair == Pair::Memory && !self.packs) {
            Some((copy, memory)) => MessageCost { copy, memory, ..warm },
            None => MessageCost { copy: warm.cold.unwrap_or(warm.copy), ..warm },
        }
    }
}
