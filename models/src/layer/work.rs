//! Counts the cost of a layer's passes: floating-point operations and elements moved, from shapes alone.
//!
//! A multiply-add is 2 FLOPs (Iandola et al. 2016, §3) and a bias initializes the accumulator at no cost, so that
//! forward and backward of convolutions and dense layers are exactly three times forward. Every tensor that a pass
//! needs is counted as read or written once; sums of gradients from several consumers are not part of any
//! layer. What a pass reads and writes follows from its operands; the FLOPs of a kind are in its file.

use lockstep_topology::Dtype;

/// One of the three computations of a layer in a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// Output from inputs.
    Forward,
    /// Gradient of the inputs from the gradient of the output.
    BackwardData,
    /// Gradient of the parameters from the gradient of the output.
    BackwardWeight,
}

impl Pass {
    /// Its name in tables: `forward`, `backward-data`, `backward-weight`.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Forward => "forward",
            Pass::BackwardData => "backward-data",
            Pass::BackwardWeight => "backward-weight",
        }
    }
}

/// The cost of a computation before any hardware or number format is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Floating-point operations, a multiply-add being two.
    pub flops: f64,
    /// Elements read, each tensor once.
    pub elements_read: f64,
    /// Elements written, each tensor once.
    pub elements_written: f64,
    /// Bytes of what the kernel keeps for its backward pass, written or read: its format is its own.
    pub kept_bytes: f64,
}

impl Work {
    /// Elements read and written.
    pub fn elements(&self) -> f64 {
        self.elements_read + self.elements_written
    }

    /// Bytes read and written where every element has the format, with what the kernel keeps.
    pub fn bytes(&self, dtype: Dtype) -> f64 {
        self.elements() * dtype.bytes(1) as f64 + self.kept_bytes
    }

    /// This many FLOPs and elements read and written.
    pub(crate) fn of(flops: f64, elements_read: f64, elements_written: f64) -> Work {
        Work { flops, elements_read, elements_written, kept_bytes: 0.0 }
    }

    /// The same, with this many numbers that the kernel keeps.
    pub(crate) fn with_kept(self, numbers: f64, dtype: Dtype) -> Work {
        Work { kept_bytes: dtype.bytes(numbers as u64) as f64, ..self }
    }
}
