//! Computes mean and standard deviation of each channel of a set, for normalising its samples.

/// Mean and standard deviation of each channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalisation {
    /// Mean of each channel over all its pixels.
    pub mean: Vec<f64>,
    /// Standard deviation of each channel (the population's, divided by n); 1 where every pixel is the same.
    pub deviation: Vec<f64>,
}

impl Normalisation {
    /// ImageNet's, of pixels from 0 to 255 in RGB, as in fb.resnet.torch (which Goyal et al. 2017, §5.1, follow): JPEG
    /// files are normalised by them.
    pub fn imagenet() -> Normalisation {
        let scaled = |normalisation: [f64; 3]| normalisation.iter().map(|figure| figure * 255.0).collect();
        Normalisation { mean: scaled([0.485, 0.456, 0.406]), deviation: scaled([0.229, 0.224, 0.225]) }
    }

    /// Mean and deviation over samples of `channels` planes of `pixels` values each, summed in `f64` in the order of
    /// the samples, in two passes over them.
    ///
    /// ```
    /// # use lockstep_data::Normalisation;
    /// // Channel 0 holds 1, 3, 5, 7: mean 4, squares of the differences 9 + 1 + 1 + 9 = 20, variance 5. Channel 1 is constant.
    /// let images = [[1u8, 3, 6, 6], [5, 7, 6, 6]];
    /// let normalisation = Normalisation::of(2, 2, || images.iter().map(|image| &image[..]));
    /// assert_eq!(normalisation, Normalisation { mean: vec![4.0, 6.0], deviation: vec![5f64.sqrt(), 1.0] });
    /// ```
    pub fn of<'a, T, I>(channels: usize, pixels: usize, samples: impl Fn() -> I) -> Normalisation
    where
        T: Copy + Into<f64> + 'a,
        I: Iterator<Item = &'a [T]>,
    {
        let sum = |of: &dyn Fn(usize, f64) -> f64| {
            let (mut sums, mut count) = (vec![0.0; channels], 0u64);
            for sample in samples() {
                count += 1;
                for (channel, plane) in sample.chunks_exact(pixels).enumerate() {
                    sums[channel] += plane.iter().map(|value| of(channel, (*value).into())).sum::<f64>();
                }
            }
            (sums, count as f64 * pixels as f64)
        };
        let (sums, count) = sum(&|_, value| value);
        let mean: Vec<f64> = sums.into_iter().map(|sum| sum / count).collect();
        let (squares, _) = sum(&|channel, value| (value - mean[channel]).powi(2));
        let deviation = squares.into_iter().map(|sum| (sum / count).sqrt());
        Normalisation { deviation: deviation.map(|d| if d > 0.0 { d } else { 1.0 }).collect(), mean }
    }

    /// (value − mean) / deviation of a channel.
    pub fn apply(&self, channel: usize, value: f64) -> f32 {
        ((value - self.mean[channel]) / self.deviation[channel]) as f32
    }
}
