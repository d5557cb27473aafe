//! `Finish`: scales a window of an image to its size, crops it out of a border of zeros, and mirrors it.

use lockstep_models::{Augmentation, ImageShape};
use rand_chacha::ChaCha8Rng;

use super::resample::{Window, between};
use crate::random::below;

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
    pub(super) fn apply(&self, shape: ImageShape, image: &mut [f32]) {
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

/// Resizes the window of `source` to `target` by bilinear interpolation between the centres of pixels.
fn resize(
    source: &[f32],
    (height, width): (usize, usize),
    (top, left, of_height, of_width): Window,
    target: &mut [f32],
) {
    for (y, row) in target.chunks_exact_mut(width).enumerate() {
        let (above, below, down) = between(y, height, top, of_height);
        for (x, value) in row.iter_mut().enumerate() {
            let (before, behind, right) = between(x, width, left, of_width);
            let line = |row: usize| {
                let (a, b) = (source[row * width + before], source[row * width + behind]);
                a + (b - a) * right
            };
            let (upper, lower) = (line(above), line(below));
            *value = upper + (lower - upper) * down;
        }
    }
}

/// Copies to `target` the part of `source`, with `padding` zeros around it, that begins (down, right) from the corner.
fn shift(source: &[f32], width: usize, (down, right): (usize, usize), padding: usize, target: &mut [f32]) {
    for (y, row) in target.chunks_exact_mut(width).enumerate() {
        let from = (y + down).checked_sub(padding).and_then(|y| source.chunks_exact(width).nth(y));
        for (x, value) in row.iter_mut().enumerate() {
            let pixel = (x + right).checked_sub(padding).zip(from).and_then(|(x, from)| from.get(x));
            *value = pixel.copied().unwrap_or(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

    #[test]
    fn crops_by_hand() {
        let shifted = |corner| {
            let mut target = [9.0; 6];
            shift(&IMAGE, 3, corner, 1, &mut target);
            target
        };
        // Two rows of three with a border of zeros: the corner of the window ranges over 0 to 2 each way.
        assert_eq!(shifted((1, 1)), IMAGE);
        assert_eq!(shifted((0, 0)), [0.0, 0.0, 0.0, 0.0, 1.0, 2.0]);
        assert_eq!(shifted((2, 2)), [5.0, 6.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn scaling_by_hand() {
        let resized = |window| {
            let mut target = [9.0; 6];
            resize(&IMAGE, (2, 3), window, &mut target);
            target
        };
        assert_eq!(resized((0.0, 0.0, 2.0, 3.0)), IMAGE);
        // One pixel fills everything; two columns (2 and 3, 5 and 6) on three: their ends, and the mean between them.
        assert_eq!(resized((1.0, 2.0, 1.0, 1.0)), [6.0; 6]);
        assert_eq!(resized((0.0, 1.0, 2.0, 2.0)), [2.0, 2.5, 3.0, 5.0, 5.5, 6.0]);
    }
}
