//! Binds a chain of layers to one kernel or loss of a rank, with the tensors that it reads and writes.

use std::ops::Range;

use lockstep_models::{LayerId, Model};

use super::{CrossEntropy, Kernel, Threads};
use crate::device::Blueprint;

/// What a chain computes.
pub(super) enum Work {
    Kernel(Kernel),
    /// A loss, and its weight in the sum of losses.
    Loss(CrossEntropy, f32),
    /// Nothing: other ranks run it.
    Elsewhere,
}

/// One kernel or loss, its tensors, and the place of its parameters.
pub(super) struct Chain {
    pub(super) work: Work,
    pub(super) inputs: Vec<LayerId>,
    pub(super) output: LayerId,
    pub(super) parameters: Range<usize>,
    /// The place of their gradients.
    pub(super) gradients: Range<usize>,
    pub(super) statistics: Range<usize>,
}

impl Chain {
    /// Chain number `index` of a blueprint.
    pub(super) fn new(of: &Blueprint<'_>, index: usize, threads: &Threads) -> Chain {
        let (plan, model): (_, &Model) = (&of.chains[index], &of.program.model);
        let (head, last) = (model.node(plan.layers[0]), plan.layers[plan.layers.len() - 1]);
        let work = if plan.samples == 0 {
            Work::Elsewhere
        } else if head.layer.is_loss() {
            let labels = head.labels().map_or(1, |labels| labels.elements() as usize);
            let loss = CrossEntropy::of_labels(&head.layer, model.classes() as usize, plan.samples, labels);
            Work::Loss(loss, head.loss_weight)
        } else {
            Work::Kernel(Kernel::new(&of.members(index), plan.samples, threads))
        };
        Chain {
            work,
            inputs: head.inputs.clone(),
            output: last,
            parameters: plan.parameters.clone(),
            gradients: plan.gradients.clone(),
            statistics: plan.statistics.clone(),
        }
    }
}
