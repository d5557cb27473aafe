//! `Transform`: the steps from a decoded picture to a sample: a window of it is resampled and normalised, and the result
//! may be scaled, shifted and mirrored.
//!
//! Random numbers are drawn before, so the threads that decode and a device that transforms make the same samples.

use lockstep_data::{Normalisation, Picture};
use lockstep_models::{Augmentation, Shape};
use rand_chacha::ChaCha8Rng;

use super::augmentation::{Augmented, patch, resize, scaled_crop, shift};
use super::random::{Purpose, below, stream};
use super::resample::{Window, resample, whole_of};

/// How a decoded picture becomes a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transform {
    /// The window of the picture that is resampled to the sample's size, in pixels.
    pub window: Window,
    /// What is done with the result.
    pub finish: Finish,
}

/// What is done with an image of a sample's size, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Finish {
    /// A window of it is scaled to its size.
    pub window: Option<Window>,
    /// It is padded by this number of zeros on every side.
    pub padding: u32,
    /// The first row and column of the padded image that are taken.
    pub corner: [u32; 2],
    /// It is mirrored left to right.
    pub mirrored: bool,
}

impl Finish {
    /// Draws the crop and the side that `how` asks for.
    pub(super) fn draw(how: &Augmentation, random: &mut ChaCha8Rng, window: Option<Window>) -> Finish {
        let corner = [below(random, 2 * how.crop + 1), below(random, 2 * how.crop + 1)];
        Finish { window, padding: how.crop, corner, mirrored: how.flip && below(random, 2) == 1 }
    }

    /// Applies it to `image` (`[channels, height, width]` of `shape`).
    pub(super) fn apply(&self, shape: Shape, image: &mut [f32]) {
        let (height, width) = (shape.height as usize, shape.width as usize);
        let [down, right] = self.corner.map(|place| place as usize);
        for plane in image.chunks_exact_mut(height * width) {
            if let Some(window) = self.window {
                let source = plane.to_vec();
                resize(&source, (height, width), window, plane);
            }
            if self.padding > 0 {
                let source = plane.to_vec();
                shift(&source, width, (down, right), self.padding as usize, plane);
            }
            if self.mirrored {
                plane.chunks_exact_mut(width).for_each(<[f32]>::reverse);
            }
        }
    }
}

impl Transform {
    /// Draws the transform of a picture of `size` (rows, columns) to a sample of `shape`. With `scale` alone the crop
    /// is taken from the whole picture; without `scale` and patches, the window given by [`whole_of`] is used.
    pub(super) fn draw(size: (usize, usize), shape: Shape, augmented: Option<Augmented<'_>>) -> Transform {
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
    pub(super) fn apply(&self, picture: &Picture, figures: &Normalisation, shape: Shape, image: &mut [f32]) {
        resample(picture, self.window, figures, shape, image);
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
    pub figures: &'a Normalisation,
    /// The shape of a sample.
    pub shape: Shape,
}

impl Untransformed<'_> {
    /// Makes `image` (`[channels, height, width]`) from the sample with that number in the batch.
    ///
    /// # Panics
    /// When there is no such sample, or `image` has another size.
    pub fn make(&self, number: usize, image: &mut [f32]) {
        let Decoded { picture, transform } = self.samples[number];
        transform.apply(picture, self.figures, self.shape, image);
    }
}
