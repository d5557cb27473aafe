//! Describes tensors: how one is laid out over the ranks, and the formats of its numbers.

mod dimension;
mod layout;
mod precision;
mod sample_tensor;
mod shape;

pub use dimension::Dimension;
pub(crate) use layout::transition;
pub use layout::{AxisLayout, Layout};
pub use precision::{Gradients, Moments, Precision};
pub use sample_tensor::SampleTensor;
pub use shape::{ImageShape, Shape};
