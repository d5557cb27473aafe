//! Describes tensors: how one is laid out over the ranks, and the formats of its numbers.

mod layout;
mod precision;

pub(crate) use layout::transition;
pub use layout::{AxisLayout, Dimension, Layout};
pub use precision::{Gradients, Precision};
