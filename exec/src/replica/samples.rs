//! Loads a replica's samples: drawn when they are loaded, or prepared ahead by decoding threads.

use std::time::Instant;

use super::Replica;
use crate::error::ExecError;
use crate::input::{MadeTimes, Prepared, Ring};
use lockstep_data::Dataset;

impl Replica {
    /// Loads the next micro-batch: the samples of `data` at `indices`. `place` is the index of the first among all
    /// samples since training began, from which dropout draws.
    ///
    /// # Errors
    /// Device errors, and damaged samples.
    pub fn load(&mut self, data: &Dataset, indices: &[u32], place: u64) -> Result<(), ExecError> {
        self.labels.resize(indices.len() * data.labels_each(), 0);
        let (device, seed) = (&mut self.device, self.seed);
        match self.feed.begin(data, indices, (seed, place), &mut |bytes| device.batch_memory(bytes))? {
            Some(loading) => {
                match loading.batch.ready()? {
                    Some(samples) => device.transform(&samples)?,
                    None => device.load_from(loading.batch.memory())?,
                }
                data.copy_labels(indices, &mut self.labels);
                self.feed.end(loading);
            }
            None => {
                data.draw(indices, seed, place, device.input()?, &mut self.labels)?;
                device.load()?;
            }
        }
        let places: Vec<u64> = (place..).take(indices.len()).collect();
        self.written[self.context].fill(false);
        Ok(self.device.turn_to(&self.labels, &places)?)
    }

    /// Prepares samples for another buffer, as [`Replica::load`] does.
    ///
    /// # Errors
    /// Damaged samples.
    pub(crate) fn draw(
        &mut self,
        data: &Dataset,
        indices: &[u32],
        place: u64,
        samples: &mut [u8],
        labels: &mut [u32],
    ) -> Result<(), ExecError> {
        let mut allocate = |bytes| self.device.batch_memory(bytes);
        self.feed.draw(data, indices, (self.seed, place), &mut allocate, (samples, labels))
    }

    /// Waits, at most until `deadline`, until the micro-batch that is loaded next is ready; returns when that was, if
    /// it is.
    ///
    /// # Errors
    /// The system refuses threads, or memory.
    pub(crate) fn wait_for(
        &mut self,
        data: &Dataset,
        (indices, place): (&[u32], u64),
        deadline: Instant,
    ) -> Result<Option<MadeTimes>, ExecError> {
        let mut allocate = |bytes| self.device.batch_memory(bytes);
        self.feed.wait(data, indices, (self.seed, place), &mut allocate, deadline)
    }

    /// Takes the micro-batch that is loaded next from a ring; false before there is a place for it.
    pub(crate) fn take(&mut self, ring: &Ring, batch: Prepared) -> bool {
        self.feed.take(ring, batch)
    }

    /// Notes that the device has waited for threads to decode samples.
    pub(crate) fn fell_behind(&self) {
        self.feed.fell_behind();
    }

    /// Starts to prepare the micro-batches that will be loaded next, each given by its samples and the place of the
    /// first.
    ///
    /// # Errors
    /// The system refuses threads, or memory.
    pub(crate) fn expect(
        &mut self,
        data: &Dataset,
        next: impl Iterator<Item = (Vec<u32>, u64)>,
    ) -> Result<(), ExecError> {
        let mut allocate = |bytes| self.device.batch_memory(bytes);
        self.feed.expect(data, self.seed, &mut allocate, next)
    }
}
