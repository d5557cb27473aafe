//! Maps the elements of a buffer to a rank's memory: in their order, with padding after each range whose
//! exchange is padded.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{Buffer, Program, Role};

/// The positions of the elements of one buffer.
///
/// Ranges are fp32 elements. A range that a task names is contiguous, unless its task is elementwise arithmetic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementAddresses {
    /// Ranges of the buffer in ascending order, each with where it begins in memory.
    pieces: Vec<(Range<usize>, usize)>,
    elements: usize,
    /// Elements of the buffer, including those that other ranks have.
    all: usize,
}

impl ElementAddresses {
    /// Memory of `elements` elements, each at the position of its own number.
    pub fn dense(elements: u64) -> ElementAddresses {
        let elements = elements as usize;
        let all = 0..elements;
        ElementAddresses { pieces: vec![(all, 0)], elements, all: elements }
    }

    /// These pieces, in ascending order of their ranges, of a buffer of `all` elements, in memory of
    /// `elements` elements.
    pub(super) fn new(pieces: Vec<(Range<usize>, usize)>, elements: usize, all: usize) -> ElementAddresses {
        ElementAddresses { pieces, elements, all }
    }

    /// A buffer of `rank` of a role, without sharing memory: of parameters and gradients those of the role's layers, of
    /// the optimizer's states what the rank updates.
    pub(super) fn of(program: &Program, (role, rank): (&Role, u32), buffer: Buffer) -> ElementAddresses {
        let all = program.elements(buffer);
        let own = match buffer {
            Buffer::Declared(_) => program.kept_of(role, rank, buffer),
            Buffer::State(_) => program.updated(role, rank),
            Buffer::Norm => std::iter::once(0..all).collect(),
            Buffer::Parameters => program.kept_parameters(role, rank),
            Buffer::Weights if !program.shares_parameters() => Vec::new(),
            Buffer::Weights | Buffer::Gradients => program.parameters_of(role),
        };
        let padding_by_end = padding_by_end(program, role, buffer);
        let (mut pieces, mut at) = (Vec::new(), 0);
        for range in own {
            let mut start = range.start;
            for (end, padding) in padding_by_end.range(range.start..=range.end).map(|(end, padding)| (*end, *padding)) {
                pieces.push((start as usize..end as usize, at as usize));
                at += end - start + padding;
                start = end;
            }
            if start < range.end || range.is_empty() {
                pieces.push((start as usize..range.end as usize, at as usize));
                at += range.end - start;
            }
        }
        ElementAddresses { pieces, elements: at as usize, all: all as usize }
    }

    /// Whether the memory holds all elements in order and nothing else.
    pub fn is_in_order(&self) -> bool {
        let mut at = 0;
        let follows = |(piece, start): &(Range<usize>, usize)| {
            let follows = piece.start == at && *start == at;
            at = piece.end;
            follows
        };
        self.pieces.iter().all(follows) && at == self.elements && at == self.all
    }

    /// Its pieces, each with its first element in memory.
    pub(super) fn pieces(&self) -> &[(Range<usize>, usize)] {
        &self.pieces
    }

    /// Elements of the memory.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The position of elements `range`, which belong to one task.
    ///
    /// # Panics
    /// When no task names the range: its parts are not contiguous.
    pub fn place(&self, range: &Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let at = self.pieces.partition_point(|(piece, _)| piece.end <= range.start);
        let within = self.pieces.get(at).filter(|(piece, _)| piece.start <= range.start && range.end <= piece.end);
        let Some((piece, start)) = within else { panic!("elements {range:?} do not lie in one piece") };
        start + range.start - piece.start..start + range.end - piece.start
    }

    /// The first elements of `range` that are in that memory.
    pub fn within(&self, range: Range<usize>) -> Range<usize> {
        let overlap = |own: &Range<usize>| own.start.max(range.start)..own.end.min(range.end);
        let parts = self.pieces.iter().map(|(own, _)| overlap(own));
        parts.into_iter().find(|part| !part.is_empty()).unwrap_or(range.start..range.start)
    }

    /// The values in `memory`, in the order of the buffer's elements; elements of other ranks are zero.
    pub fn gather(&self, memory: &[f32]) -> Vec<f32> {
        let mut values = vec![0.0; self.all];
        for (piece, start) in &self.pieces {
            values[piece.clone()].copy_from_slice(&memory[*start..start + piece.len()]);
        }
        values
    }

    /// The memory that holds `values`, given in the order of the buffer's elements; padding is zero.
    pub fn spread(&self, values: &[f32]) -> Vec<f32> {
        let mut memory = vec![0.0; self.elements];
        for (piece, start) in &self.pieces {
            memory[*start..start + piece.len()].copy_from_slice(&values[piece.clone()]);
        }
        memory
    }
}

/// By the end of a range whose exchange is padded: the number of padding elements.
pub(super) fn padding_by_end(program: &Program, role: &Role, buffer: Buffer) -> BTreeMap<u64, u64> {
    let mut padding_by_end: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, exchange) in role.exchanges().filter(|(_, exchange)| exchange.padded && exchange.buffer == buffer) {
        let padding = program.padding(exchange);
        if padding > 0 {
            let most = padding_by_end.entry(exchange.range.end).or_default();
            *most = padding.max(*most);
        }
    }
    padding_by_end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_order_is_what_gathering_gives() {
        let of =
            |pieces: &[(Range<usize>, usize)], elements, all| ElementAddresses::new(pieces.to_vec(), elements, all);
        assert!(ElementAddresses::dense(5).is_in_order() && of(&[], 0, 0).is_in_order());
        let memory = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        for (pieces, elements, all, is_in_order) in [
            (vec![(0..2, 0), (2..5, 2)], 5, 5, true),
            // Padding at the end, padding between, elements of other ranks, another order.
            (vec![(0..5, 0)], 6, 5, false),
            (vec![(0..2, 0), (2..5, 3)], 6, 5, false),
            (vec![(0..2, 0), (2..5, 2)], 5, 6, false),
            (vec![(1..5, 0)], 4, 5, false),
            (vec![(0..2, 3), (2..5, 0)], 5, 5, false),
        ] {
            let places = of(&pieces, elements, all);
            assert_eq!(places.is_in_order(), is_in_order, "{pieces:?} in {elements}, of {all}");
            assert_eq!(places.gather(&memory[..elements]) == memory[..elements], is_in_order, "{pieces:?}");
        }
    }
}
