//! Generates synthetic images of any shape and number of classes: the same seed gives the same bits on every platform.
//!
//! A class is a coarse random pattern, and a sample is its class's pattern plus noise of the same strength. Both
//! convolutions and dense layers can learn the classes; nothing is claimed about real images.

use lockstep_models::{SetSizes, Shape};
use lockstep_topology::{Dtype, InputError};

use super::Dataset;
use crate::random::{Purpose, bell, stream};

/// The seed of `--data synthetic`; fixed, so that runs with different seeds train on the same images.
pub(super) const SEED: u64 = 1;

/// The most bytes that they may take.
const MAX_BYTES: u64 = 64 << 30;

/// Cells of a channel's pattern along each side.
const CELLS: u32 = 4;

/// Returns (training part, held-out part a quarter as large) for a model's `shape` and `classes`; `samples` is the text
/// after `synthetic:`.
pub(super) fn load(shape: Shape, classes: u32, samples: Option<&str>) -> Result<(Dataset, Dataset), InputError> {
    let count = wanted(shape, Dtype::F32.bytes(shape.elements()), samples)?;
    let part = |first, count| samples_of(shape, classes, SEED, first, count);
    Ok((part(0, count)?, part(count, SetSizes::synthetic(count).held_out)?))
}

/// The number of training samples of this shape, which take `sample_bytes` each in memory.
pub(super) fn wanted(shape: Shape, sample_bytes: u64, samples: Option<&str>) -> Result<u64, InputError> {
    let kind = if shape.as_image().is_some() { "images" } else { "samples" };
    match samples {
        None => Ok(SetSizes::default_synthetic(shape)),
        Some(text) => {
            let error = |message: String| InputError::flag("data", format!("synthetic:{text}"), message);
            let count: u32 = text.parse().map_err(|_| {
                error(format!("write a whole number of training {kind} behind the colon, e.g. synthetic:20000"))
            })?;
            let most = MAX_BYTES / sample_bytes;
            if count < 4 || u64::from(count) > most {
                return Err(error(format!("{count} training {kind} of {shape}: between 4 and {most} are possible")));
            }
            Ok(u64::from(count))
        }
    }
}

/// Samples `first` to `first + count`, classes in turn; a sample does not depend on which others are made.
fn samples_of(shape: Shape, classes: u32, seed: u64, first: u64, count: u64) -> Result<Dataset, InputError> {
    let mut images: Vec<f32> = Vec::new();
    if images.try_reserve_exact(count as usize * shape.elements() as usize).is_err() {
        let message =
            format!("{count} images of {shape} do not fit into memory: write a smaller number, e.g. synthetic:100");
        return Err(InputError::flag("data", "synthetic", message));
    }
    let cell_of_pixel = cells(shape);
    let mut labels = Vec::new();
    for sample in first..first + count {
        let class = (sample % u64::from(classes)) as u32;
        // Drawn again for each sample, so that no patterns need to be kept in memory.
        let mut pattern = stream(seed, Purpose::Pattern, u64::from(class));
        let mut noise = stream(seed, Purpose::Noise, sample);
        for _ in 0..shape.features() {
            let cells: [f32; (CELLS * CELLS) as usize] = std::array::from_fn(|_| bell(&mut pattern));
            images.extend(cell_of_pixel.iter().map(|cell| cells[*cell] + bell(&mut noise)));
        }
        labels.push(class);
    }
    Dataset::new("synthetic", shape, classes, images, labels)
}

/// For each pixel of a channel, row by row, its cell of the pattern.
fn cells(shape: Shape) -> Vec<usize> {
    let cell = |at: u32, size: u32| u64::from(at) * u64::from(CELLS) / u64::from(size);
    let (rows, columns) = shape.image().sides();
    let row = |y| (0..columns).map(move |x| cell(y, rows) * u64::from(CELLS) + cell(x, columns));
    (0..rows).flat_map(row).map(|cell| cell as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape::of_image(3, 9, 6);

    #[test]
    fn equal_seeds_give_equal_bits_and_different_seeds_different_ones() {
        let make = |seed| samples_of(SHAPE, 5, seed, 0, 20).unwrap();
        assert_eq!(make(1), make(1));
        assert_ne!(make(1).values(), make(2).values());
    }

    #[test]
    fn parts_share_patterns_but_no_sample() {
        let (train, held_out) = load(SHAPE, 5, Some("100")).unwrap();
        assert_eq!((train.len(), held_out.len()), (100, 25));
        let elements = SHAPE.elements() as usize;
        for image in held_out.values().chunks(elements) {
            assert!(train.values().chunks(elements).all(|other| other != image));
        }
        for data in [&train, &held_out] {
            for class in 0..5 {
                assert_eq!(data.labels.iter().filter(|label| **label == class).count(), data.len() / 5);
            }
        }
    }

    /// Class means of the training part separate the held-out images.
    #[test]
    fn the_nearest_class_mean_recognises_held_out_samples() {
        let (train, held_out) = load(SHAPE, 10, Some("1000")).unwrap();
        let elements = SHAPE.elements() as usize;
        let mut means = vec![vec![0f32; elements]; 10];
        for (image, label) in train.values().chunks(elements).zip(&train.labels) {
            means[*label as usize].iter_mut().zip(image).for_each(|(mean, value)| *mean += value / 100.0);
        }
        let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f32>();
        let hits = held_out.values().chunks(elements).zip(&held_out.labels).filter(|(image, label)| {
            let nearest = (0..10).min_by(|a, b| distance(&means[*a], image).total_cmp(&distance(&means[*b], image)));
            nearest == Some(**label as usize)
        });
        assert!(hits.count() >= 245, "at least 98 % of 250");
    }

    #[test]
    fn cells_of_pixels_by_hand() {
        // Eight columns make cells of two, two rows the first and the third row of cells.
        let shape = Shape::of_image(1, 2, 8);
        assert_eq!(cells(shape), [0, 0, 1, 1, 2, 2, 3, 3, 8, 8, 9, 9, 10, 10, 11, 11]);
    }

    #[test]
    fn any_shape_and_number_of_classes() {
        for (shape, classes) in [(Shape::flat(1), 2), (Shape::of_image(1, 1, 7), 3), (Shape::of_image(2, 33, 1), 1_000)]
        {
            let (train, held_out) = load(shape, classes, Some("40")).unwrap();
            assert_eq!((train.len(), held_out.len(), train.classes), (40, 10, classes));
        }
        let large = Shape::of_image(1 << 10, 1 << 10, 64);
        assert_eq!(SetSizes::default_synthetic(large), 4, "the fewest samples are four");
    }

    #[test]
    fn impossible_numbers_are_refused() {
        for (samples, message) in [
            ("", "--data: synthetic:: write a whole number"),
            ("many", "--data: synthetic:many: write a whole number"),
            ("-5", "write a whole number"),
            ("3", "between 4 and"),
            ("4294967295", "between 4 and 106048575 are possible"),
        ] {
            let error = load(SHAPE, 5, Some(samples)).unwrap_err().to_string();
            assert!(error.contains(message), "{error} lacks {message}");
        }
    }
}
