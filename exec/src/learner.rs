//! What a learner's memory does under the rules of model averaging: its weights, the average model, and the difference.

use std::ops::Range;

use lockstep_models::{Averaging, Buffer, Model, SgdStep};

use crate::device::cpu::{Slope, average, correct, descend, move_reference};
use crate::holdings::Memory;

/// The parts of `range` that decay alike, each with its slope: learners descend without momentum.
fn slopes(model: &Model, range: Range<usize>, step: &SgdStep) -> impl Iterator<Item = (Range<usize>, Slope)> {
    let parameters = model.layers().iter().flat_map(|node| &node.parameters);
    parameters.filter_map(move |parameter| {
        let part = range.start.max(parameter.range.start as usize)..range.end.min(parameter.range.end as usize);
        let decays = parameter.decay || step.decay_batch_norm;
        let slope = Slope { rate: step.rate, weight_decay: if decays { step.weight_decay } else { 0.0 } };
        (!part.is_empty()).then_some((part, slope))
    })
}

impl Memory {
    /// Takes one step down the gradient.
    pub(crate) fn descend(&self, model: &Model, range: Range<usize>, step: &SgdStep) {
        let (weights, gradients) = (self.arena(Buffer::Parameters), self.arena(Buffer::Gradients));
        for (part, slope) in slopes(model, range, step) {
            // SAFETY: no exchange touches a learner's weights or gradients, and one task runs at a time.
            unsafe { descend(slope, weights.slice_mut(part.clone()), gradients.slice(part)) }
        }
    }

    /// Takes the last step of an iteration and the correction towards `consensus`; without a gradient the correction alone.
    pub(crate) fn correct(
        &self,
        model: &Model,
        range: Range<usize>,
        step: &SgdStep,
        (alpha, consensus): (f32, Buffer),
        learned: bool,
    ) {
        let (weights, gradients) = (self.arena(Buffer::Parameters), self.arena(Buffer::Gradients));
        let (z, c) = (self.arena(consensus), self.arena(Averaging::DIFFERENCES));
        for (part, slope) in slopes(model, range, step) {
            // SAFETY: as above; the exchange of this range's differences ended before the average model was updated, for
            // which this task waits.
            unsafe {
                let gradient = learned.then(|| gradients.slice(part.clone()));
                let weights = weights.slice_mut(part.clone());
                correct(slope, alpha, weights, gradient, z.slice(part.clone()), c.slice_mut(part));
            }
        }
    }

    /// Moves the device's reference model by the sum of its learners' differences, and leaves its own difference in their place.
    pub(crate) fn move_reference(&self, range: Range<usize>, alpha: f32) {
        let (z, c) = (self.arena(Averaging::AVERAGE), self.arena(Averaging::DIFFERENCES));
        let reference = self.arena(Averaging::REFERENCE);
        // SAFETY: the sum on the device has ended, and the exchange across devices waits for this task.
        unsafe {
            move_reference(alpha, reference.slice_mut(range.clone()), z.slice(range.clone()), c.slice_mut(range));
        }
    }

    /// Moves the average model by the summed differences.
    pub(crate) fn average(&self, range: Range<usize>, momentum: Option<f32>) {
        let (z, c) = (self.arena(Averaging::AVERAGE), self.arena(Averaging::DIFFERENCES));
        let previous = self.arena(Averaging::PREVIOUS);
        // SAFETY: the exchange of this range has ended, and the next one begins after the correction that waits for this task.
        unsafe { average(momentum, z.slice_mut(range.clone()), c.slice(range.clone()), previous.slice_mut(range)) }
    }

    /// Begins again at the average model, the reference model too where there is one.
    pub(crate) fn restart(&self, consensus: Buffer) {
        let z = self.arena(Averaging::AVERAGE);
        let reference = (consensus != Averaging::AVERAGE).then(|| self.arena(consensus));
        for model in [Some(self.arena(Buffer::Parameters)), reference].into_iter().flatten() {
            // SAFETY: between iterations, when nothing is in flight.
            unsafe { model.slice_mut(0..z.len()).copy_from_slice(z.slice(0..z.len())) }
        }
    }

    /// Lets the replica be the average model, and gives the learner's own weights.
    pub(crate) fn be_average(&self) -> Vec<f32> {
        // SAFETY: as above.
        let own = unsafe { self.arena(Buffer::Parameters).to_vec() };
        self.restart(Averaging::AVERAGE);
        own
    }

    /// Lets the replica be the learner again.
    pub(crate) fn be_learner(&self, own: &[f32]) {
        // SAFETY: as above.
        unsafe { self.arena(Buffer::Parameters).slice_mut(0..own.len()) }.copy_from_slice(own);
    }

    /// The buffer of a model, between iterations.
    pub(crate) fn shared(&self, model: Buffer) -> &[f32] {
        let arena = self.arena(model);
        // SAFETY: as above.
        unsafe { arena.slice(0..arena.len()) }
    }

    /// The model that a run is about: the average model where learners have models of their own.
    pub(crate) fn model(&self, averages: bool) -> &[f32] {
        let arena = self.arena(if averages { Averaging::AVERAGE } else { Buffer::Parameters });
        // SAFETY: as above.
        unsafe { arena.slice(0..arena.len()) }
    }
}
