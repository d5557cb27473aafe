//! Augments training samples: crops, scales and mirrors them at random each time they are drawn.
//!
//! The augmentation of a sample follows from the seed and its place among all samples since training began (as dropout
//! does), so it does not depend on rank or micro-batch. Images are already normalised, so pixels outside of an image
//! are 0, the mean of their channel.

use lockstep_models::{Augmentation, ImageShape};
use rand_chacha::ChaCha8Rng;

use super::finish::Finish;
use super::resample::Window;
use crate::random::{Purpose, below, stream, uniform};

/// Range of the fraction of the image's area that a scaled crop takes, and of its width over its height (Szegedy et al.
/// 2015, §6, which Goyal et al. 2017, §5.1, follow).
const AREA: (f64, f64) = (0.08, 1.0);
const ASPECT: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);
/// Attempts to draw a crop before the whole image is taken.
const ATTEMPTS: u32 = 10;

/// How a training sample is augmented, and the keys of its random numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Augmented<'a> {
    pub(super) how: &'a Augmentation,
    pub(super) seed: u64,
    /// Its index among all samples since training began.
    pub(super) place: u64,
}

/// Makes `image` (`[channels, height, width]` of `shape`) from `stored`: augmented, or the central patch.
///
/// # Panics
/// When `stored` has a different number of channels or is smaller, or is larger and is augmented without patches.
pub(super) fn augment(
    stored: (&[f32], ImageShape),
    shape: ImageShape,
    augmented: Option<Augmented<'_>>,
    image: &mut [f32],
) {
    let Some(Augmented { how, seed, place }) = augmented else { return centre(stored, shape, image) };
    let random = &mut stream(seed, Purpose::Augmentation, place);
    if how.patch {
        let (down, right) = patch(random, (stored.1.height, stored.1.width), shape);
        cut(stored, shape, (down, right), image);
    } else {
        image.copy_from_slice(stored.0);
    }
    let window = how.scale.then(|| scaled_crop(random, shape.height as usize, shape.width as usize));
    Finish::draw(how, random, window).apply(shape, image);
}

/// The corner of a patch of `shape`, (rows, columns) from the corner of `size` pixels.
pub(super) fn patch(random: &mut ChaCha8Rng, size: (u32, u32), shape: ImageShape) -> (u32, u32) {
    let room = |stored: u32, taken: u32| stored.checked_sub(taken).expect("patches fit into images");
    let down = below(random, room(size.0, shape.height) + 1);
    (down, below(random, room(size.1, shape.width) + 1))
}

/// Copies to `patch`, of `shape`, the part of `stored` that begins (down, right) from its corner.
fn cut((stored, of): (&[f32], ImageShape), shape: ImageShape, (down, right): (u32, u32), patch: &mut [f32]) {
    let (of_height, of_width) = (of.height as usize, of.width as usize);
    let (height, width) = (shape.height as usize, shape.width as usize);
    let planes = stored.chunks_exact(of_height * of_width);
    for (plane, target) in planes.zip(patch.chunks_exact_mut(height * width)) {
        let rows = plane.chunks_exact(of_width).skip(down as usize);
        for (row, target) in rows.zip(target.chunks_exact_mut(width)) {
            target.copy_from_slice(&row[right as usize..right as usize + width]);
        }
    }
}

/// The central patch of `shape` in `stored`; of two centres the upper or left one.
fn centre(stored: (&[f32], ImageShape), shape: ImageShape, patch: &mut [f32]) {
    cut(stored, shape, ((stored.1.height - shape.height) / 2, (stored.1.width - shape.width) / 2), patch);
}

/// A window with a random fraction of the area and a random aspect ratio, at a random position; the whole image if none
/// fits.
pub(super) fn scaled_crop(random: &mut ChaCha8Rng, height: usize, width: usize) -> Window {
    let (height, width) = (height as f64, width as f64);
    for _ in 0..ATTEMPTS {
        let area = height * width * (AREA.0 + (AREA.1 - AREA.0) * uniform(random));
        // Log-uniform: a ratio is as likely as its inverse.
        let aspect = ASPECT.0 * (ASPECT.1 / ASPECT.0).powf(uniform(random));
        let (of_height, of_width) = ((area / aspect).sqrt().round().max(1.0), (area * aspect).sqrt().round().max(1.0));
        if of_height <= height && of_width <= width {
            let at = |random: &mut ChaCha8Rng, room: f64| f64::from(below(random, room as u32 + 1));
            let row = at(random, height - of_height);
            return (row, at(random, width - of_width), of_height, of_width);
        }
    }
    (0.0, 0.0, height, width)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn augmented(how: &Augmentation, seed: u64, place: u64) -> Option<Augmented<'_>> {
        Some(Augmented { how, seed, place })
    }

    #[test]
    fn all_crops_and_both_orientations_are_equally_likely() {
        let shape = ImageShape { channels: 1, height: 3, width: 3 };
        let augmentation: Augmentation = "crop=1,flip".parse().unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for place in 0..18_000 {
            // The final positions of the two distinct pixels identify crop and mirroring; some crops lose one or both.
            let stored = [0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0];
            let mut image = [0.0; 9];
            augment((&stored, shape), shape, augmented(&augmentation, 5, place), &mut image);
            *counts.entry(image.map(|x| x as u8)).or_insert(0u32) += 1;
        }
        // Nine crops in two sides, 1,000 of each with a deviation of 31; shifted left by one, the 1 is lost.
        assert_eq!(counts.len(), 18, "{counts:?}");
        assert!(counts.values().all(|count| (840..=1_160).contains(count)), "{counts:?}");
    }

    #[test]
    fn patches_by_hand() {
        let stored = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], ImageShape { channels: 1, height: 2, width: 4 });
        let shape = ImageShape { channels: 1, height: 2, width: 3 };
        let mut patch = [0.0; 6];
        cut((&stored.0, stored.1), shape, (0, 1), &mut patch);
        assert_eq!(patch, [2.0, 3.0, 4.0, 6.0, 7.0, 8.0]);
        centre((&stored.0, stored.1), shape, &mut patch);
        assert_eq!(patch, [1.0, 2.0, 3.0, 5.0, 6.0, 7.0], "there are two centres");
    }

    #[test]
    fn all_patches_are_equally_likely() {
        // Two channels of 3 × 4 pixels whose values give their position: 2 × 3 of them can be cut in four ways.
        let (of, shape) =
            (ImageShape { channels: 2, height: 3, width: 4 }, ImageShape { channels: 2, height: 2, width: 3 });
        let stored: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let augmentation: Augmentation = "patch".parse().unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for place in 0..4_000 {
            let mut patch = [0.0; 12];
            augment((&stored, of), shape, augmented(&augmentation, 3, place), &mut patch);
            assert!(patch.iter().zip(&patch[6..]).all(|(first, second)| second - first == 12.0), "{patch:?}");
            *counts.entry(patch[0] as u32).or_insert(0u32) += 1;
        }
        // 1,000 of each with a deviation of 27.
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&0, &1, &4, &5]);
        assert!(counts.values().all(|count| (865..=1_135).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn a_sample_depends_only_on_seed_and_place(
            seed: u64, place: u64, height in 1u32..9, width in 1u32..9, crop in 0u32..4,
        ) {
            let shape = ImageShape { channels: 2, height, width };
            let image: Vec<f32> = (0..shape.elements()).map(|i| i as f32 + 1.0).collect();
            let augmentation = Augmentation { patch: false, scale: true, crop, flip: true };
            let drawn = |seed, place| {
                let mut drawn = vec![0.0; image.len()];
                augment((&image, shape), shape, augmented(&augmentation, seed, place), &mut drawn);
                drawn
            };
            let one = drawn(seed, place);
            prop_assert_eq!(&one, &drawn(seed, place));
            // Only zeros come from outside of the image, and channels move together.
            let (low, high) = (1.0, shape.elements() as f32);
            prop_assert!(one.iter().all(|value| *value == 0.0 || (low..=high).contains(value)));
            let (first, second) = one.split_at(one.len() / 2);
            let apart = (height * width) as f32;
            prop_assert!(first.iter().zip(second).all(|(a, b)| (*a == 0.0) == (*b == 0.0) && (*a == 0.0 || (b - a - apart).abs() < 1e-3)));
        }

        #[test]
        fn windows_are_inside_the_image(seed: u64, height in 1usize..40, width in 1usize..40) {
            let random = &mut stream(seed, Purpose::Augmentation, 0);
            let (top, left, of_height, of_width) = scaled_crop(random, height, width);
            prop_assert!(top >= 0.0 && of_height >= 1.0 && top + of_height <= height as f64);
            prop_assert!(left >= 0.0 && of_width >= 1.0 && left + of_width <= width as f64);
        }
    }
}
