//! Resizes windows of decoded pictures to a model's input and normalises them, in one pass.

use crate::{Normalisation, Picture};
use lockstep_models::ImageShape;

/// A window of an image in pixels: first row and column, height and width.
pub type Window = (f64, f64, f64, f64);

/// Maps the centre of pixel `i` of `n` to a window that begins at `first` and has `size` pixels: the two pixels that it
/// falls between, and the weight of the second.
pub(super) fn between(i: usize, n: usize, first: f64, size: f64) -> (usize, usize, f32) {
    let at = (first + (i as f64 + 0.5) * size / n as f64 - 0.5).clamp(first, first + size - 1.0);
    let low = at.floor();
    (low as usize, (low as usize + 1).min((first + size) as usize - 1), (at - low) as f32)
}

/// The window of a picture that is used without augmentation: the central patch of `shape`, or, where the picture is
/// smaller, its largest central window of that aspect. Of two centres it is the upper or left one.
pub(super) fn whole_of((height, width): (usize, usize), shape: ImageShape) -> Window {
    let (of_height, of_width) = (shape.height as usize, shape.width as usize);
    let (rows, columns) = if of_height <= height && of_width <= width {
        (of_height, of_width)
    } else if height * of_width <= width * of_height {
        (height, (height * of_width / of_height).max(1))
    } else {
        ((width * of_height / of_width).max(1), width)
    };
    (((height - rows) / 2) as f64, ((width - columns) / 2) as f64, rows as f64, columns as f64)
}

/// A row of pixels, interpolated between columns: one value for each column, channel by channel.
#[derive(Default)]
struct Line {
    row: Option<usize>,
    values: Vec<f32>,
}

impl Line {
    /// Loads `row` of a picture; each of `columns` is interpolated between the pixels that begin at its two places.
    fn take<const CHANNELS: usize>(&mut self, picture: &Picture, row: usize, columns: &[(usize, usize, f32)]) {
        self.row = Some(row);
        self.values.resize(CHANNELS * columns.len(), 0.0);
        let length = usize::from(picture.width) * CHANNELS;
        let pixels = &picture.pixels[row * length..(row + 1) * length];
        for (x, (before, behind, right)) in columns.iter().enumerate() {
            let (a, b) = (&pixels[*before..before + CHANNELS], &pixels[*behind..behind + CHANNELS]);
            for channel in 0..CHANNELS {
                let (a, b) = (f32::from(a[channel]), f32::from(b[channel]));
                self.values[channel * columns.len() + x] = a + (b - a) * right;
            }
        }
    }
}

/// Makes `image` (`[channels, height, width]` of `shape`) from a window of a picture, by bilinear interpolation between
/// the centres of pixels; grey pictures give every channel the same values.
pub(super) fn resample(
    picture: &Picture,
    (top, left, of_height, of_width): Window,
    normalisation: &Normalisation,
    shape: ImageShape,
    image: &mut [f32],
) {
    let (height, width) = (shape.height as usize, shape.width as usize);
    let channels = usize::from(picture.channels);
    let columns: Vec<(usize, usize, f32)> = (0..width)
        .map(|x| between(x, width, left, of_width))
        .map(|(before, behind, right)| (before * channels, behind * channels, right))
        .collect();
    let scales: Vec<(f32, f32)> = std::iter::zip(&normalisation.mean, &normalisation.deviation)
        .map(|(mean, deviation)| (*mean as f32, (1.0 / deviation) as f32))
        .collect();
    // Neighbouring rows often fall between the same two rows of the picture, or share one.
    let [mut upper, mut lower] = [Line::default(), Line::default()];
    for y in 0..height {
        let (above, below, down) = between(y, height, top, of_height);
        if upper.row != Some(above) && lower.row == Some(above) {
            std::mem::swap(&mut upper, &mut lower);
        }
        for (line, row) in [(&mut upper, above), (&mut lower, below)] {
            if line.row != Some(row) {
                match channels {
                    1 => line.take::<1>(picture, row, &columns),
                    _ => line.take::<3>(picture, row, &columns),
                }
            }
        }
        let planes = image.chunks_exact_mut(height * width).zip(&scales).enumerate();
        for (channel, (plane, (mean, scale))) in planes {
            let of = channel.min(channels - 1) * width;
            let rows = upper.values[of..of + width].iter().zip(&lower.values[of..of + width]);
            for (value, (upper, lower)) in plane[y * width..(y + 1) * width].iter_mut().zip(rows) {
                *value = (upper + (lower - upper) * down - mean) * scale;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain() -> Normalisation {
        Normalisation { mean: vec![0.0; 3], deviation: vec![1.0; 3] }
    }

    #[test]
    fn a_window_of_its_own_size_is_a_copy() {
        // Two rows of three pixels, (row, column, channel) as a decimal number.
        let pixels = (0..2).flat_map(|y| (0..3).flat_map(move |x| (0..3).map(move |c| 100 * y + 10 * x + c))).collect();
        let picture = Picture { width: 3, height: 2, channels: 3, pixels };
        let mut image = [0.0; 12];
        resample(&picture, (0.0, 1.0, 2.0, 2.0), &plain(), ImageShape { channels: 3, height: 2, width: 2 }, &mut image);
        assert_eq!(image, [10.0, 20.0, 110.0, 120.0, 11.0, 21.0, 111.0, 121.0, 12.0, 22.0, 112.0, 122.0]);
        let normalisation = Normalisation { mean: vec![10.0, 0.0, 0.0], deviation: vec![2.0, 1.0, 1.0] };
        resample(
            &picture,
            (0.0, 1.0, 1.0, 1.0),
            &normalisation,
            ImageShape { channels: 3, height: 1, width: 1 },
            &mut image[..3],
        );
        assert_eq!(image[..3], [0.0, 11.0, 12.0]);
    }

    #[test]
    fn centres_by_hand() {
        let shape = ImageShape { channels: 3, height: 224, width: 224 };
        assert_eq!(whole_of((256, 341), shape), (16.0, 58.0, 224.0, 224.0));
        // Too low for the patch: a window of 200 of the 400 columns has its aspect.
        assert_eq!(whole_of((200, 400), shape), (0.0, 100.0, 200.0, 200.0));
        assert_eq!(whole_of((300, 100), shape), (100.0, 0.0, 100.0, 100.0));
    }

    /// The same, each value computed separately from its four pixels.
    fn obvious(
        picture: &Picture,
        (top, left, of_height, of_width): Window,
        normalisation: &Normalisation,
        shape: ImageShape,
    ) -> Vec<f32> {
        let (height, width, channels) = (shape.height as usize, shape.width as usize, usize::from(picture.channels));
        let pixel = |y: usize, x: usize, channel: usize| {
            f32::from(picture.pixels[(y * usize::from(picture.width) + x) * channels + channel.min(channels - 1)])
        };
        let mut image = Vec::new();
        for channel in 0..shape.channels as usize {
            for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
                let (above, below, down) = between(y, height, top, of_height);
                let (before, behind, right) = between(x, width, left, of_width);
                let mix = |a: f32, b: f32, share: f32| a + (b - a) * share;
                let upper = mix(pixel(above, before, channel), pixel(above, behind, channel), right);
                let lower = mix(pixel(below, before, channel), pixel(below, behind, channel), right);
                let (mean, deviation) = (normalisation.mean[channel] as f32, normalisation.deviation[channel]);
                image.push((mix(upper, lower, down) - mean) * (1.0 / deviation) as f32);
            }
        }
        image
    }

    proptest! {
        #[test]
        fn cached_rows_equal_interpolation_of_four_pixels(
            height in 1usize..40, width in 1usize..40, to in 1u32..30, wide in 1u32..30, grey: bool, seed: u8,
            place in prop::array::uniform4(0.0..1.0f64),
        ) {
            let channels = if grey { 1 } else { 3 };
            let pixels = (0..height * width * channels).map(|at| (at * 151 + usize::from(seed)) as u8).collect();
            let picture = Picture { width: width as u16, height: height as u16, channels: channels as u8, pixels };
            let (rows, columns) = ((place[0] * height as f64).ceil().max(1.0), (place[1] * width as f64).ceil().max(1.0));
            let at = |share: f64, room: f64| (share * (room + 1.0)).floor().min(room);
            let window = (at(place[2], height as f64 - rows), at(place[3], width as f64 - columns), rows, columns);
            let normalisation = Normalisation { mean: vec![0.5, 7.0, 100.0], deviation: vec![0.3, 2.0, 50.0] };
            let shape = ImageShape { channels: 3, height: to, width: wide };
            let mut image = vec![-1.0; shape.shape().elements() as usize];
            resample(&picture, window, &normalisation, shape, &mut image);
            prop_assert_eq!(image, obvious(&picture, window, &normalisation, shape));
        }

        #[test]
        fn windows_are_inside_and_uniform_pictures_stay_uniform(
            height in 1usize..60, width in 1usize..60, to in 1u32..40, wide in 1u32..40, grey: bool, level: u8,
        ) {
            let shape = ImageShape { channels: 3, height: to, width: wide };
            let window = whole_of((height, width), shape);
            prop_assert!(window.0 >= 0.0 && window.2 >= 1.0 && window.0 + window.2 <= height as f64);
            prop_assert!(window.1 >= 0.0 && window.3 >= 1.0 && window.1 + window.3 <= width as f64);
            let channels = if grey { 1 } else { 3 };
            let pixels = vec![level; height * width * channels];
            let picture = Picture { width: width as u16, height: height as u16, channels: channels as u8, pixels };
            let mut image = vec![-1.0; shape.shape().elements() as usize];
            resample(&picture, window, &plain(), shape, &mut image);
            prop_assert!(image.iter().all(|value| *value == f32::from(level)));
        }
    }
}
