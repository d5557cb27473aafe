//! Maps the elements of all buffers to a rank's memory.

use std::ops::Range;

use crate::{Buffer, Program, Role};

use super::element_addresses::ElementAddresses;
use super::plan::Reuse;

/// The positions of all buffers of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferAddresses {
    parameters: ElementAddresses,
    weights: ElementAddresses,
    gradients: ElementAddresses,
    /// Those of each state of the optimizer.
    state: ElementAddresses,
    states: usize,
    norm: ElementAddresses,
    declared: Vec<ElementAddresses>,
}

impl BufferAddresses {
    /// Those of `rank` of a role, gradients as `reuse` has them. Of a declared buffer ranks may hold less.
    pub fn of_role(program: &Program, (role, rank): (&Role, u32), reuse: Reuse) -> BufferAddresses {
        let of = |buffer| ElementAddresses::of(program, (role, rank), buffer);
        BufferAddresses {
            parameters: of(Buffer::Parameters),
            weights: ElementAddresses::of_weights(program, (role, rank), reuse),
            gradients: ElementAddresses::of_gradients(program, (role, rank), reuse),
            state: of(Buffer::State(0)),
            states: program.rule.states().len(),
            norm: of(Buffer::Norm),
            declared: (0..program.buffers.len()).map(|index| of(Buffer::Declared(index))).collect(),
        }
    }

    /// Those of one buffer.
    pub fn of(&self, buffer: Buffer) -> &ElementAddresses {
        match buffer {
            Buffer::Parameters => &self.parameters,
            Buffer::Weights => &self.weights,
            Buffer::Gradients => &self.gradients,
            Buffer::State(_) => &self.state,
            Buffer::Norm => &self.norm,
            Buffer::Declared(index) => &self.declared[index],
        }
    }

    /// The states that the optimizer keeps.
    pub fn states(&self) -> impl Iterator<Item = Buffer> + use<> {
        (0..self.states).map(Buffer::State)
    }

    /// The position of elements `range` of a buffer.
    ///
    /// # Panics
    /// As [`ElementAddresses::place`].
    pub fn place(&self, buffer: Buffer, range: &Range<usize>) -> Range<usize> {
        self.of(buffer).place(range)
    }

    /// The parts of `range` that are contiguous in all of the `buffers`.
    pub fn pieces(&self, buffers: &[Buffer], range: &Range<usize>) -> Vec<Range<usize>> {
        let ends = buffers.iter().flat_map(|buffer| self.of(*buffer).pieces()).map(|(piece, _)| piece.end);
        let mut cuts: Vec<usize> = ends.filter(|end| range.start < *end && *end < range.end).collect();
        cuts.push(range.end);
        cuts.sort_unstable();
        cuts.dedup();
        let mut start = range.start;
        cuts.into_iter().map(|end| std::mem::replace(&mut start, end)..end).collect()
    }
}
