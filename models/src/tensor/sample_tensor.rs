//! `SampleTensor`: the shape and the number format of what a sample has of a tensor that data sets give: inputs and labels.

use std::fmt;

use lockstep_topology::Dtype;

use super::{dimension::Dimension, shape::Shape};

/// What one sample has of an input or of its labels.
///
/// ```
/// # use lockstep_models::{Dimension, SampleTensor, Shape};
/// # use lockstep_topology::Dtype;
/// let image = SampleTensor::values(Shape::of_image(3, 32, 32));
/// let class = SampleTensor::labels(Shape::SINGLE);
/// let next = SampleTensor::labels(Shape::new(&[(Dimension::Position, 128)]));
/// assert_eq!([image, class, next].map(|of| (of.elements(), of.bytes())), [(3072, 12288), (1, 4), (128, 512)]);
/// assert_eq!([image, class, next].map(|of| of.to_string()), ["fp32 of 3×32×32", "one u32", "u32 of position 128"]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleTensor {
    /// Its dimensions.
    pub shape: Shape,
    /// The format of its numbers.
    pub dtype: Dtype,
}

impl SampleTensor {
    /// Values of fp32.
    pub const fn values(shape: Shape) -> SampleTensor {
        SampleTensor { shape, dtype: Dtype::F32 }
    }

    /// A label for each element of `shape`.
    pub const fn labels(shape: Shape) -> SampleTensor {
        SampleTensor { shape, dtype: Dtype::U32 }
    }

    /// A token at each of so many positions, each below `tokens`, in the smallest format that holds them.
    pub const fn tokens(positions: u32, tokens: u32) -> SampleTensor {
        let dtype = if tokens <= 1 << 16 { Dtype::U16 } else { Dtype::U32 };
        SampleTensor { shape: Shape::new(&[(Dimension::Position, positions)]), dtype }
    }

    /// Numbers of a sample.
    pub fn elements(&self) -> u64 {
        self.shape.elements()
    }

    /// Bytes of a sample.
    pub fn bytes(&self) -> u64 {
        self.dtype.bytes(self.elements())
    }
}

impl fmt::Display for SampleTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shape == Shape::SINGLE {
            true => write!(f, "one {}", self.dtype),
            false => write!(f, "{} of {}", self.dtype, self.shape),
        }
    }
}
