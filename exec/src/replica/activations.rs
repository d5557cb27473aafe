//! The activations of a replica in the arena that the memory plan lays out.
//!
//! A task gets the ranges that it reads and writes cut out of the arena, so a plan that let two of them overlap would end the
//! run; that none overwrites what a later task reads is shown by poisoning what the plan takes for dead.

use std::ops::Range;

use lockstep_models::memory::Plan;
use lockstep_models::{Area, LayerId, Op, Phase, Program, Role};

use crate::device::cpu::Workspace;
use crate::pool::{Arenas, Slab};

/// A tensor that a task reads or writes; `[samples, elements]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// None: an empty slice.
    Nothing,
    /// The output of a layer.
    Output(LayerId),
    /// The gradient towards it.
    Gradient(LayerId),
}

impl From<Area> for Slot {
    fn from(area: Area) -> Slot {
        match area {
            Area::Activation(id) => Slot::Output(id),
            Area::Gradient(id) => Slot::Gradient(id),
            Area::Buffer(_) => unreachable!("a buffer is no tensor of a replica"),
        }
    }
}

/// The input of the micro-batch, and all that follows from it.
pub(super) struct Activations {
    plan: Plan,
    arenas: Arenas,
    slab: Option<Slab>,
    /// The arena that was the last one.
    preferred: Option<usize>,
    /// The samples themselves.
    pub(super) input: Vec<f32>,
}

impl Activations {
    pub(super) fn new(program: &Program, role: &Role, arenas: &Arenas) -> Activations {
        let loaded = role.tasks.iter().find_map(|task| match task.op {
            Op::Load { samples, into: None, .. } => Some(samples),
            _ => None,
        });
        let samples = loaded.unwrap_or(program.batch_per_rank) as usize;
        let input = samples * program.model.input().elements() as usize;
        Activations {
            plan: Plan::of_role(program, role, arenas.reuse),
            arenas: arenas.clone(),
            slab: None,
            preferred: None,
            input: vec![0.0; input],
        }
    }

    /// Takes an arena unless there is one.
    pub(super) fn begin(&mut self) -> &mut [f32] {
        let (plan, arenas, preferred) = (&self.plan, &self.arenas, &mut self.preferred);
        let slab = self.slab.get_or_insert_with(|| {
            let mut slab = arenas.pool.take(plan.elements, *preferred);
            *preferred = Some(slab.number);
            if arenas.poison {
                slab.as_mut_slice().fill(f32::NAN);
            }
            slab
        });
        slab.as_mut_slice()
    }

    /// The workspace beside the arena, to be taken while a kernel runs and put back.
    pub(super) fn workspace(&mut self) -> &mut Workspace {
        self.begin();
        match &mut self.slab {
            Some(slab) => &mut slab.workspace,
            None => unreachable!("just taken"),
        }
    }

    /// Returns it.
    pub(super) fn end(&mut self) {
        if let Some(slab) = self.slab.take() {
            self.arenas.pool.give(slab);
        }
    }

    /// Whether the plan keeps the gradient towards a layer's output.
    pub(super) fn wants_gradient(&self, id: LayerId) -> bool {
        self.plan.gradients[id.index()].is_some()
    }

    /// Which of the inputs lies where the output goes.
    pub(super) fn in_place(&self, inputs: &[LayerId], output: LayerId) -> Option<usize> {
        let place = |id: LayerId| self.plan.outputs[id.index()].as_ref();
        inputs.iter().position(|id| place(*id).is_some() && place(*id) == place(output))
    }

    fn range(&self, slot: Slot) -> Range<usize> {
        let range = match slot {
            Slot::Nothing => None,
            Slot::Output(id) => self.plan.outputs[id.index()].clone(),
            Slot::Gradient(id) => self.plan.gradients[id.index()].clone(),
        };
        range.unwrap_or_default()
    }

    /// The tensors that a task reads, and those that it writes.
    pub(super) fn views(&mut self, reads: &[Slot], writes: &[Slot]) -> (Vec<&[f32]>, Vec<&mut [f32]>) {
        // Two readers may be given the same place: flatten's output and its input.
        let mut distinct: Vec<Range<usize>> = reads.iter().map(|slot| self.range(*slot)).collect();
        let wanted = distinct.clone();
        distinct.sort_by_key(|range| (range.start, range.end));
        distinct.dedup();
        let written: Vec<Range<usize>> = writes.iter().map(|slot| self.range(*slot)).collect();
        let all: Vec<Range<usize>> = distinct.iter().chain(&written).cloned().collect();
        self.begin();
        let (Some(slab), input) = (&mut self.slab, &self.input) else { unreachable!("just taken") };
        let mut parts = carve(slab.as_mut_slice(), &all);
        let outputs = parts.split_off(distinct.len());
        let parts: Vec<&[f32]> = parts.into_iter().map(|part| &*part).collect();
        let read = |(slot, range): (&Slot, &Range<usize>)| match slot {
            Slot::Output(LayerId(0)) => input.as_slice(),
            _ => distinct.iter().position(|other| other == range).map_or(&[][..], |index| parts[index]),
        };
        (reads.iter().zip(&wanted).map(read).collect(), outputs)
    }

    /// A tensor of the micro-batch at hand.
    pub(super) fn tensor(&self, slot: Slot) -> &[f32] {
        match (slot, &self.slab) {
            (Slot::Output(LayerId(0)), _) => &self.input,
            (_, Some(slab)) => &slab.as_slice()[self.range(slot)],
            (_, None) => &[],
        }
    }

    /// The same to be written.
    pub(super) fn tensor_mut(&mut self, slot: Slot) -> &mut [f32] {
        let range = self.range(slot);
        match slot {
            Slot::Output(LayerId(0)) => &mut self.input,
            _ => &mut self.begin()[range],
        }
    }

    /// Called when the task at `position` of the role has run.
    pub(super) fn done(&mut self, position: Option<usize>) {
        let (Some(position), true) = (position, self.arenas.poison) else { return };
        if let Some(slab) = &mut self.slab {
            slab.workspace.fill(f32::NAN);
            let slice = slab.as_mut_slice();
            self.plan.dead[position].iter().for_each(|range| slice[range.clone()].fill(f32::NAN));
        }
    }

    /// Whether a micro-batch ends with this task.
    pub(super) fn is_last(&self, chain: usize, phase: Phase) -> bool {
        self.plan.last == Some((chain, phase))
    }
}

/// Cuts ranges out of a slice; empty ones may lie anywhere.
///
/// # Panics
/// When two overlap.
fn carve<'a>(slice: &'a mut [f32], ranges: &[Range<usize>]) -> Vec<&'a mut [f32]> {
    let mut order: Vec<usize> = (0..ranges.len()).filter(|index| !ranges[*index].is_empty()).collect();
    order.sort_by_key(|index| ranges[*index].start);
    let mut parts: Vec<&'a mut [f32]> = ranges.iter().map(|_| <&mut [f32]>::default()).collect();
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
        let mut slice: Vec<f32> = (0..10).map(|i| i as f32).collect();
        let parts = carve(&mut slice, &[6..8, 3..3, 0..2, 2..3, 0..0]);
        assert_eq!(parts, [&[6.0, 7.0][..], &[], &[0.0, 1.0], &[2.0], &[]]);
    }

    #[test]
    #[should_panic(expected = "two tensors of a task")]
    fn overlapping_ranges_are_refused() {
        carve(&mut [0.0; 4], &[2..4, 0..3]);
    }
}
