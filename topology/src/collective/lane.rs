//! A lane: the steps of one member, one after the other.

use std::sync::Arc;

use super::lanes::Steps;
use super::step::Step;

/// The steps of one lane on one member, in order; the meaning of lanes stands at the head of the module.
#[derive(Debug, Clone)]
pub struct Lane {
    at: u32,
    end: u32,
    steps: Arc<dyn Steps>,
}

impl Lane {
    /// A lane from its first step on.
    pub(super) fn new(steps: Arc<dyn Steps>) -> Lane {
        Lane { at: 0, end: steps.len(), steps }
    }
}

impl Iterator for Lane {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.steps.next(&mut self.at, self.end)
    }
}
