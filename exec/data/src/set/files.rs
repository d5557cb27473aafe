//! Loads data sets from files: folders of IDX files, and packed files, of which a tenth is held out where no second file
//! is named.

use std::path::Path;
use std::sync::Arc;

use lockstep_models::Shape;
use lockstep_topology::{Bytes, Dtype, InputError};

use super::Dataset;
use super::encoded::Encoded;
use super::pixels::Pixels;
use super::split::stratified;
use crate::format::Encoding;
use crate::memory_left::available_memory;
use crate::{Packed, idx};

/// Returns (training part, held-out part) of a folder, pixels 0 to 255; the classes are those of the training labels.
pub(super) fn load_idx(folder: &Path) -> Result<(Dataset, Dataset), InputError> {
    let classes = |labels: &[u32]| labels.iter().max().map_or(0, |label| label + 1);
    let train = idx_part(folder, "train", classes)?;
    let held_out = idx_part(folder, "t10k", |_| train.classes)?;
    if held_out.shape != train.shape {
        let message = format!("the training images are {}: both parts must have one shape", train.shape);
        return Err(InputError::new(held_out.place, format!("images of {}", held_out.shape), message));
    }
    Ok((train, held_out))
}

/// The images and labels whose names start with `prefix`.
fn idx_part(folder: &Path, prefix: &str, classes: impl Fn(&[u32]) -> u32) -> Result<Dataset, InputError> {
    let set = idx::part(folder, prefix)?;
    // A compressed file of a few megabytes may hold gigabytes.
    let needed = Dtype::F32.bytes(set.images.len() as u64);
    if let Some(left) = available_memory().filter(|left| *left < needed) {
        let message = format!("take {}, and this host has {} left: use a smaller set", Bytes(needed), Bytes(left));
        return Err(InputError::new(set.place, format!("{} values", set.images.len()), message));
    }
    let values = set.images.into_iter().map(f32::from).collect();
    let classes = classes(&set.labels);
    let data = Dataset::new(&set.labels_place, set.shape, classes, values, set.labels)?;
    Ok(Dataset { place: set.place, ..data })
}

/// Seed of the split: the year of ImageNet's paper. It must never change, or accuracies stop being comparable.
const SPLIT_SEED: u64 = 2009;
/// One in ten samples of a class is held out.
const HELD_OUT: (u32, u32) = (1, 10);

/// The files named by `TRAIN.pack` or `TRAIN.pack+HELD_OUT.pack`; `None` where there are no such files.
pub(super) fn packed(name: &str) -> Option<(&Path, Option<&Path>)> {
    let file = |name| Some(Path::new(name)).filter(|path| path.is_file());
    if let Some(train) = file(name) {
        return Some((train, None));
    }
    let parts = name.match_indices('+').map(|(at, _)| (file(&name[..at]), file(&name[at + 1..])));
    parts.into_iter().find_map(|(train, held_out)| Some((train?, Some(held_out?))))
}

/// Returns (training part, held-out part), kept as packed bytes; `input` is the model's input shape.
///
/// # Errors
/// Damaged files, two files that do not match, or one whose classes are too small to hold out a part.
pub(super) fn load_packed(
    (train, held_out): (&Path, Option<&Path>),
    input: Shape,
) -> Result<(Dataset, Dataset), InputError> {
    let all = open(train, input)?;
    let Some(held_out) = held_out else {
        let (train, held_out) = stratified(&all.labels, all.classes, HELD_OUT.0, HELD_OUT.1, SPLIT_SEED);
        if held_out.is_empty() {
            let message = "too few to hold one of ten of each class out: name a second file, TRAIN.pack+HELD_OUT.pack";
            return Err(InputError::new(all.place, format!("{} samples", all.labels.len()), message));
        }
        return Ok((all.subset(&train), all.subset(&held_out)));
    };
    let judges = open(held_out, input)?;
    if judges.shape != all.shape {
        let message = format!("the training images are {}: both parts must have one shape", all.shape);
        return Err(InputError::new(judges.place, format!("images of {}", judges.shape), message));
    }
    if let Some(at) = judges.labels.iter().position(|label| *label >= all.classes) {
        let message = format!("of sample {at} is none of the {} classes that are trained on", all.classes);
        return Err(InputError::new(judges.place, format!("label {}", judges.labels[at]), message));
    }
    Ok((all.clone(), Dataset { classes: all.classes, ..judges }))
}

/// All samples of a file. JPEG images of any size are resized to the model's input.
fn open(path: &Path, input: Shape) -> Result<Dataset, InputError> {
    let packed = Packed::open(path)?;
    let shape = match packed.header().encoding {
        Encoding::Raw(shape) => shape,
        Encoding::Jpeg { .. } => input.with_features(3),
    };
    let (place, classes) = (packed.place().to_owned(), packed.header().classes);
    let labels: Vec<u32> = packed.entries().iter().map(|entry| entry.label).collect();
    let pixels = Pixels::Encoded(Arc::new(Encoded::all(Arc::new(packed))));
    Ok(Dataset { place, shape, classes, pixels, samples: labels.len(), labels, ..Dataset::empty() })
}

#[cfg(test)]
mod tests;
