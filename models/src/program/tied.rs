//! Says how two layers with one parameter make its gradient, and declares the buffer in which they do so where gradients of
//! micro-batches accumulate.
//!
//! A micro-batch's gradient is the sum of two, and is rounded and added to those of earlier micro-batches as one: so it is made in
//! a buffer of its own. Without accumulation in fp32 it is made where gradients are. Layers on two stages of a pipeline accumulate
//! apart, and the stages add up what each has.

use crate::task::Op;
use crate::{Buffer, Declared, LayerId, Model, Phase, Program, Role, Tie};

/// The name of the buffer.
const NAME: &str = "gradient of the tied weight";

/// How the gradient of a chain's parameters is made, and the buffer for it, if it is made in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientShare {
    /// By the chain alone.
    Alone,
    /// The chain makes the first summand.
    First(Option<Buffer>),
    /// The chain adds the last summand, and then the sum to what it is to be added to.
    Last(Option<Buffer>),
}

impl Program {
    /// The number of the declared buffer in which two layers make the gradient of their parameter, if they do so in one.
    pub fn sum_of_tied(&self) -> Option<usize> {
        self.buffers.iter().position(|declared| declared.name == NAME)
    }

    /// How the gradient of the parameters of a chain is made.
    pub fn gradient_share(&self, chain: usize) -> GradientShare {
        let buffer = || self.sum_of_tied().map(Buffer::Declared);
        match self.model.tie().filter(|tie| !are_apart(*tie, &self.chains, &self.roles)) {
            Some(tie) if self.chains[chain].contains(&tie.reader) => GradientShare::First(buffer()),
            Some(tie) if self.chains[chain].contains(&tie.owner) => GradientShare::Last(buffer()),
            _ => GradientShare::Alone,
        }
    }

    /// Whether ranks of `role` make the gradient of a parameter of two layers in this buffer.
    pub(crate) fn sums_in(&self, role: &Role, buffer: Buffer) -> bool {
        let is_sum = self.sum_of_tied().map(Buffer::Declared) == Some(buffer);
        let shares =
            |op: &Op| matches!(op, Op::Compute { chain, .. } if self.gradient_share(*chain) != GradientShare::Alone);
        is_sum && role.tasks.iter().any(|task| shares(&task.op))
    }
}

/// Whether the layers are on two stages, which add up what they have made after all micro-batches.
fn are_apart(tie: Tie, chains: &[Vec<LayerId>], roles: &[Role]) -> bool {
    let has = |role: &Role, id: LayerId| {
        role.tasks.iter().any(|task| matches!(&task.op, Op::Compute { chain, .. } if chains[*chain].contains(&id)))
    };
    roles.iter().any(|role| role.order().is_some() && has(role, tie.owner) != has(role, tie.reader))
}

/// The buffer of a model with a tie, where some role accumulates gradients, or rounds them.
pub(crate) fn declared_sum(model: &Model, chains: &[Vec<LayerId>], roles: &[Role], rounds: bool) -> Option<Declared> {
    let Tie { owner, .. } = model.tie().filter(|tie| !are_apart(*tie, chains, roles))?;
    let accumulates = |role: &Role| {
        let makes = |op: &Op| match op {
            Op::Compute { chain, phase: Phase::Backward | Phase::BackwardWeight, .. } => {
                chains[*chain].contains(&owner)
            }
            _ => false,
        };
        (0..role.tasks.len()).any(|task| makes(&role.tasks[task].op) && role.adds_gradients(task, true))
    };
    let elements = model.node(owner).parameters[0].elements();
    (rounds || roles.iter().any(accumulates)).then(|| Declared::scratch(NAME, elements))
}
