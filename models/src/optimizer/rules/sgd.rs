//! Defines momentum SGD (Goyal et al. 2017, §3).

use super::{Rule, T, W, gradient};
use crate::{Buffer, Coefficient, Formula, Operand, Optimizer, UpdateRule};

const V: Operand = Operand::Buffer(Buffer::State(0));

/// Momentum SGD: the buffer v holds what [`MomentumForm`](crate::MomentumForm) says.
pub(super) static RULE: Rule = Rule {
    states: &["momentum"],
    update,
    updates_again: true,
    learning_rate: 0.02,
    weight_decay: 0.0,
    reads: &["momentum", "momentum_form", "nesterov"],
    describe: |optimizer| {
        let ahead = if optimizer.nesterov { ", nesterov" } else { "" };
        format!("momentum {} ({}{ahead})", optimizer.momentum, optimizer.form)
    },
};

/// One step. Which multiply-adds it has depends on the numbers of the step:
///
/// | | Eq. 9, separate | Eq. 10, absorbed |
/// |---|---|---|
/// | gradient | `t ← s·g`, `t ← t + λ·w` | the same, `t ← η·t` |
/// | momentum | `v ← t + k·v` | the same |
/// | weights | `w ← w − η·v` | `w ← w − v` |
/// | Nesterov's | `t ← t + m·v`, `w ← w − η·t` | `t ← t + m·v`, `w ← w − t` |
///
/// `again`: k is m, since the rate has changed since the step before and not since the step's earlier update.
fn update(factors: &[Coefficient], again: bool) -> Formula {
    let (update, g) = gradient(factors);
    update
        .add(T, g, Coefficient::WeightDecay, W)
        .scale(T, Coefficient::Absorbed, T)
        .add(V, T, Coefficient::Kept { again }, V)
        .add(T, T, Coefficient::Ahead, V)
        .subtract(W, W, Coefficient::Taken { ahead: true }, T)
        .subtract(W, W, Coefficient::Taken { ahead: false }, V)
}

impl Optimizer {
    /// One step of momentum SGD. Gradients are already divided by the samples of the global batch; `scale` is 1, or the
    /// global batch over the samples of an update that covers fewer. `again`: it is not the step's first update of these
    /// parameters.
    ///
    /// ```
    /// # use lockstep_models::{Buffer, Optimizer, SgdStep};
    /// // It reads g, w and v and writes v and w, whatever its form; three multiply-adds are the least.
    /// let update = Optimizer::update(1.0, false);
    /// let accesses: Vec<(Buffer, u64)> = update.accesses().collect();
    /// assert_eq!(accesses, [(Buffer::Gradients, 1), (Buffer::Parameters, 2), (Buffer::State(0), 2)]);
    /// assert_eq!(update.bind(&SgdStep::plain(0.1, 0.9).into()).terms.len(), 3);
    /// ```
    pub fn update(scale: f64, again: bool) -> Formula {
        UpdateRule::Sgd.update(&Optimizer::scaled(scale), again)
    }
}
