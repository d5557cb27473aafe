//! What moves parameters: the optimizer's step, and the rules of model averaging on a learner's buffers.

use std::ops::Range;

use lockstep_models::{Buffer, Model, SgdStep};

/// What is done to a range of the parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Momentum SGD.
    Sgd(SgdStep),
    /// A learner's step down its gradient, without momentum.
    Descend(SgdStep),
    /// The last step of an iteration and the correction towards the model that the learner is held against.
    Correct {
        /// The step.
        step: SgdStep,
        /// How much of the difference is taken.
        alpha: f32,
        /// The model that the learner is corrected towards.
        consensus: Buffer,
        /// Whether there is a gradient; without one the correction is made alone.
        learned: bool,
    },
    /// The device's reference model moves by the sum of its learners' differences, and its own comes in their place.
    MoveReference {
        /// How much of the difference is taken.
        alpha: f32,
    },
    /// The average model moves by the summed differences.
    Average {
        /// μ; none in the first iteration, which has no model before.
        momentum: Option<f32>,
    },
}

/// What a learner's gradient moves its weights by: γ, and the weight decay λ that is part of the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slope {
    /// γ.
    pub rate: f32,
    /// λ.
    pub weight_decay: f32,
}

impl Slope {
    /// γ·(g + λ·w).
    #[inline(always)]
    pub(crate) fn at(self, gradient: f32, weight: f32) -> f32 {
        self.rate * (gradient + self.weight_decay * weight)
    }
}

/// Which parameters' weights decay by themselves, range by range.
#[derive(Debug, Clone)]
pub(crate) struct Decays(Vec<(Range<usize>, bool)>);

impl Decays {
    /// Those of a model.
    pub(crate) fn of(model: &Model) -> Decays {
        let parameters = model.layers().iter().flat_map(|node| &node.parameters);
        Decays(parameters.map(|p| (p.range.start as usize..p.range.end as usize, p.decay)).collect())
    }

    /// The parts of `range`, each of one parameter, with the weight decay of `step` there.
    pub(crate) fn parts(&self, range: Range<usize>, step: &SgdStep) -> impl Iterator<Item = (Range<usize>, f32)> {
        let (always, decay) = (step.decay_batch_norm, step.weight_decay);
        self.0.iter().filter_map(move |(of, decays)| {
            let part = range.start.max(of.start)..range.end.min(of.end);
            (!part.is_empty()).then_some((part, if *decays || always { decay } else { 0.0 }))
        })
    }
}
