//! Names the memory areas that exchanges, copies and formulas use.

/// A memory area that every rank of a role has; sizes are in elements of
/// [`Program::element_bytes`](crate::Program::element_bytes) bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// All learnable parameters, in the model's parameter order; a part of them where layers read [`Buffer::Weights`].
    Parameters,
    /// The parameters as layers read them where each rank keeps a part: gathered before their use, and free after it.
    Weights,
    /// Their gradients, in the same order.
    Gradients,
    /// The optimizer's momentum, in the same order, of the parameters that a rank updates.
    Momentum,
    /// One that the program declares: an index into [`Program::buffers`](crate::Program::buffers).
    Declared(usize),
}

impl Buffer {
    /// The sums of gradients over micro-batches, where ranks accumulate their parts: the first buffer that such a
    /// program declares.
    pub const SUMS: Buffer = Buffer::Declared(0);
}

/// A buffer besides those of the model's parameters; it starts with zeros and keeps its content from iteration
/// to iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// fp32 elements on each rank, unless it is sharded over ranks.
    pub elements: u64,
}
