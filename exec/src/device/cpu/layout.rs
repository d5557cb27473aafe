//! Defines the memory layouts of a tensor of samples: sample by sample, or a register's width of samples interleaved.
//!
//! Convolutions process as many images at once ([`super::interleaved`]). Where the neighbouring kernels can too, the
//! tensors between them stay interleaved and are not transposed. Every result is the same to the bit either way.

use crate::simd::Instructions;

/// Number of interleaved samples: those of a register of AVX-512, or of AVX2. Narrower registers take parts.
pub(crate) fn side_by_side() -> usize {
    if Instructions::current() == Instructions::Avx512 { 16 } else { 8 }
}

/// Evaluates an expression with the constant N equal to [`side_by_side`].
macro_rules! for_side_by_side {
    ($work:expr) => {
        match $crate::device::cpu::layout::side_by_side() {
            16 => {
                const N: usize = 16;
                $work
            }
            _ => {
                const N: usize = 8;
                $work
            }
        }
    };
}
pub(super) use for_side_by_side;

/// The order of the elements of a tensor `[samples, channels, place]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Layout {
    /// In this order.
    #[default]
    Planes,
    /// `[group, channels, place, sample of the group]`, for whole groups of [`side_by_side`] samples.
    SideBySide,
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
            Layout::SideBySide => side_by_side(),
        }
    }
}

/// Elements as places of N images side by side.
///
/// # Panics
/// When they are not whole places.
pub(crate) fn lines<const N: usize>(elements: &[f32]) -> &[[f32; N]] {
    let (lines, rest) = elements.as_chunks();
    assert!(rest.is_empty(), "a tensor side by side is whole places");
    lines
}

/// The same, writable.
///
/// # Panics
/// As [`lines`].
pub(crate) fn lines_mut<const N: usize>(elements: &mut [f32]) -> &mut [[f32; N]] {
    let (lines, rest) = elements.as_chunks_mut();
    assert!(rest.is_empty(), "a tensor side by side is whole places");
    lines
}
