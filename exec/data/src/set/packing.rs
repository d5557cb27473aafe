//! `PackedMoves`: one rank's packing and unpacking in a shuffle, without the exchange, for calibration.

use lockstep_topology::InputError;

use super::Dataset;
use super::message::Coming;
use crate::random::{Purpose, shuffle, stream};

/// A part of a set, half of which leaves in each shuffle and comes back.
pub struct PackedMoves<'a> {
    whole: &'a Dataset,
    /// Numbers of the samples of the part.
    samples: Vec<u32>,
    part: Dataset,
    message: Vec<u8>,
    /// Shuffles so far, which the order follows from.
    shuffles: u64,
}

impl PackedMoves<'_> {
    /// The part of the samples `samples` of `whole`, in memory.
    ///
    /// # Errors
    /// Damaged samples.
    pub fn new<'a>(whole: &'a Dataset, samples: &[u32]) -> Result<PackedMoves<'a>, InputError> {
        let part = whole.held(samples)?;
        let elements: u64 = samples.iter().map(|sample| whole.message_elements(*sample)).sum();
        let message = vec![1; whole.message_dtype().bytes(elements) as usize];
        Ok(PackedMoves { whole, samples: samples.to_vec(), part, message, shuffles: 0 })
    }

    /// The samples that leave next: half of the part, in random order.
    pub fn leaving(&mut self) -> Vec<u32> {
        let mut slots: Vec<u32> = (0..self.samples.len() as u32).collect();
        shuffle(&mut stream(1, Purpose::Partition, self.shuffles), &mut slots);
        self.shuffles += 1;
        slots.truncate(slots.len().div_ceil(2));
        slots
    }

    /// Packs the samples in these slots.
    ///
    /// # Errors
    /// Damaged samples.
    pub fn pack(&mut self, slots: &[u32]) -> Result<(), InputError> {
        let elements: u64 = slots.iter().map(|slot| self.part.message_elements(*slot)).sum();
        let bytes = self.part.message_dtype().bytes(elements) as usize;
        self.part.pack(slots, &mut self.message[..bytes])?;
        self.part.release(slots);
        Ok(())
    }

    /// Unpacks them into the same slots.
    pub fn unpack(&mut self, slots: &[u32]) {
        let samples: Vec<u32> = slots.iter().map(|slot| self.samples[*slot as usize]).collect();
        let elements: u64 = samples.iter().map(|sample| self.whole.message_elements(*sample)).sum();
        let bytes = self.whole.message_dtype().bytes(elements) as usize;
        self.part.unpack(&self.message[..bytes], Coming { whole: self.whole, samples: &samples, slots });
    }
}
