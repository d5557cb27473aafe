//! `Recipe`: says which samples a batch is made of and how each is augmented, so that any thread makes any of them.

use lockstep_models::{Augmentation, SampleForm, Shape};
use lockstep_topology::InputError;

use super::augmentation::Augmented;
use super::pixels::Pixels;
use super::transform::{Decoded, Untransformed};

/// What a batch is made from.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub(super) samples: Pixels,
    pub(super) indices: Vec<u32>,
    /// The shapes of a sample as stored and as taken.
    pub(super) shapes: (Shape, Shape),
    /// The augmentation of samples, if any.
    pub(super) how: Option<Augmentation>,
    pub(super) seed: u64,
    /// The first sample's index among all since training began.
    pub(super) place: u64,
}

impl PartialEq for Recipe {
    fn eq(&self, other: &Recipe) -> bool {
        let key = |recipe: &Recipe| (recipe.how, recipe.seed, recipe.place, recipe.shapes);
        self.samples.is(&other.samples) && key(self) == key(other) && self.indices == other.indices
    }
}

impl Recipe {
    /// Bytes of the batch.
    pub fn bytes(&self) -> usize {
        self.indices.len() * self.sample_bytes()
    }

    /// Bytes of a sample.
    pub fn sample_bytes(&self) -> usize {
        self.samples.sample(self.shapes.1).bytes() as usize
    }

    /// Its samples by their numbers in the set.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// The form in which its samples are stored.
    pub fn form(&self) -> SampleForm {
        self.samples.form()
    }

    /// Asks the system to read the samples from storage, without waiting.
    pub fn prefetch(&self) {
        self.indices.iter().for_each(|index| self.samples.prefetch(*index));
    }

    /// Reads the sample with this number in the batch into memory and verifies its checksum.
    ///
    /// # Errors
    /// Changed bytes.
    pub fn read(&self, number: usize) -> Result<(), InputError> {
        self.samples.read(self.indices[number])
    }

    /// Decodes the sample with this number, which is read, and draws its transform; `None` where it is no picture.
    ///
    /// # Errors
    /// Not a JPEG file after all.
    pub fn decoded(&self, number: usize) -> Result<Option<Decoded>, InputError> {
        match &self.samples {
            Pixels::Encoded(samples) if samples.is_picture() => {
                samples.decoded(self.indices[number], self.shapes.1, self.augmented(number)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Makes the sample with this number, which is read, in the bytes of `sample`, which are aligned for its numbers.
    ///
    /// # Errors
    /// Changed bytes, or not a JPEG file.
    pub fn make(&self, number: usize, sample: &mut [u8]) -> Result<(), InputError> {
        self.samples.image(self.indices[number], self.shapes, self.augmented(number), sample)
    }

    /// The batch of `samples` that a device transforms.
    ///
    /// # Panics
    /// For samples that are values in memory.
    pub fn untransformed<'a>(&'a self, samples: Vec<&'a Decoded>) -> Untransformed<'a> {
        let Pixels::Encoded(encoded) = &self.samples else { panic!("values in memory are not transformed") };
        Untransformed { samples, normalisation: encoded.normalisation(), shape: self.shapes.1.image() }
    }

    fn augmented(&self, number: usize) -> Option<Augmented<'_>> {
        let place = self.place + number as u64;
        self.how.as_ref().map(|how| Augmented { how, seed: self.seed, place })
    }
}
