//! Normalises images: shifts and scales each channel to mean 0 and variance 1 over the training images.
//!
//! Held-out images are normalised by the training part's statistics: their own must not influence training.

use std::sync::Arc;

pub use lockstep_data::Normalisation;

use super::Dataset;
use super::pixels::Pixels;

/// The statistics of `data`; those of ImageNet where samples are JPEG files.
pub(super) fn figures(data: &Dataset) -> Normalisation {
    let channels = data.shape.channels as usize;
    let pixels = (data.shape.elements() / channels as u64) as usize;
    match &data.pixels {
        Pixels::Values(values) => Normalisation::of(channels, pixels, || values.chunks_exact(channels * pixels)),
        Pixels::Encoded(samples) => samples.figures(channels, pixels),
    }
}

/// Replaces each value of `data` by (value − mean) / deviation of its channel; for encoded samples, when they are
/// drawn.
pub(super) fn apply(figures: &Normalisation, data: &mut Dataset) {
    let channels = data.shape.channels as usize;
    let pixels = (data.shape.elements() / channels as u64) as usize;
    match &mut data.pixels {
        Pixels::Values(values) => {
            for (plane, values) in Arc::make_mut(values).chunks_exact_mut(pixels).enumerate() {
                values.iter_mut().for_each(|value| *value = figures.apply(plane % channels, f64::from(*value)));
            }
        }
        Pixels::Encoded(samples) => *samples = Arc::new(samples.normalised(figures)),
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::Shape;

    use super::*;

    #[test]
    fn two_channels_by_hand() {
        // Channel 0 holds 1, 3, 5, 7: mean 4, squares of the differences 9 + 1 + 1 + 9 = 20, variance 5. Channel 1 is constant.
        let shape = Shape { channels: 2, height: 1, width: 2 };
        let images = vec![1.0, 3.0, 6.0, 6.0, 5.0, 7.0, 6.0, 6.0];
        let mut data = Dataset::new("here", shape, 2, images, vec![0, 1]).unwrap();
        let found = figures(&data);
        assert_eq!(found, Normalisation { mean: vec![4.0, 6.0], deviation: vec![5f64.sqrt(), 1.0] });
        apply(&found, &mut data);
        let root = 5f64.sqrt();
        let expected = [-3.0 / root, -1.0 / root, 0.0, 0.0, 1.0 / root, 3.0 / root, 0.0, 0.0].map(|x| x as f32);
        assert_eq!(data.values(), expected);
    }
}
