//! Loads folders of IDX files, the format of MNIST and Fashion-MNIST.

use std::path::Path;

use lockstep_data::idx;
use lockstep_topology::{Bytes, InputError};

use super::Dataset;
use crate::memory_left::available_memory;

/// Returns (training part, held-out part) of a folder, pixels 0 to 255; the classes are those of the training labels.
pub(super) fn load(folder: &Path) -> Result<(Dataset, Dataset), InputError> {
    let classes = |labels: &[u32]| labels.iter().max().map_or(0, |label| label + 1);
    let train = part(folder, "train", classes)?;
    let held_out = part(folder, "t10k", |_| train.classes)?;
    if held_out.shape != train.shape {
        let message = format!("the training images are {}: both parts must have one shape", train.shape);
        return Err(InputError::new(held_out.place, format!("images of {}", held_out.shape), message));
    }
    Ok((train, held_out))
}

/// The images and labels whose names start with `prefix`.
fn part(folder: &Path, prefix: &str, classes: impl Fn(&[u32]) -> u32) -> Result<Dataset, InputError> {
    let set = idx::part(folder, prefix)?;
    // A compressed file of a few megabytes may hold gigabytes.
    let needed = set.images.len() as u64 * 4;
    if let Some(left) = available_memory().filter(|left| *left < needed) {
        let message = format!("take {}, and this host has {} left: use a smaller set", Bytes(needed), Bytes(left));
        return Err(InputError::new(set.place, format!("{} values", set.images.len()), message));
    }
    let values = set.images.into_iter().map(f32::from).collect();
    let classes = classes(&set.labels);
    let data = Dataset::new(&set.labels_place, set.shape, classes, values, set.labels)?;
    Ok(Dataset { place: set.place, ..data })
}

#[cfg(test)]
mod tests;
