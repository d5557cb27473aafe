//! Builds the optimizer's step on parameters as a formula.

use super::Optimizer;
use crate::{Buffer, Coefficient, Formula, Operand};

const W: Operand = Operand::Buffer(Buffer::Parameters);
const G: Operand = Operand::Buffer(Buffer::Gradients);
const V: Operand = Operand::Buffer(Buffer::Momentum);
const T: Operand = Operand::Local(0);

impl Optimizer {
    /// One step of momentum SGD (Goyal et al. 2017, §3). Which multiply-adds it has depends on the numbers of the step:
    ///
    /// | | Eq. 9, separate | Eq. 10, absorbed |
    /// |---|---|---|
    /// | gradient | `t ← s·g`, `t ← t + λ·w` | the same, `t ← η·t` |
    /// | momentum | `v ← t + k·v` | the same |
    /// | weights | `w ← w − η·v` | `w ← w − v` |
    /// | Nesterov's | `t ← t + m·v`, `w ← w − η·t` | `t ← t + m·v`, `w ← w − t` |
    ///
    /// Gradients are already divided by the samples of the global batch. `scale` (s) is 1, or the global batch over the
    /// samples of an update that covers fewer. `again`: it is not the step's first update of these parameters, so k is
    /// m, since the rate has changed since the step before and not since that update.
    ///
    /// ```
    /// # use lockstep_models::{Buffer, Optimizer, SgdStep};
    /// // It reads g, w and v and writes v and w, whatever its form; three multiply-adds are the least.
    /// let update = Optimizer::update(1.0, false);
    /// assert_eq!((update.accesses(), update.buffers()[2]), (5, Buffer::Momentum));
    /// assert_eq!(update.bind(&SgdStep::plain(0.1, 0.9).into()).terms.len(), 3);
    /// ```
    pub fn update(scale: f64, again: bool) -> Formula {
        let update = Formula::new("update");
        let gradient = match scale {
            1.0 => update.add(T, G, Coefficient::WeightDecay, W),
            scale => update.scale(T, Coefficient::Constant(scale), G).add(T, T, Coefficient::WeightDecay, W),
        };
        gradient
            .scale(T, Coefficient::Absorbed, T)
            .add(V, T, Coefficient::Kept { again }, V)
            .add(T, T, Coefficient::Ahead, V)
            .subtract(W, W, Coefficient::Taken { ahead: true }, T)
            .subtract(W, W, Coefficient::Taken { ahead: false }, V)
    }
}
