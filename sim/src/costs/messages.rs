//! Changes the costs of messages and keeps those of tasks.

use lockstep_models::{Phase, Program};
use lockstep_topology::cluster::{Device, Route};

use super::{Cost, Costs, MessageCost, Pair};

/// Costs whose messages are those of `inner`, changed.
pub(crate) struct WithMessages<'a, C> {
    inner: &'a dyn Costs,
    change: C,
}

impl<'a, C: Fn(Pair, MessageCost) -> MessageCost + Send + Sync> WithMessages<'a, C> {
    /// `change` gets a message's carrier and its cost.
    pub(crate) fn new(inner: &'a dyn Costs, change: C) -> WithMessages<'a, C> {
        WithMessages { inner, change }
    }
}

impl<C: Fn(Pair, MessageCost) -> MessageCost + Send + Sync> Costs for WithMessages<'_, C> {
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
        (self.change)(pair, self.inner.message(pair, receiver, route))
    }
}
