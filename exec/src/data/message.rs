//! Messages that carry samples from the memory of one rank to that of another.
//!
//! Ranks are of one machine type, so bytes travel as they lie in memory.

use std::sync::Arc;

use lockstep_topology::InputError;

use super::Dataset;
use super::pixels::Pixels;

/// The bytes of values, as they lie in memory.
fn bytes_of(values: &[f32]) -> &[u8] {
    // SAFETY: a value is four bytes without gaps, and bytes lie anywhere.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The same, to be written: any four bytes are a value.
fn bytes_of_mut(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: as above, and the values are borrowed for as long.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

impl Dataset {
    /// Elements of a message that carries this sample: its image and its label's bits; of packed sets its length, its label, and
    /// its bytes as they are packed, four in an element.
    pub(crate) fn message_elements(&self, sample: u32) -> u64 {
        match &self.pixels {
            Pixels::Values(_) => self.shape.elements() + 1,
            Pixels::Encoded(samples) => 2 + samples.length(sample).div_ceil(4) as u64,
        }
    }

    /// The same on average over all samples, rounded up.
    pub(crate) fn mean_message_elements(&self) -> u64 {
        let all: u64 = (0..self.len() as u32).map(|sample| self.message_elements(sample)).sum();
        all.div_ceil(self.len() as u64)
    }

    /// Packs the samples at `slots` one behind the other; those that were read into memory are there alone then.
    ///
    /// # Errors
    /// Packed samples that are damaged.
    pub(crate) fn pack(&mut self, slots: &[u32], message: &mut [f32]) -> Result<(), InputError> {
        let mut rest = message;
        for slot in slots {
            let label = self.labels[*slot as usize];
            let sample;
            (sample, rest) = rest.split_at_mut(self.message_elements(*slot) as usize);
            // Copies carry any bits, also those that are no number.
            match &self.pixels {
                Pixels::Values(values) => {
                    let each = sample.len() - 1;
                    sample[..each].copy_from_slice(&values[*slot as usize * each..][..each]);
                    sample[each] = f32::from_bits(label);
                }
                Pixels::Encoded(samples) => {
                    let bytes = samples.sample(*slot)?;
                    (sample[0], sample[1]) = (f32::from_bits(bytes.len() as u32), f32::from_bits(label));
                    let room = bytes_of_mut(&mut sample[2..]);
                    room[..bytes.len()].copy_from_slice(bytes);
                    room[bytes.len()..].fill(0);
                }
            }
        }
        if let Pixels::Encoded(samples) = &mut self.pixels {
            Arc::make_mut(samples).release(slots);
        }
        Ok(())
    }

    /// Takes samples packed one behind the other: the n-th comes to `slots[n]`, one that was packed before or the next at the end.
    pub(crate) fn unpack(&mut self, message: &[f32], slots: &[u32]) {
        let end = slots.iter().max().map_or(0, |last| *last as usize + 1).max(self.labels.len());
        self.labels.resize(end, 0);
        match &mut self.pixels {
            Pixels::Values(values) => {
                let each = self.shape.elements() as usize;
                values.reserve_exact((end * each).saturating_sub(values.len()));
                values.resize(end * each, 0.0);
                for (sample, slot) in message.chunks_exact(each + 1).zip(slots.iter().map(|slot| *slot as usize)) {
                    values[slot * each..(slot + 1) * each].copy_from_slice(&sample[..each]);
                    self.labels[slot] = sample[each].to_bits();
                }
            }
            Pixels::Encoded(samples) => {
                let samples = Arc::make_mut(samples);
                let mut rest = message;
                for slot in slots.iter().map(|slot| *slot as usize) {
                    let length = rest[0].to_bits() as usize;
                    self.labels[slot] = rest[1].to_bits();
                    let sample;
                    (sample, rest) = rest[2..].split_at(length.div_ceil(4));
                    samples.put(slot, bytes_of(sample)[..length].into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Values come out of a message with the bits with which they went into it.
        #[test]
        fn bytes_are_those_of_the_values(bits in prop::collection::vec(any::<u32>(), 0..9)) {
            let mut values: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let bytes = bytes_of(&values).to_vec();
            prop_assert_eq!(&bytes, &bits.iter().flat_map(|bits| bits.to_ne_bytes()).collect::<Vec<u8>>());
            values.fill(0.0);
            bytes_of_mut(&mut values).copy_from_slice(&bytes);
            prop_assert!(values.iter().zip(&bits).all(|(value, bits)| value.to_bits() == *bits));
        }
    }
}
