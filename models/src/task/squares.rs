//! Describes the sum of the squares of gradients, from which the factor follows that clips them.

use std::ops::Range;

use crate::{AxisSet, Buffer};

/// Adds the squares of a rank's own elements of a range to the sum in [`Buffer::Norm`]: those that
/// [`Program::counted`](crate::Program::counted) lists.
#[derive(Debug, Clone, PartialEq)]
pub struct Squares {
    /// Gradients, or their sums over micro-batches.
    pub buffer: Buffer,
    /// Elements of the buffer.
    pub range: Range<u64>,
    /// The axes along which the range is sharded, a part for each rank
    /// ([`Program::own_part`](crate::Program::own_part)).
    pub shared: AxisSet,
    /// The axes along which ranks add their sums: what all ranks along one have counts on the first.
    pub axes: AxisSet,
    /// Whether it is the first of a step, which begins with zero.
    pub begins: bool,
}
