//! Data sets: labelled images in memory, those that `--data` names, and the order in which they are trained on.
//!
//! Every source ends in the same [`Dataset`], checked where it is made and normalised by the figures of its training part,
//! so that nothing behind it asks where the images came from.

mod augmentation;
mod digits;
mod idx;
mod normalisation;
mod parts;
pub(crate) mod random;
mod sampler;
mod split;
mod subset;
mod synthetic;

use std::path::Path;

use lockstep_models::{Augmentation, Model, Shape};
use lockstep_topology::{ErrorPlace, InputError, nearest};

use augmentation::augment;
pub use normalisation::Normalisation;
pub use parts::Parts;
pub use sampler::Sampler;
use subset::Subset;

/// Labelled images of one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Where it came from, for messages.
    place: String,
    /// Of an image in memory.
    shape: Shape,
    /// What is taken of an image, if not all of it: a patch of this shape.
    patch: Option<Shape>,
    classes: u32,
    /// `[samples, channels, height, width]`.
    images: Vec<f32>,
    /// One per sample, below `classes`.
    labels: Vec<u32>,
    /// What is done to samples that are drawn for training.
    augmentation: Augmentation,
}

impl Dataset {
    /// A data set from `place` with `images` of `[samples, channels, height, width]` values and a label each.
    ///
    /// # Errors
    /// No sample, counts that differ, or a label that is not below `classes`.
    pub fn new(
        place: &str,
        shape: Shape,
        classes: u32,
        images: Vec<f32>,
        labels: Vec<u32>,
    ) -> Result<Dataset, InputError> {
        let error = |value: String, message: String| Err(InputError::new(place, value, message));
        if labels.is_empty() || shape.elements() == 0 {
            return error(format!("{} samples of {shape}", labels.len()), "there is nothing in it: give images".into());
        }
        if u32::try_from(labels.len()).is_err() {
            return error(format!("{} samples", labels.len()), format!("more than {} are too many", u32::MAX));
        }
        if images.len() as u64 != labels.len() as u64 * shape.elements() {
            let (values, labels) = (images.len(), labels.len());
            return error(format!("{values} values"), format!("do not make {labels} images of {shape}, one per label"));
        }
        if let Some(at) = labels.iter().position(|label| *label >= classes) {
            let message = format!("of sample {at} must be below {classes}, the number of classes: mend the labels");
            return error(format!("label {}", labels[at]), message);
        }
        let (place, augmentation) = (place.into(), Augmentation::default());
        Ok(Dataset { place, shape, patch: None, classes, images, labels, augmentation })
    }

    /// (training part, held-out part), normalised, of what `--data` names: `mnist` (5,000 digits that are part of the
    /// binary), `synthetic` or `synthetic:SAMPLES` (seeded images of the model's shape and classes), or a folder of IDX
    /// files; behind any of them `:TRAIN+HELD_OUT` takes so many samples of the two parts, always the same ones.
    ///
    /// # Errors
    /// Unreadable or broken files, and data that do not fit `model`; each with place, value and cure.
    pub fn load(what: &str, model: &Model) -> Result<(Dataset, Dataset), InputError> {
        Dataset::load_augmented(what, model, Augmentation::default())
    }

    /// As [`Dataset::load`], the training part augmented. Where patches are asked for, both parts may have images larger than the
    /// model takes, and the held-out one gives the patches in their centres.
    ///
    /// # Errors
    /// As there.
    pub fn load_augmented(
        what: &str,
        model: &Model,
        augmentation: Augmentation,
    ) -> Result<(Dataset, Dataset), InputError> {
        let (name, subset) = match Subset::split(what) {
            Some((name, subset)) if !Path::new(what).exists() => (name, Some(subset)),
            _ => (what, None),
        };
        let (mut train, mut held_out) = match name.split_once(':') {
            None if name == "mnist" => digits::load()?,
            None if name == "synthetic" => synthetic::load(model.input(), model.classes(), None)?,
            Some(("synthetic", samples)) => synthetic::load(model.input(), model.classes(), Some(samples))?,
            _ if Path::new(name).exists() => idx::load(Path::new(name))?,
            _ => return Err(unknown(what)),
        };
        if let Some(subset) = subset {
            (train, held_out) = subset.of(what, (train, held_out))?;
        }
        if augmentation.patch {
            (train, held_out) = (train.patches(model.input())?, held_out.patches(model.input())?);
        }
        train.check_fits(model)?;
        held_out.check_fits(model)?;
        let figures = Normalisation::of(&train);
        figures.apply(&mut train);
        figures.apply(&mut held_out);
        Ok((train.augmented(augmentation), held_out))
    }

    /// Whether `model` can be trained on these images: equal shapes, and an output for every label.
    ///
    /// # Errors
    /// What differs, with both figures.
    pub fn check_fits(&self, model: &Model) -> Result<(), InputError> {
        self.check_takes(model.name(), model.input(), model.classes())
    }

    /// [`Dataset::check_fits`] for a model known by its name, input and classes.
    fn check_takes(&self, model: &str, input: Shape, classes: u32) -> Result<(), InputError> {
        if self.shape() != input {
            let cure = match self.has_patches(input) {
                true => format!("take patches of them ({} patch)", ErrorPlace::Flag("augment")),
                false => {
                    format!("choose other data ({} synthetic fits every model) or a model", ErrorPlace::Flag("data"))
                }
            };
            let message = format!("the model {model} takes {input}: {cure}");
            return Err(InputError::new(&self.place, format!("images of {}", self.shape), message));
        }
        if self.classes > classes {
            return Err(InputError::new(
                &self.place,
                format!("{} classes", self.classes),
                format!("the model {model} tells {classes} apart: give its last layer {} outputs", self.classes),
            ));
        }
        Ok(())
    }

    /// Whether images are as large as `input` or larger, with as many channels.
    fn has_patches(&self, input: Shape) -> bool {
        let Shape { channels, height, width } = self.shape;
        channels == input.channels && height >= input.height && width >= input.width
    }

    /// The same images, of which patches of shape `input` are taken.
    ///
    /// # Errors
    /// Images that are smaller or have other channels.
    fn patches(self, input: Shape) -> Result<Dataset, InputError> {
        if !self.has_patches(input) {
            let message = format!("are too small for patches of {input}, or have other channels: choose other data");
            return Err(InputError::new(&self.place, format!("images of {}", self.shape), message));
        }
        Ok(Dataset { patch: (input != self.shape).then_some(input), ..self })
    }

    /// Hands the stored image, the place for it and the sample's number among `indices` to `take`, sample by sample, and copies
    /// their labels.
    fn each(
        &self,
        indices: &[u32],
        images: &mut [f32],
        labels: &mut [u32],
        mut take: impl FnMut(&[f32], &mut [f32], u64),
    ) {
        let (stored, elements) = (self.shape.elements() as usize, self.shape().elements() as usize);
        assert_eq!(images.len(), indices.len() * elements, "room for the images");
        assert_eq!(labels.len(), indices.len(), "room for the labels");
        let places = images.chunks_exact_mut(elements).zip(labels);
        for (number, (index, (image, label))) in (0u64..).zip(indices.iter().zip(places)) {
            let index = *index as usize;
            take(&self.images[index * stored..(index + 1) * stored], image, number);
            *label = self.labels[index];
        }
    }

    /// Copies the samples `indices` into `images` (`[indices, channels, height, width]`) and `labels`; where patches are taken,
    /// those in the centre.
    ///
    /// # Panics
    /// When an index is not below [`Dataset::len`], or the slices do not have room for exactly these samples.
    pub fn gather(&self, indices: &[u32], images: &mut [f32], labels: &mut [u32]) {
        let shape = self.shape();
        self.each(indices, images, labels, |stored, image, _| augmentation::centre((stored, self.shape), shape, image));
    }

    /// The same samples, which [`Dataset::draw`] changes at random.
    pub fn augmented(self, augmentation: Augmentation) -> Dataset {
        Dataset { augmentation, ..self }
    }

    /// As [`Dataset::gather`], the samples augmented: the first is the `place`-th drawn since training began with `seed`.
    ///
    /// # Panics
    /// As there.
    pub fn draw(&self, indices: &[u32], seed: u64, place: u64, images: &mut [f32], labels: &mut [u32]) {
        if self.augmentation == Augmentation::default() {
            return self.gather(indices, images, labels);
        }
        let shape = self.shape();
        self.each(indices, images, labels, |stored, image, number| {
            augment(&self.augmentation, (stored, self.shape), shape, image, seed, place + number);
        });
    }

    /// The samples `indices` as a data set of their own.
    pub(crate) fn subset(&self, indices: &[u32]) -> Dataset {
        let elements = self.shape.elements() as usize;
        let image = |index: &u32| self.images[*index as usize * elements..][..elements].iter().copied();
        let images = indices.iter().flat_map(image).collect();
        let labels = indices.iter().map(|index| self.labels[*index as usize]).collect();
        Dataset { place: self.place.clone(), images, labels, ..*self }
    }

    /// Number of samples, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a data set is never empty")]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Shape of a sample as a model gets it.
    pub fn shape(&self) -> Shape {
        self.patch.unwrap_or(self.shape)
    }

    /// Number of classes; every label is below it.
    pub fn classes(&self) -> u32 {
        self.classes
    }

    /// All images, `[samples, channels, height, width]`.
    pub fn images(&self) -> &[f32] {
        &self.images
    }

    /// The label of each sample.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }
}

/// The error for a name that is neither a data set nor a path.
fn unknown(what: &str) -> InputError {
    let meant = nearest(what, ["mnist", "synthetic"]);
    let hint = if meant.is_empty() { String::new() } else { format!("did you mean {}? ", meant.join(" or ")) };
    let message = format!(
        "there is no such folder: {hint}write mnist, synthetic, synthetic:SAMPLES or a folder of IDX files, and behind any \
         of them :TRAIN+HELD_OUT for so many samples"
    );
    InputError::flag("data", what, message)
}

#[cfg(test)]
mod tests;
