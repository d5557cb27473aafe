//! Defines AdamW: Adam whose weight decay does not pass through the moments (Loshchilov & Hutter 2019, Alg. 2), as
//! PyTorch computes it.

use super::adam::{READS, STATES, describe, moments};
use super::{Rule, W, gradient};
use crate::{Coefficient, OfStep};

/// AdamW: the weights shrink by γ·λ before the step (PyTorch's `torch.optim.AdamW`).
pub(super) static RULE: Rule = Rule {
    states: STATES,
    update: |factors, _| {
        let (update, g) = gradient(factors);
        moments(update.subtract(W, W, Coefficient::OfStep(&SHRINK), W), g)
    },
    updates_again: false,
    learning_rate: 0.001,
    weight_decay: 0.01,
    reads: READS,
    describe,
};

static SHRINK: OfStep = OfStep {
    name: "γ·λ",
    value: |of| f64::from(of.sgd.rate) * f64::from(of.sgd.weight_decay),
    decays: true,
    learns: true,
};
