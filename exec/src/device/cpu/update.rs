//! Evaluates a formula on a range of a rank's buffers, tile by tile; of buffers in bf16 a tile has copies in fp32, and what
//! it has written there is rounded into them.

use std::ops::Range;

use lockstep_models::{BoundBuffer, BoundFormula};
use lockstep_topology::Dtype;

use super::threads::tile_range;
use super::{Slice, Threads, evaluate};
use crate::device::Buffers;

/// Elements of an update that one thread processes at once; their four tensors fill half of a core's second-level
/// cache.
const TILE: usize = 1 << 14;

/// Evaluates `formula` on the elements of `parts`, each with whether weight decay applies to it.
pub(super) fn update(
    buffers: &Buffers,
    parts: impl Iterator<Item = (Range<usize>, bool)>,
    formula: &BoundFormula,
    threads: &Threads,
) {
    let mut tiles = Vec::new();
    for (part, decays) in parts {
        let within = (0..part.len().div_ceil(TILE)).map(|tile| tile_range(tile, TILE, part.len()));
        tiles.extend(within.map(|tile| (part.start + tile.start..part.start + tile.end, decays)));
    }
    threads.each(tiles.len(), |_, tile| {
        let (part, decays) = &tiles[tile];
        // SAFETY: no two tiles overlap, and a formula's buffers are distinct. By the program's order no exchange is in
        // flight on what a task writes, nor writes what it reads.
        unsafe { update_tile(buffers, part, formula, *decays) }
    });
}

/// # Safety
/// Nothing else writes these elements of the formula's buffers, or reads those that it writes.
unsafe fn update_tile(buffers: &Buffers, part: &Range<usize>, formula: &BoundFormula, decays: bool) {
    let of = |of: &BoundBuffer| (buffers.arena(of.buffer), buffers.place(of.buffer, part));
    let wide = |buffer: &BoundBuffer| {
        let (arena, place) = of(buffer);
        // SAFETY: by the caller's promise.
        (arena.dtype() != Dtype::F32).then(|| unsafe { arena.widened(place) }.into_owned())
    };
    let mut copies: Vec<Option<Vec<f32>>> = formula.buffers.iter().map(wide).collect();
    let mut slices = Vec::new();
    for (buffer, copy) in formula.buffers.iter().zip(&mut copies) {
        let (arena, place) = of(buffer);
        slices.push(match copy {
            Some(values) => Slice::Written(values),
            // SAFETY: by the caller's promise.
            None if buffer.written => Slice::Written(unsafe { arena.slice_mut(place) }),
            // SAFETY: by the caller's promise.
            None => Slice::Read(unsafe { arena.slice(place) }),
        });
    }
    evaluate(formula, decays, &mut slices);
    for (buffer, copy) in formula.buffers.iter().zip(&copies).filter(|(buffer, _)| buffer.written) {
        if let Some(values) = copy {
            let (arena, place) = of(buffer);
            // SAFETY: by the caller's promise.
            unsafe { arena.write(place.start, values) };
        }
    }
}
