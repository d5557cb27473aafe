//! Normalisation: each channel is shifted and scaled to mean 0 and variance 1 over the training images.
//!
//! The held-out images get the training part's figures: their own would be knowledge that training must not have.

use super::Dataset;

/// Mean and standard deviation of each channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalisation {
    /// Mean of each channel over all its pixels.
    pub mean: Vec<f64>,
    /// Standard deviation of each channel (the population's, divided by n); 1 where every pixel is the same.
    pub deviation: Vec<f64>,
}

impl Normalisation {
    /// The figures of `data`, summed in `f64` in the order of the samples.
    pub fn of(data: &Dataset) -> Normalisation {
        let channels = data.shape.channels as usize;
        let pixels = (data.shape.elements() / channels as u64) as usize;
        let count = (data.len() * pixels) as f64;
        let sum = |of: &dyn Fn(usize, f64) -> f64| {
            let mut sums = vec![0.0; channels];
            for (plane, values) in data.images.chunks_exact(pixels).enumerate() {
                let channel = plane % channels;
                sums[channel] += values.iter().map(|value| of(channel, f64::from(*value))).sum::<f64>();
            }
            sums
        };
        let mean: Vec<f64> = sum(&|_, value| value).into_iter().map(|sum| sum / count).collect();
        let squares = sum(&|channel, value| (value - mean[channel]).powi(2));
        let deviation = squares.into_iter().map(|sum| (sum / count).sqrt());
        Normalisation { deviation: deviation.map(|d| if d > 0.0 { d } else { 1.0 }).collect(), mean }
    }

    /// Replaces each value of `data` by (value − mean) / deviation of its channel.
    pub(crate) fn apply(&self, data: &mut Dataset) {
        let channels = data.shape.channels as usize;
        let pixels = (data.shape.elements() / channels as u64) as usize;
        for (plane, values) in data.images.chunks_exact_mut(pixels).enumerate() {
            let (mean, deviation) = (self.mean[plane % channels], self.deviation[plane % channels]);
            for value in values {
                *value = ((f64::from(*value) - mean) / deviation) as f32;
            }
        }
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
        let figures = Normalisation::of(&data);
        assert_eq!(figures, Normalisation { mean: vec![4.0, 6.0], deviation: vec![5f64.sqrt(), 1.0] });
        figures.apply(&mut data);
        let root = 5f64.sqrt();
        let expected = [-3.0 / root, -1.0 / root, 0.0, 0.0, 1.0 / root, 3.0 / root, 0.0, 0.0].map(|x| x as f32);
        assert_eq!(data.images, expected);
    }
}
