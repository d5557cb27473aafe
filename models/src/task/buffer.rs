//! Names the memory areas that exchanges, copies and formulas use.

use lockstep_topology::Dtype;

use crate::{Gradients, Moments, Precision};

/// A memory area that every rank of a role has; sizes are in elements of
/// [`Program::dtype`](crate::Program::dtype).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// All learnable parameters, in the model's parameter order; a part of them where layers read [`Buffer::Weights`].
    Parameters,
    /// The parameters as layers read them where each rank keeps a part: gathered before their use, and free after it.
    Weights,
    /// Their gradients, in the same order.
    Gradients,
    /// What the optimizer keeps for each parameter, in the same order, of the parameters that a rank updates: an index
    /// into [`UpdateRule::states`](crate::UpdateRule::states).
    State(usize),
    /// The sum of the squares of all gradients, as [`SquareSum::elements`](crate::SquareSum::elements) has it; empty
    /// where gradients are not clipped.
    Norm,
    /// One that the program declares: an index into [`Program::buffers`](crate::Program::buffers).
    Declared(usize),
}

impl Buffer {
    /// The sums of gradients over micro-batches, where ranks accumulate their parts: the first buffer that such a
    /// program declares.
    pub const SUMS: Buffer = Buffer::Declared(0);

    /// The format of its numbers, in memory and in messages: those of gradients and of the optimizer's state are chosen, a
    /// declared buffer of `declared` states its own, all others are fp32.
    pub fn dtype(
        self,
        (precision, gradients, moments): (Precision, Gradients, Moments),
        declared: &[Declared],
    ) -> Dtype {
        match self {
            Buffer::Gradients => gradients.dtype(precision),
            Buffer::State(_) => moments.dtype(),
            Buffer::Declared(index) => declared.get(index).map_or(Dtype::F32, |buffer| buffer.dtype),
            Buffer::Parameters | Buffer::Weights | Buffer::Norm => Dtype::F32,
        }
    }
}

/// A buffer besides those of the model's parameters; it keeps its content from iteration to iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Elements on each rank, unless it is sharded over ranks.
    pub elements: u64,
    /// The format of its elements, in memory and in messages.
    pub dtype: Dtype,
    /// Its content before the first iteration, if it is a part of the training's state: all ranks have the same content
    /// between iterations, and checkpoints contain it. Other buffers begin with zeros.
    pub state: Option<Start>,
}

/// What a buffer contains before the first iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Zeros.
    Zeros,
    /// The initial parameters, in the model's parameter order.
    Parameters,
}

impl Declared {
    /// A buffer of `elements` fp32 elements that is no part of the training's state.
    pub fn scratch(name: impl Into<String>, elements: u64) -> Declared {
        Declared { name: name.into(), elements, dtype: Dtype::F32, state: None }
    }

    /// The same buffer with elements of `dtype`.
    pub fn of_dtype(self, dtype: Dtype) -> Declared {
        Declared { dtype, ..self }
    }

    /// A buffer of `elements` fp32 elements that is a part of the training's state and begins as `start`.
    pub fn state(name: impl Into<String>, elements: u64, start: Start) -> Declared {
        Declared { name: name.into(), elements, dtype: Dtype::F32, state: Some(start) }
    }
}
