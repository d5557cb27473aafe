//! Defines the memory layouts of a tensor of samples: sample by sample, or sixteen samples interleaved.
//!
//! Convolutions of whole sixteens process sixteen images at once ([`super::interleaved`]). Where the neighbouring
//! kernels can too, the tensors between them stay interleaved and are not transposed. Every result is the same to the
//! bit either way.

use crate::workspace::Sixteen;

/// Number of interleaved samples.
pub(crate) const SIDE_BY_SIDE: usize = 16;

/// The order of the elements of a tensor `[samples, channels, place]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Layout {
    /// In this order.
    #[default]
    Planes,
    /// `[sixteen, channels, place, sample of the sixteen]`, for a multiple of sixteen samples.
    Sixteens,
}

/// The layouts that a kernel accepts for its inputs and output; gradients have the layout of their tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// All in planes.
    Planes,
    /// The same layout for all, whichever it is.
    Alike,
    /// Any layout for the inputs, planes for the output.
    PlanesBehind,
    /// Any layout for each.
    Free,
}

impl Layout {
    /// Number of interleaved samples in this layout.
    pub(crate) fn samples(self) -> usize {
        match self {
            Layout::Planes => 1,
            Layout::Sixteens => SIDE_BY_SIDE,
        }
    }
}

/// Elements as lines.
///
/// # Panics
/// When they are not whole lines: the memory plan aligns every tensor to a line.
pub(crate) fn lines(elements: &[f32]) -> &[Sixteen] {
    // SAFETY: a line is sixteen elements and nothing else, and the prefix and suffix are the unaligned elements.
    let (before, lines, behind) = unsafe { elements.align_to::<Sixteen>() };
    assert!(before.is_empty() && behind.is_empty(), "a tensor in sixteens is whole lines");
    lines
}

/// The same, writable.
///
/// # Panics
/// As [`lines`].
pub(crate) fn lines_mut(elements: &mut [f32]) -> &mut [Sixteen] {
    // SAFETY: as above.
    let (before, lines, behind) = unsafe { elements.align_to_mut::<Sixteen>() };
    assert!(before.is_empty() && behind.is_empty(), "a tensor in sixteens is whole lines");
    lines
}
