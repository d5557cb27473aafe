//! `Transform`: makes a sample of a decoded picture: resamples and normalises a window of it, and may scale, shift and
//! mirror the result.
//!
//! Random numbers are drawn before, so the threads that decode and a device that transforms make the same samples.

use crate::{Normalisation, Picture};
use lockstep_models::ImageShape;

use super::augmentation::{Augmented, patch, scaled_crop};
use super::finish::Finish;
use super::resample::{Window, resample, whole_of};
use crate::random::{Purpose, stream};

/// How a decoded picture becomes a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transform {
    /// The window of the picture that is resampled to the sample's size, in pixels.
    pub window: Window,
    /// What is done with the result.
    pub finish: Finish,
}

impl Transform {
    /// Draws the transform of a picture of `size` (rows, columns) to a sample of `shape`. With `scale` alone the crop
    /// is taken from the whole picture; without `scale` and patches, the window given by [`whole_of`] is used.
    pub(super) fn draw(size: (usize, usize), shape: ImageShape, augmented: Option<Augmented<'_>>) -> Transform {
        let Some(Augmented { how, seed, place }) = augmented else {
            return Transform { window: whole_of(size, shape), finish: Finish::default() };
        };
        let random = &mut stream(seed, Purpose::Augmentation, place);
        let window = if how.patch {
            let (down, right) = patch(random, (size.0 as u32, size.1 as u32), shape);
            (f64::from(down), f64::from(right), f64::from(shape.height), f64::from(shape.width))
        } else if how.scale {
            scaled_crop(random, size.0, size.1)
        } else {
            whole_of(size, shape)
        };
        let scales = how.patch && how.scale;
        let inner = scales.then(|| scaled_crop(random, shape.height as usize, shape.width as usize));
        Transform { window, finish: Finish::draw(how, random, inner) }
    }

    /// Makes `image` (`[channels, height, width]` of `shape`) from `picture`.
    pub(super) fn apply(&self, picture: &Picture, normalisation: &Normalisation, shape: ImageShape, image: &mut [f32]) {
        resample(picture, self.window, normalisation, shape, image);
        self.finish.apply(shape, image);
    }
}

/// A decoded sample and its transform.
#[derive(Debug)]
pub struct Decoded {
    /// The picture.
    pub picture: Picture,
    /// What makes a sample of it.
    pub transform: Transform,
}

/// A batch of decoded samples that a device transforms.
#[derive(Debug)]
pub struct Untransformed<'a> {
    /// By sample.
    pub samples: Vec<&'a Decoded>,
    /// Mean and deviation of each channel.
    pub normalisation: &'a Normalisation,
    /// The shape of a sample.
    pub shape: ImageShape,
}

impl Untransformed<'_> {
    /// Makes `image` (`[channels, height, width]`) from the sample with that number in the batch.
    ///
    /// # Panics
    /// When there is no such sample, or `image` has another size.
    pub fn make(&self, number: usize, image: &mut [f32]) {
        let Decoded { picture, transform } = self.samples[number];
        transform.apply(picture, self.normalisation, self.shape, image);
    }
}
