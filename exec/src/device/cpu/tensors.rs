//! Holds the tensors of a micro-batch in host memory: an arena that learners of a device share, laid out by the memory
//! plan.
//!
//! A task gets disjoint slices of the arena for the ranges that it reads and writes, so a plan with overlapping ranges
//! would end the run. Poisoning what the plan considers dead shows that nothing is overwritten before a later task
//! reads it. Kernels compute in fp32: of tensors in bf16 a task gets wider copies, and what it has written there is
//! rounded into the arena after it.

use std::borrow::Cow;
use std::ops::Range;

use lockstep_topology::Dtype;

use super::{Threads, Workspace};
use crate::bf16::{Bf16, add_rounded, narrow, round, widen};
use crate::device::TensorAddress;
use crate::device::input_memory::InputMemory;
use crate::number::{numbers, numbers_mut};
use crate::pool::{Arenas, Slab};

/// Elements that a thread widens or rounds at once.
const TILE: usize = 1 << 14;

/// The input of the micro-batch, and the tensors computed from it.
pub(super) struct Tensors {
    /// Bytes of the arena.
    bytes: usize,
    /// The format of its tensors.
    dtype: Dtype,
    arenas: Arenas,
    slab: Option<Slab>,
    /// The number of the previous arena.
    preferred: Option<usize>,
    /// The samples.
    pub(super) input: InputMemory,
    threads: Threads,
}

/// The bytes of a tensor, and the format of its numbers.
pub(super) type Stored<'a> = (&'a [u8], Dtype);

/// What a task asks for.
pub(super) struct Wanted<'a> {
    /// Tensors that it reads.
    pub(super) reads: &'a [&'a TensorAddress],
    /// Tensors that it writes, each with whether it reads what is there first.
    pub(super) writes: &'a [(&'a TensorAddress, bool)],
    /// Elements of scratch in fp32 for parameters and for their gradients, where it does not use these in place.
    pub(super) scratch: [usize; 2],
}

/// Its slices; empty for tensors in place or without a place.
pub(super) struct Views<'a> {
    pub(super) reads: Vec<&'a [f32]>,
    pub(super) writes: Vec<&'a mut [f32]>,
    pub(super) scratch: [&'a mut [f32]; 2],
    /// The samples as bytes, where they are integers.
    pub(super) integers: Option<(&'a [u8], Dtype)>,
}

impl Tensors {
    /// An arena of `bytes` bytes with tensors of `dtype`, and an input.
    pub(super) fn new(
        (bytes, dtype): (usize, Dtype),
        input: InputMemory,
        arenas: &Arenas,
        threads: &Threads,
    ) -> Tensors {
        Tensors { bytes, dtype, arenas: arenas.clone(), slab: None, preferred: None, input, threads: threads.clone() }
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

    /// Whether tasks get wider copies of its tensors.
    pub(super) fn widens(&self) -> bool {
        self.dtype != Dtype::F32
    }

    /// The slices of a task; what it writes counts once [`Tensors::keep`] has been called with the same request.
    pub(super) fn views(&mut self, of: &Wanted<'_>) -> Views<'_> {
        self.begin();
        let layout = Layout::of(of, self.input.values().len());
        let widens = self.widens();
        let (Some(slab), input, threads) = (&mut self.slab, &self.input, &self.threads) else {
            unreachable!("just taken")
        };
        let (bytes, wide) = slab.beside_wide();
        let stored = carve(bytes, &layout.ranges);
        let sizes = if widens { layout.wide_sizes() } else { [[0].as_slice(), &of.scratch].concat() };
        let mut pieces = wide.pieces(&sizes);
        let mut scratch = pieces.split_off(pieces.len() - 2).into_iter();
        let samples = pieces.pop().unwrap_or_default();
        let mut parts: Vec<&mut [f32]> = if widens {
            round_tiles(input.values(), samples, threads);
            for ((from, to), needed) in stored.into_iter().zip(&mut pieces).zip(&layout.needed) {
                if *needed {
                    let from: &[Bf16] = numbers(from);
                    threads.each_chunk(to, TILE, |_, range, to| widen(&from[range], to));
                }
            }
            pieces
        } else {
            stored.into_iter().map(numbers_mut).collect()
        };
        let writes = parts.split_off(layout.reads);
        let (parts, samples): (Vec<&[f32]>, &[f32]) = (parts.into_iter().map(|part| &*part).collect(), samples);
        let read = |place: &&TensorAddress| match place {
            TensorAddress::Input if widens => samples,
            TensorAddress::Input => input.values(),
            _ => layout.part(place).map_or(&[][..], |index| parts[index]),
        };
        let reads = of.reads.iter().map(read).collect();
        let scratch = [(); 2].map(|()| scratch.next().unwrap_or_default());
        Views { reads, writes, scratch, integers: input.integers() }
    }

    /// Rounds what a task has written into the arena.
    pub(super) fn keep(&mut self, of: &Wanted<'_>) {
        if !self.widens() {
            return;
        }
        let layout = Layout::of(of, self.input.values().len());
        let (Some(slab), threads) = (&mut self.slab, &self.threads) else { return };
        let (bytes, wide) = slab.beside_wide();
        let pieces = wide.pieces(&layout.wide_sizes());
        let stored = carve(bytes, &layout.ranges);
        for (from, to) in pieces.into_iter().zip(stored).skip(layout.reads) {
            threads.each_chunk(numbers_mut::<Bf16>(to), TILE, |_, range, to| narrow(&from[range], to));
        }
    }

    /// A tensor of the current micro-batch.
    pub(super) fn tensor(&self, place: &TensorAddress) -> Cow<'_, [f32]> {
        match self.numbers(place) {
            (bytes, Dtype::Bf16) => {
                let stored: &[Bf16] = numbers(bytes);
                let mut values = vec![0.0; stored.len()];
                widen(stored, &mut values);
                Cow::Owned(values)
            }
            (bytes, Dtype::F32) => Cow::Borrowed(numbers(bytes)),
            _ => Cow::Borrowed(&[]),
        }
    }

    /// The bytes of a tensor, and its format.
    pub(super) fn numbers(&self, place: &TensorAddress) -> Stored<'_> {
        match (place, &self.slab) {
            (TensorAddress::Input, _) => self.input.numbers(),
            (_, Some(slab)) => (&slab.bytes()[range(place)], self.dtype),
            (_, None) => (&[], self.dtype),
        }
    }

    /// The same, writable.
    pub(super) fn numbers_mut(&mut self, place: &TensorAddress) -> (&mut [u8], Dtype) {
        match place {
            TensorAddress::Input => {
                let dtype = self.input.numbers().1;
                (self.input.bytes_mut(), dtype)
            }
            _ => {
                let dtype = self.dtype;
                (&mut self.begin().bytes_mut()[range(place)], dtype)
            }
        }
    }

    /// The bytes of two tensors with their formats, the second one of the arena and writable.
    pub(super) fn pair(&mut self, from: &TensorAddress, to: &TensorAddress) -> (Stored<'_>, (&mut [u8], Dtype)) {
        let dtype = self.dtype;
        self.begin();
        let Some(slab) = &mut self.slab else { unreachable!("just taken") };
        let mut parts = carve(slab.bytes_mut(), &[range(from), range(to)]).into_iter();
        let [read, written] = [(); 2].map(|()| parts.next().unwrap_or_default());
        let read = if *from == TensorAddress::Input { self.input.numbers() } else { (&*read, dtype) };
        (read, (written, dtype))
    }

    /// Marks ranges as dead.
    pub(super) fn forget(&mut self, ranges: &[Range<usize>]) {
        if let (Some(slab), true) = (&mut self.slab, self.arenas.poison) {
            slab.workspace.fill(f32::NAN);
            slab.wide.fill(f32::NAN);
            let bytes = slab.bytes_mut();
            ranges.iter().for_each(|range| bytes[range.clone()].fill(NAN));
        }
    }
}

/// The ranges of a task's tensors, and the sizes of their wider copies.
struct Layout {
    /// Those that it reads, each once, then those that it writes.
    ranges: Vec<Range<usize>>,
    /// The number of those that it reads.
    reads: usize,
    /// Of each range, whether the task reads what is there.
    needed: Vec<bool>,
    /// Elements of samples, where it reads them.
    samples: usize,
    scratch: [usize; 2],
}

impl Layout {
    fn of(wanted: &Wanted<'_>, samples: usize) -> Layout {
        // Two readers may share a place: flatten's output and its input.
        let mut ranges: Vec<Range<usize>> = wanted.reads.iter().map(|place| range(place)).collect();
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges.dedup();
        let reads = ranges.len();
        let needed = (0..reads).map(|_| true).chain(wanted.writes.iter().map(|(_, needed)| *needed)).collect();
        ranges.extend(wanted.writes.iter().map(|(place, _)| range(place)));
        let takes_samples = wanted.reads.contains(&&TensorAddress::Input);
        Layout { ranges, reads, needed, samples: if takes_samples { samples } else { 0 }, scratch: wanted.scratch }
    }

    /// Where among the ranges that the task reads a tensor is.
    fn part(&self, place: &TensorAddress) -> Option<usize> {
        self.ranges[..self.reads].iter().position(|other| *other == range(place))
    }

    /// Elements of the ranges, of the samples and of scratch.
    fn wide_sizes(&self) -> Vec<usize> {
        let elements = |range: &Range<usize>| Dtype::Bf16.elements_within(range.len() as u64) as usize;
        self.ranges.iter().map(elements).chain([self.samples]).chain(self.scratch).collect()
    }
}

/// Rounds numbers to bf16, in fp32.
pub(super) fn round_tiles(from: &[f32], to: &mut [f32], threads: &Threads) {
    threads.each_chunk(to, TILE, |_, range, to| round(&from[range], to));
}

/// Rounds the gradient of a micro-batch to bf16, and adds it to that of earlier ones if it `adds`: as ranks would add
/// theirs, so that k accumulated micro-batches equal the sum of k ranks to the bit.
pub(super) fn keep_gradient(made: &[f32], kept: &mut [Bf16], adds: bool, threads: &Threads) {
    threads.each_chunk(kept, TILE, |_, range, kept| match adds {
        true => add_rounded(&made[range], kept),
        false => narrow(&made[range], kept),
    });
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
    use super::*;

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

    /// A task reads a tensor of bf16 as fp32, adds to another in fp32, and what it writes is rounded: 256 + 1 to 256.
    #[test]
    fn tasks_compute_in_fp32_and_store_bf16() {
        let mut samples = InputMemory::new(2, Dtype::F32);
        samples.values_mut().copy_from_slice(&[1.0, 1.001]);
        let mut tensors = Tensors::new((128, Dtype::Bf16), samples, &Arenas::default(), &Threads::one());
        let [a, b] = [0..4, 64..68].map(TensorAddress::Arena);
        for (place, values) in [(&a, [256.0, 0.5]), (&b, [1.0, 3.0])] {
            let wanted = Wanted { reads: &[], writes: &[(place, false)], scratch: [0, 0] };
            tensors.views(&wanted).writes[0].copy_from_slice(&values);
            tensors.keep(&wanted);
        }
        let wanted = Wanted { reads: &[&a, &TensorAddress::Input], writes: &[(&b, true)], scratch: [3, 0] };
        let views = tensors.views(&wanted);
        // 1.001 is nearest to 1 in bf16.
        assert_eq!((views.reads[1], views.scratch.map(|part| part.len())), (&[1.0, 1.0][..], [3, 0]));
        let sum: Vec<f32> = views.writes[0].iter().zip(views.reads[0]).map(|(b, a)| a + b).collect();
        assert_eq!(sum, [257.0, 3.5]);
        tensors.views(&wanted).writes[0].copy_from_slice(&sum);
        tensors.keep(&wanted);
        assert_eq!(*tensors.tensor(&b), [256.0, 3.5]);
    }
}
