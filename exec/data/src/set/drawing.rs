//! Draws samples of a set, one by one in the calling thread or as recipes for batches that threads make, and takes
//! subsets.

use std::sync::Arc;

use crate::Picture;
use crate::number::{Number, bytes_of_mut};
use lockstep_models::{Augmentation, SampleForm};
use lockstep_topology::InputError;

use super::Dataset;
use super::augmentation::Augmented;
use super::pixels::Pixels;
use super::recipe::Recipe;
use super::transform::Transform;

/// Samples that are made for a set in memory.
const MADE: u32 = 256;

impl Dataset {
    /// The smallest height and width of JPEG samples.
    pub(super) fn smallest(&self) -> Option<(u32, u32)> {
        match &self.pixels {
            Pixels::Encoded(samples) if samples.is_picture() => Some(samples.least()),
            _ => None,
        }
    }

    /// Makes the samples `indices`, with the augmentation `augmented` if given, and copies their labels.
    fn make(
        &self,
        indices: &[u32],
        augmented: Option<(u64, u64)>,
        samples: &mut [u8],
        labels: &mut [u32],
    ) -> Result<(), InputError> {
        let shapes = (self.shape, self.shape());
        let each = self.sample().bytes() as usize;
        assert_eq!(samples.len(), indices.len() * each, "room for the samples");
        for (number, (index, sample)) in (0u64..).zip(indices.iter().zip(samples.chunks_exact_mut(each))) {
            let augmented =
                augmented.map(|(seed, place)| Augmented { how: &self.augmentation, seed, place: place + number });
            self.pixels.read(*index)?;
            self.pixels.image(*index, shapes, augmented, sample)?;
        }
        self.copy_labels(indices, labels);
        Ok(())
    }

    /// Copies the samples `indices` into `images` (`[indices, channels, height, width]`) and `labels`; where patches
    /// are taken, the central ones.
    ///
    /// # Errors
    /// Damaged packed samples.
    ///
    /// # Panics
    /// When an index is not below [`Dataset::len`], or the slices do not have exactly the size of these samples.
    pub fn gather(&self, indices: &[u32], images: &mut [f32], labels: &mut [u32]) -> Result<(), InputError> {
        self.make(indices, None, bytes_of_mut(images), labels)
    }

    /// The same samples, with this augmentation applied by [`Dataset::draw`].
    pub fn augmented(self, augmentation: Augmentation) -> Dataset {
        Dataset { augmentation, ..self }
    }

    /// Both parts, whose batches are prepared by `threads` threads in each process; by default one per core.
    pub fn decoded_by((train, held_out): (Dataset, Dataset), threads: Option<u32>) -> (Dataset, Dataset) {
        let Some(threads) = threads else { return (train, held_out) };
        let decode_threads = Some(threads);
        (Dataset { decode_threads, ..train }, Dataset { decode_threads, ..held_out })
    }

    /// As [`Dataset::gather`], with augmentation: the first sample is the `place`-th drawn since training began with
    /// `seed`. `samples` are numbers of the set's format, or memory for them as bytes.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there, and when bytes are not aligned for the numbers.
    pub fn draw<T: Number>(
        &self,
        indices: &[u32],
        seed: u64,
        place: u64,
        samples: &mut [T],
        labels: &mut [u32],
    ) -> Result<(), InputError> {
        let augmented = (self.augmentation != Augmentation::default()).then_some((seed, place));
        self.make(indices, augmented, bytes_of_mut(samples), labels)
    }

    /// The decoded pictures of the samples `indices`; none for samples that are not JPEG files.
    ///
    /// # Errors
    /// Damaged samples.
    pub fn pictures(&self, indices: &[u32]) -> Result<Vec<Picture>, InputError> {
        match &self.pixels {
            Pixels::Encoded(samples) if samples.is_picture() => {
                indices.iter().map(|index| samples.picture(*index)).collect()
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Makes a sample from a picture as [`Dataset::draw`] does, without decoding.
    ///
    /// # Panics
    /// For samples that are not packed.
    pub fn transform(&self, picture: &Picture, (seed, place): (u64, u64), image: &mut [f32]) {
        let Pixels::Encoded(samples) = &self.pixels else { panic!("values in memory are not transformed") };
        let augments = self.augmentation != Augmentation::default();
        let augmented = augments.then_some(Augmented { how: &self.augmentation, seed, place });
        let shape = self.shape().image();
        Transform::draw(picture.size(), shape, augmented).apply(picture, samples.normalisation(), shape, image);
    }

    /// How many threads of a process prepare batches, at least 1; on `processors` that they may use, one for each unless
    /// stated.
    pub fn decode_threads(&self, processors: usize) -> usize {
        self.decode_threads.map_or(processors, |threads| threads as usize).max(1)
    }

    /// The recipe of a batch for threads that prepare it.
    pub fn recipe(&self, indices: &[u32], seed: u64, place: u64) -> Recipe {
        let how = Some(self.augmentation).filter(|how| *how != Augmentation::default());
        // Without augmentation a sample does not depend on seed and place.
        let (seed, place) = if how.is_some() { (seed, place) } else { (0, 0) };
        let (samples, indices, shapes) = (self.pixels.clone(), indices.to_vec(), (self.shape, self.shape()));
        Recipe { samples, indices, shapes, how, seed, place }
    }

    /// The samples `indices` as a data set; samples of a packed file stay in the file.
    pub fn subset(&self, indices: &[u32]) -> Dataset {
        let pixels = match &self.pixels {
            Pixels::Values(values) => {
                let elements = self.shape.elements() as usize;
                let image = |index: &u32| values[*index as usize * elements..][..elements].iter().copied();
                Pixels::Values(Arc::new(indices.iter().flat_map(image).collect()))
            }
            Pixels::Encoded(samples) => Pixels::Encoded(Arc::new(samples.subset(indices))),
            Pixels::Tokens(tokens) => Pixels::Tokens(tokens.subset(indices)),
        };
        self.with(pixels, indices)
    }

    /// The samples `indices`, which are `pixels`.
    fn with(&self, pixels: Pixels, indices: &[u32]) -> Dataset {
        let labels = if self.follow() { Vec::new() } else { self.labels_of(indices) };
        Dataset { place: self.place.clone(), pixels, samples: indices.len(), labels, ..*self }
    }

    /// The samples `indices` in memory, in their stored form; of a packed file only these are read.
    ///
    /// # Errors
    /// An unreadable or damaged file.
    pub fn held(&self, indices: &[u32]) -> Result<Dataset, InputError> {
        let pixels = match &self.pixels {
            Pixels::Values(_) => return Ok(self.subset(indices)),
            Pixels::Encoded(samples) => Pixels::Encoded(Arc::new(samples.resident(indices)?)),
            Pixels::Tokens(tokens) => Pixels::Tokens(tokens.held(indices)?),
        };
        Ok(self.with(pixels, indices))
    }

    /// The same set if its samples are values in memory, taken whole, or tokens. Else `bytes` at most of samples as values, without
    /// augmentation, which repeat the first few hundred: what a load copies where threads prepare batches.
    ///
    /// # Errors
    /// Damaged samples.
    pub fn in_memory(self, bytes: u64) -> Result<Dataset, InputError> {
        let shape = self.shape();
        if self.form() == SampleForm::Values && self.shape == shape {
            return Ok(Dataset { augmentation: Augmentation::default(), ..self });
        }
        let elements = shape.elements();
        let count = (bytes / (4 * elements)).clamp(1, self.len() as u64) as u32;
        let (elements, decoded) = (elements as usize, count.min(MADE) as usize);
        let indices: Vec<u32> = (0..decoded as u32).collect();
        let each = self.labels_each();
        let (mut values, mut labels) = (vec![0.0; decoded * elements], vec![0; decoded * each]);
        self.gather(&indices, &mut values, &mut labels)?;
        for copy in decoded..count as usize {
            let of = copy % decoded;
            values.extend_from_within(of * elements..(of + 1) * elements);
            labels.extend_from_within(of * each..(of + 1) * each);
        }
        let (pixels, augmentation) = (Pixels::Values(Arc::new(values)), Augmentation::default());
        let samples = count as usize;
        Ok(Dataset { shape, patch: None, pixels, samples, labels, augmentation, ..self })
    }
}
