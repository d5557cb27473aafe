//! How a replica takes its samples: drawn when they are loaded, or made ahead by threads that decode.

use std::time::Instant;

use lockstep_topology::InputError;

use super::Replica;
use crate::data::{Dataset, MadeTimes};
use crate::error::ExecError;

impl Replica {
    /// Takes the next micro-batch: the samples of `data` named by `indices`, the first of which is the `place`-th of all since
    /// training began, which is what dropout draws its numbers by.
    ///
    /// # Errors
    /// The device's, and samples that are damaged.
    pub fn load(&mut self, data: &Dataset, indices: &[u32], place: u64) -> Result<(), ExecError> {
        self.labels.resize(indices.len(), 0);
        self.feed.draw(data, indices, (self.seed, place), self.device.input()?, &mut self.labels)?;
        self.device.load()?;
        let places: Vec<u64> = (place..).take(indices.len()).collect();
        self.written[self.context].fill(false);
        Ok(self.device.turn_to(&self.labels, &places)?)
    }

    /// Makes samples that another buffer takes, as [`Replica::load`] does.
    ///
    /// # Errors
    /// Samples that are damaged.
    pub(crate) fn draw(
        &mut self,
        data: &Dataset,
        indices: &[u32],
        place: u64,
        images: &mut [f32],
        labels: &mut [u32],
    ) -> Result<(), InputError> {
        self.feed.draw(data, indices, (self.seed, place), images, labels)
    }

    /// Waits until a micro-batch that is loaded next is made, at most until `deadline`; when it was, if it is.
    ///
    /// # Errors
    /// Threads that the system does not give.
    pub(crate) fn wait_for(
        &mut self,
        data: &Dataset,
        (indices, place): (&[u32], u64),
        deadline: Instant,
    ) -> Result<Option<MadeTimes>, InputError> {
        self.feed.wait(data, indices, (self.seed, place), deadline)
    }

    /// Has the micro-batches made ahead that it will load next, given by their samples and the place of the first of them.
    ///
    /// # Errors
    /// Threads that the system does not give.
    pub(crate) fn expect(
        &mut self,
        data: &Dataset,
        next: impl Iterator<Item = (Vec<u32>, u64)>,
    ) -> Result<(), InputError> {
        self.feed.expect(data, self.seed, next)
    }
}
