//! Defines the shape of a sample.

use std::fmt;

/// Most elements one sample may have in any tensor: 8 GiB of fp32, and an index still fits a signed 32-bit integer.
const MAX_ELEMENTS: u64 = (1 << 31) - 1;

/// Shape of one sample: channels, height, width, in this order in memory (a batch is `[samples, channels, height,
/// width]`). A flat vector of n features is `n × 1 × 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Feature maps.
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl Shape {
    /// A flat vector of `features`.
    pub fn flat(features: u32) -> Shape {
        Shape { channels: features, height: 1, width: 1 }
    }

    /// Elements of one sample, channels · height · width (`u64::MAX` where that does not fit).
    pub fn elements(&self) -> u64 {
        (u64::from(self.channels) * u64::from(self.height)).saturating_mul(u64::from(self.width))
    }

    /// The shape, unless a side is zero or a sample does not fit into memory that can be indexed.
    pub(super) fn checked(self) -> Result<Shape, String> {
        if self.channels == 0 || self.height == 0 || self.width == 0 {
            return Err(format!("its output is {self}: every size must be at least 1"));
        }
        if self.elements() > MAX_ELEMENTS {
            return Err(format!(
                "its output of {self} has more than {MAX_ELEMENTS} elements per sample: make it smaller"
            ));
        }
        Ok(self)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}×{}", self.channels, self.height, self.width)
    }
}
