//! How a tensor of samples lies in memory: sample by sample, or sixteen of them side by side.
//!
//! Convolutions of whole sixteens work on sixteen images at once ([`super::interleaved`]); where their neighbours can too, the
//! tensors between them stay so, and nobody turns them. Every result is the same to the bit either way.

use crate::workspace::Sixteen;

/// Samples side by side.
pub(crate) const SIDE_BY_SIDE: usize = 16;

/// Where the elements of a tensor `[samples, channels, place]` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Layout {
    /// In this order.
    #[default]
    Planes,
    /// `[sixteen, channels, place, sample of the sixteen]`, for a multiple of sixteen samples.
    Sixteens,
}

/// What a kernel asks of the layouts of its inputs and its output, whose gradients lie as they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// All in planes.
    Planes,
    /// All the same, whichever it is.
    Alike,
    /// The inputs as they like, the output in planes.
    PlanesBehind,
    /// Each as it likes.
    Free,
}

impl Layout {
    /// Samples that lie side by side.
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
/// When they are not whole lines: the memory plan lets every tensor begin on one.
pub(crate) fn lines(elements: &[f32]) -> &[Sixteen] {
    // SAFETY: a line is sixteen elements and nothing else, and the prefix and suffix are what is not aligned so.
    let (before, lines, behind) = unsafe { elements.align_to::<Sixteen>() };
    assert!(before.is_empty() && behind.is_empty(), "a tensor in sixteens is whole lines");
    lines
}

/// The same to be written.
///
/// # Panics
/// As [`lines`].
pub(crate) fn lines_mut(elements: &mut [f32]) -> &mut [Sixteen] {
    // SAFETY: as above.
    let (before, lines, behind) = unsafe { elements.align_to_mut::<Sixteen>() };
    assert!(before.is_empty() && behind.is_empty(), "a tensor in sixteens is whole lines");
    lines
}
