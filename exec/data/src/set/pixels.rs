//! Stores the samples of a set: as fp32 values in memory, or packed. Makes one sample at a time, in any thread.

use std::sync::Arc;

use lockstep_models::{SampleForm, SampleTensor, Shape, StoredSamples};
use lockstep_topology::InputError;

use super::augmentation::{Augmented, augment};
use super::encoded::Encoded;
use super::tokens::Tokens;
use crate::Normalisation;
use crate::number::numbers_mut;

/// The storage of samples. A clone shares them.
#[derive(Debug, Clone)]
pub(super) enum Pixels {
    /// `[samples, channels, height, width]`.
    Values(Arc<Vec<f32>>),
    /// Samples of a packed set.
    Encoded(Arc<Encoded>),
    /// Windows of a stream of tokens.
    Tokens(Tokens),
}

impl PartialEq for Pixels {
    fn eq(&self, other: &Pixels) -> bool {
        match (self, other) {
            (Pixels::Values(own), Pixels::Values(others)) => own == others,
            (Pixels::Encoded(own), Pixels::Encoded(others)) => Arc::ptr_eq(own, others),
            (Pixels::Tokens(own), Pixels::Tokens(others)) => own.is(others),
            _ => false,
        }
    }
}

impl Pixels {
    /// Whether both share the same samples.
    pub(super) fn is(&self, other: &Pixels) -> bool {
        match (self, other) {
            (Pixels::Values(own), Pixels::Values(others)) => Arc::ptr_eq(own, others),
            _ => self == other,
        }
    }

    /// The form of samples of `stored` shape, and their mean sizes.
    ///
    /// # Panics
    /// For packed samples in memory.
    pub(super) fn stored(&self, stored: Shape) -> StoredSamples {
        match self {
            Pixels::Values(_) => StoredSamples::values(stored),
            Pixels::Encoded(samples) => samples.mean(),
            Pixels::Tokens(tokens) => tokens.stored(),
        }
    }

    /// Their form.
    pub(super) fn form(&self) -> SampleForm {
        match self {
            Pixels::Values(_) | Pixels::Tokens(_) => SampleForm::Values,
            Pixels::Encoded(samples) => samples.form(),
        }
    }

    /// Mean and deviation of each channel of samples of shape `stored`; those of ImageNet where they are JPEG files, none
    /// of tokens.
    pub(super) fn normalisation(&self, stored: Shape) -> Normalisation {
        let (channels, pixels) = (stored.features() as usize, stored.places() as usize);
        match self {
            Pixels::Values(values) => Normalisation::of(channels, pixels, || values.chunks_exact(channels * pixels)),
            Pixels::Encoded(samples) => samples.statistics(channels, pixels),
            Pixels::Tokens(_) => Normalisation { mean: Vec::new(), deviation: Vec::new() },
        }
    }

    /// A sample of shape `taken` as the model receives it.
    pub(super) fn sample(&self, taken: Shape) -> SampleTensor {
        match self {
            Pixels::Values(_) | Pixels::Encoded(_) => SampleTensor::values(taken),
            Pixels::Tokens(tokens) => tokens.sample(),
        }
    }

    /// Replaces each value by (value − mean) / deviation of its channel; of packed samples, when they are drawn.
    pub(super) fn normalise(&mut self, statistics: &Normalisation, stored: Shape) {
        let (channels, pixels) = (stored.features() as usize, stored.places() as usize);
        match self {
            Pixels::Values(values) => {
                for (plane, values) in Arc::make_mut(values).chunks_exact_mut(pixels).enumerate() {
                    values.iter_mut().for_each(|value| *value = statistics.apply(plane % channels, f64::from(*value)));
                }
            }
            Pixels::Encoded(samples) => *samples = Arc::new(samples.normalised(statistics)),
            Pixels::Tokens(_) => {}
        }
    }

    /// Asks the system to read a sample from storage, without waiting.
    pub(super) fn prefetch(&self, sample: u32) {
        if let Pixels::Encoded(samples) = self {
            samples.prefetch(sample);
        }
    }

    /// Reads a sample into memory and verifies its checksum; values are there.
    ///
    /// # Errors
    /// Changed bytes.
    pub(super) fn read(&self, sample: u32) -> Result<(), InputError> {
        match self {
            Pixels::Values(_) | Pixels::Tokens(_) => Ok(()),
            Pixels::Encoded(samples) => samples.sample(sample).map(drop),
        }
    }

    /// Makes `image` (`[channels, height, width]` of `shape`) from a sample of shape `stored`, which is read: augmented,
    /// or its centre. Of tokens it makes the sample as its model takes it. The bytes are aligned for the numbers.
    ///
    /// # Errors
    /// Changed bytes, or not a JPEG file.
    pub(super) fn image(
        &self,
        sample: u32,
        (stored, shape): (Shape, Shape),
        augmented: Option<Augmented<'_>>,
        image: &mut [u8],
    ) -> Result<(), InputError> {
        match self {
            Pixels::Tokens(tokens) => tokens.copy(sample, image),
            Pixels::Values(values) => {
                let elements = stored.elements() as usize;
                augment(
                    (&values[sample as usize * elements..][..elements], stored.image()),
                    shape.image(),
                    augmented,
                    numbers_mut(image),
                );
                Ok(())
            }
            Pixels::Encoded(samples) => samples.image(sample, (stored, shape), augmented, numbers_mut(image)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_channels_by_hand() {
        // Channel 0 holds 1, 3, 5, 7: mean 4, squares of the differences 9 + 1 + 1 + 9 = 20, variance 5. Channel 1 is constant.
        let shape = Shape::of_image(2, 1, 2);
        let mut pixels = Pixels::Values(Arc::new(vec![1.0, 3.0, 6.0, 6.0, 5.0, 7.0, 6.0, 6.0]));
        let found = pixels.normalisation(shape);
        assert_eq!(found, Normalisation { mean: vec![4.0, 6.0], deviation: vec![5f64.sqrt(), 1.0] });
        pixels.normalise(&found, shape);
        let root = 5f64.sqrt();
        let expected = [-3.0 / root, -1.0 / root, 0.0, 0.0, 1.0 / root, 3.0 / root, 0.0, 0.0].map(|x| x as f32);
        assert_eq!(pixels, Pixels::Values(Arc::new(expected.to_vec())));
    }
}
