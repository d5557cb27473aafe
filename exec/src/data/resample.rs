//! Windows of decoded pictures, brought to a model's size and normalised in one pass.

use lockstep_data::{Normalisation, Picture};
use lockstep_models::Shape;

/// A window of an image in pixels: first row and column, height and width.
pub(super) type Window = (f64, f64, f64, f64);

/// Where the centre of pixel `i` of `n` lies in a window that begins at `first` and has `size` pixels: between which two of them, and how
/// near to the second.
pub(super) fn between(i: usize, n: usize, first: f64, size: f64) -> (usize, usize, f32) {
    let at = (first + (i as f64 + 0.5) * size / n as f64 - 0.5).clamp(first, first + size - 1.0);
    let low = at.floor();
    (low as usize, (low as usize + 1).min((first + size) as usize - 1), (at - low) as f32)
}

/// The part of a picture that stands for it where nothing is drawn: the patch of `shape` in its centre, or, where it is smaller, the
/// largest window of that aspect there. Of two centres it is the upper or left one.
pub(super) fn whole_of((height, width): (usize, usize), shape: Shape) -> Window {
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

/// Makes `image` (`[channels, height, width]` of `shape`) out of a window of a picture, by bilinear interpolation between the centres of
/// pixels; grey pictures give each channel the same.
pub(super) fn resample(
    picture: &Picture,
    (top, left, of_height, of_width): Window,
    figures: &Normalisation,
    shape: Shape,
    image: &mut [f32],
) {
    let (height, width) = (shape.height as usize, shape.width as usize);
    let channels = usize::from(picture.channels);
    let line = usize::from(picture.width) * channels;
    let columns: Vec<(usize, usize, f32)> = (0..width)
        .map(|x| between(x, width, left, of_width))
        .map(|(before, behind, right)| (before * channels, behind * channels, right))
        .collect();
    for (channel, plane) in image.chunks_exact_mut(height * width).enumerate() {
        let (scale, mean) = ((1.0 / figures.deviation[channel]) as f32, figures.mean[channel] as f32);
        let of = channel.min(channels - 1);
        for (y, row) in plane.chunks_exact_mut(width).enumerate() {
            let (above, below, down) = between(y, height, top, of_height);
            let upper = &picture.pixels[above * line..(above + 1) * line];
            let lower = &picture.pixels[below * line..(below + 1) * line];
            for (value, (before, behind, right)) in row.iter_mut().zip(&columns) {
                let mix = |line: &[u8]| {
                    let (a, b) = (f32::from(line[before + of]), f32::from(line[behind + of]));
                    a + (b - a) * right
                };
                let (upper, lower) = (mix(upper), mix(lower));
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
        resample(&picture, (0.0, 1.0, 2.0, 2.0), &plain(), Shape { channels: 3, height: 2, width: 2 }, &mut image);
        assert_eq!(image, [10.0, 20.0, 110.0, 120.0, 11.0, 21.0, 111.0, 121.0, 12.0, 22.0, 112.0, 122.0]);
        let figures = Normalisation { mean: vec![10.0, 0.0, 0.0], deviation: vec![2.0, 1.0, 1.0] };
        resample(&picture, (0.0, 1.0, 1.0, 1.0), &figures, Shape { channels: 3, height: 1, width: 1 }, &mut image[..3]);
        assert_eq!(image[..3], [0.0, 11.0, 12.0]);
    }

    #[test]
    fn centres_by_hand() {
        let shape = Shape { channels: 3, height: 224, width: 224 };
        assert_eq!(whole_of((256, 341), shape), (16.0, 58.0, 224.0, 224.0));
        // Too low for the patch: 200 of 400 columns are as wide as they are high.
        assert_eq!(whole_of((200, 400), shape), (0.0, 100.0, 200.0, 200.0));
        assert_eq!(whole_of((300, 100), shape), (100.0, 0.0, 100.0, 100.0));
    }

    proptest! {
        #[test]
        fn windows_lie_inside_and_a_plain_picture_stays_plain(
            height in 1usize..60, width in 1usize..60, to in 1u32..40, wide in 1u32..40, grey: bool, level: u8,
        ) {
            let shape = Shape { channels: 3, height: to, width: wide };
            let window = whole_of((height, width), shape);
            prop_assert!(window.0 >= 0.0 && window.2 >= 1.0 && window.0 + window.2 <= height as f64);
            prop_assert!(window.1 >= 0.0 && window.3 >= 1.0 && window.1 + window.3 <= width as f64);
            let channels = if grey { 1 } else { 3 };
            let pixels = vec![level; height * width * channels];
            let picture = Picture { width: width as u16, height: height as u16, channels: channels as u8, pixels };
            let mut image = vec![-1.0; shape.elements() as usize];
            resample(&picture, window, &plain(), shape, &mut image);
            prop_assert!(image.iter().all(|value| *value == f32::from(level)));
        }
    }
}
