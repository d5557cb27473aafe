//! Holds the tensors of a micro-batch in host memory: an arena that learners of a device share, laid out by the memory
//! plan.
//!
//! A task gets disjoint slices of the arena for the ranges that it reads and writes, so a plan with overlapping ranges
//! would end the run. Poisoning what the plan considers dead shows that nothing is overwritten before a later task
//! reads it.

use std::ops::Range;

use lockstep_topology::Dtype;

use super::Workspace;
use crate::device::TensorAddress;
use crate::device::input_memory::InputMemory;
use crate::number::{numbers, numbers_mut};
use crate::pool::{Arenas, Slab};

/// The input of the micro-batch, and the tensors computed from it.
pub(super) struct Tensors {
    /// Bytes of the arena.
    bytes: usize,
    arenas: Arenas,
    slab: Option<Slab>,
    /// The number of the previous arena.
    preferred: Option<usize>,
    /// The samples.
    pub(super) input: InputMemory,
}

impl Tensors {
    /// An arena of `bytes` bytes, and an input.
    pub(super) fn new(bytes: usize, input: InputMemory, arenas: &Arenas) -> Tensors {
        Tensors { bytes, arenas: arenas.clone(), slab: None, preferred: None, input }
    }

    /// Takes an arena unless it has one.
    pub(super) fn begin(&mut self) -> &mut Slab {
        let (bytes, arenas, preferred) = (self.bytes, &self.arenas, &mut self.preferred);
        self.slab.get_or_insert_with(|| {
            let mut slab = arenas.pool.take(bytes, *preferred);
            *preferred = Some(slab.number);
            if arenas.poison {
                slab.bytes_mut().fill(NAN);
            }
            slab
        })
    }

    /// The arena's workspace, to be taken while a kernel runs and put back.
    pub(super) fn workspace(&mut self) -> &mut Workspace {
        &mut self.begin().workspace
    }

    /// Returns the arena to the pool.
    pub(super) fn end(&mut self) {
        if let Some(slab) = self.slab.take() {
            self.arenas.pool.give(slab);
        }
    }

    /// The tensors that a task reads, and those that it writes; an empty slice for those in place or without a place.
    pub(super) fn views(
        &mut self,
        reads: &[&TensorAddress],
        writes: &[&TensorAddress],
    ) -> (Vec<&[f32]>, Vec<&mut [f32]>) {
        let (read, written, _) = self.views_beside(reads, writes);
        (read, written)
    }

    /// The same, beside the samples as bytes where they are integers.
    #[expect(clippy::type_complexity, reason = "slices of one borrow")]
    pub(super) fn views_beside(
        &mut self,
        reads: &[&TensorAddress],
        writes: &[&TensorAddress],
    ) -> (Vec<&[f32]>, Vec<&mut [f32]>, Option<(&[u8], Dtype)>) {
        // Two readers may share a place: flatten's output and its input.
        let wanted: Vec<Range<usize>> = reads.iter().map(|place| range(place)).collect();
        let mut distinct = wanted.clone();
        distinct.sort_by_key(|range| (range.start, range.end));
        distinct.dedup();
        let all: Vec<Range<usize>> = distinct.iter().cloned().chain(writes.iter().map(|place| range(place))).collect();
        self.begin();
        let (Some(slab), input) = (&mut self.slab, &self.input) else { unreachable!("just taken") };
        let mut parts: Vec<&mut [f32]> = carve(slab.bytes_mut(), &all).into_iter().map(numbers_mut).collect();
        let outputs = parts.split_off(distinct.len());
        let parts: Vec<&[f32]> = parts.into_iter().map(|part| &*part).collect();
        let read = |(place, range): (&&TensorAddress, &Range<usize>)| match place {
            TensorAddress::Input => input.values(),
            _ => distinct.iter().position(|other| other == range).map_or(&[][..], |index| parts[index]),
        };
        (reads.iter().zip(&wanted).map(read).collect(), outputs, input.integers())
    }

    /// A tensor of the current micro-batch.
    pub(super) fn tensor(&self, place: &TensorAddress) -> &[f32] {
        match (place, &self.slab) {
            (TensorAddress::Input, _) => self.input.values(),
            (_, Some(slab)) => numbers(&slab.bytes()[range(place)]),
            (_, None) => &[],
        }
    }

    /// The same, writable.
    pub(super) fn tensor_mut(&mut self, place: &TensorAddress) -> &mut [f32] {
        match place {
            TensorAddress::Input => self.input.values_mut(),
            _ => numbers_mut(&mut self.begin().bytes_mut()[range(place)]),
        }
    }

    /// Marks ranges as dead.
    pub(super) fn forget(&mut self, ranges: &[Range<usize>]) {
        if let (Some(slab), true) = (&mut self.slab, self.arenas.poison) {
            slab.workspace.fill(f32::NAN);
            let bytes = slab.bytes_mut();
            ranges.iter().for_each(|range| bytes[range.clone()].fill(NAN));
        }
    }
}

fn range(place: &TensorAddress) -> Range<usize> {
    match place {
        TensorAddress::Arena(range) => range.clone(),
        TensorAddress::Nothing | TensorAddress::InPlace | TensorAddress::Input => 0..0,
    }
}

/// A byte of which any number of a floating-point format is NaN.
const NAN: u8 = 0xff;

/// Cuts ranges out of a slice; empty ones may be anywhere.
///
/// # Panics
/// When two overlap.
fn carve<'a>(slice: &'a mut [u8], ranges: &[Range<usize>]) -> Vec<&'a mut [u8]> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|index| !ranges[*index].is_empty()).collect();
    order.sort_by_key(|index| ranges[*index].start);
    let mut parts: Vec<&'a mut [u8]> = ranges.iter().map(|_| <&mut [u8]>::default()).collect();
    let (mut rest, mut at) = (slice, 0);
    for index in order {
        let range = &ranges[index];
        assert!(range.start >= at, "the memory plan puts two tensors of a task into one place: {ranges:?}");
        let (part, behind) = rest.split_at_mut(range.start - at).1.split_at_mut(range.len());
        (parts[index], rest, at) = (part, behind, range.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::carve;

    #[test]
    fn ranges_are_cut_out_in_any_order() {
        let mut slice: Vec<u8> = (0..10).collect();
        let parts = carve(&mut slice, &[6..8, 3..3, 0..2, 2..3, 0..0]);
        assert_eq!(parts, [&[6, 7][..], &[], &[0, 1], &[2], &[]]);
    }

    #[test]
    #[should_panic(expected = "two tensors of a task")]
    fn overlapping_ranges_are_refused() {
        carve(&mut [0; 4], &[2..4, 0..3]);
    }
}
