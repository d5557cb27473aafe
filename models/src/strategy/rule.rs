//! Gives the graph of a strategy the optimizer's rule, and refuses rules whose meaning the strategy does not define.

use lockstep_topology::InputError;

use super::{Job, Shard};
use crate::graph::NodeWork;
use crate::{Buffer, Coefficient, Graph, Moments, UpdateRule};

impl Graph {
    /// The same graph with the optimizer's steps by `rule`, on gradients that are clipped or not: strategies lay out
    /// those of momentum SGD.
    #[must_use]
    pub(crate) fn stepping_by(mut self, rule: UpdateRule, clips: bool) -> Graph {
        let factors: &[Coefficient] = if clips { &[Coefficient::CLIP] } else { &[] };
        for node in self.dag.node_weights_mut() {
            if let NodeWork::Elementwise { of, .. } = &mut node.work
                && of.formula.is_update()
            {
                let update = rule.update(factors, false);
                let sums = of.formula.reads(Buffer::SUMS);
                of.formula = if sums { update.replacing(Buffer::Gradients, Buffer::SUMS) } else { update };
            }
        }
        self
    }
}

impl Job {
    /// Refuses a rule that cannot step as the strategy does: learners step by plain SGD, which has no state, and with a variable batch a step
    /// updates split layers once for each part of its samples.
    pub(crate) fn check_rule(&self, shard: Option<&Shard>) -> Result<(), InputError> {
        let refused = |message: String| Err(InputError::flag("optimizer", self.rule.to_string(), message));
        let (rule, strategy) = (self.rule, &self.strategy);
        if self.strategy.trains_apart() && rule != UpdateRule::Sgd {
            return refused(format!(
                "has no states for each learner: the learners of {strategy} step by SGD, and their average model has the \
                 momentum: use sgd, or ssgd or zero-1 to zero-3"
            ));
        }
        if self.strategy.trains_apart() && self.moments != Moments::F32 {
            let message = format!("is of no effect: the learners of {strategy} keep no moments: leave it out");
            return Err(InputError::flag("moments", self.moments.to_string(), message));
        }
        let varies = shard.is_some_and(|(_, sharding)| sharding.variable_batch);
        if varies && !rule.updates_again() {
            return refused(format!(
                "takes one step on all samples, and {strategy} updates split layers for each part of them: use sgd, or the \
                 strategy without variable-batch"
            ));
        }
        Ok(())
    }
}
