//! Defines the memory layouts of a tensor of samples: sample by sample, or groups of 4, 8 or 16 samples interleaved.
//!
//! Convolutions process as many images at once ([`super::interleaved`]). Where the neighbouring kernels can too, the
//! tensors between them stay interleaved and are not transposed. Every result is the same to the bit either way.

use lockstep_models::samples_per_group;

use crate::simd::Instructions;

/// Most interleaved samples: those of a register of AVX-512, or of AVX2. Narrower registers take parts.
pub(crate) fn most_side_by_side() -> usize {
    if Instructions::current() == Instructions::Avx512 { 16 } else { 8 }
}

/// Number of interleaved samples for batches of this many, if they fill most of their groups. A wider register holds
/// several places.
pub(crate) fn side_by_side(samples: usize) -> Option<usize> {
    samples_per_group(samples as u64, most_side_by_side() as u64).map(|group| group as usize)
}

/// Lines of N samples that the widest register holds.
pub(crate) fn lines_of_register<const N: usize>() -> usize {
    (most_side_by_side() / N).max(1)
}

/// Evaluates an expression with the constant N equal to a number of interleaved samples.
macro_rules! for_side_by_side {
    ($samples:expr, $work:expr) => {
        match $samples {
            16 => {
                const N: usize = 16;
                $work
            }
            8 => {
                const N: usize = 8;
                $work
            }
            _ => {
                const N: usize = 4;
                $work
            }
        }
    };
}
pub(super) use for_side_by_side;

/// Evaluates an expression with the constant N equal to each number of interleaved samples.
#[cfg(test)]
macro_rules! for_each_group {
    ($work:expr) => {{
        {
            const N: usize = 4;
            $work
        }
        {
            const N: usize = 8;
            $work
        }
        {
            const N: usize = 16;
            $work
        }
    }};
}
#[cfg(test)]
pub(super) use for_each_group;

/// The order of the elements of a tensor `[samples, channels, place]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Layout {
    /// In this order.
    #[default]
    Planes,
    /// `[group, channels, place, sample of the group]`, for whole groups of this number of samples.
    SideBySide(usize),
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
    /// Whether samples are interleaved.
    pub(crate) fn is_interleaved(self) -> bool {
        self != Layout::Planes
    }

    /// Number of interleaved samples in this layout.
    pub(crate) fn samples(self) -> usize {
        match self {
            Layout::Planes => 1,
            Layout::SideBySide(samples) => samples,
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
