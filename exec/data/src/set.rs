//! Loads data sets: labelled images, the sources that `--data` names, and the order in which samples are trained on.
//!
//! Every source ends in the same [`Dataset`], checked where it is made and normalised by the statistics of its training
//! part, so that later code does not depend on the source. Packed files stay packed; their samples are decoded when
//! they are drawn.

mod augmentation;
mod changed;
mod digits;
mod drawing;
mod encoded;
mod files;
mod finish;
mod fits;
mod labels;
mod message;
mod packing;
mod parts;
mod pixels;
mod recipe;
mod resample;
mod sampler;
mod spare;
mod spelling;
mod split;
mod subset;
mod synthetic;
mod synthetic_tokens;
mod texts;
mod tokens;
mod transform;

use std::path::Path;
use std::sync::Arc;

use lockstep_models::{Augmentation, IGNORED_LABEL, Model, SampleForm, SampleTensor, SetSizes, Shape, StoredSamples};
use lockstep_topology::{InputError, nearest};

pub use finish::Finish;
pub use message::{Coming, Reserved};
pub use packing::PackedMoves;
pub use parts::{Moves, Parts, Round};
use pixels::Pixels;
pub use recipe::Recipe;
pub use resample::Window;
pub use sampler::Sampler;
pub use spelling::Spelling;
use subset::Subset;
use tokens::Tokens;
pub use transform::{Decoded, Transform, Untransformed};

use crate::token_file::TokenFile;

/// The sets that are part of the binary.
const NAMES: [&str; 4] = ["mnist", SetSizes::TEXT.0, SetSizes::TEXT_BPE.0, "synthetic"];

/// Labelled images of one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Its source, for messages.
    place: String,
    /// Shape of an image as stored.
    shape: Shape,
    /// The shape of the patch taken from an image, if not the whole image is.
    patch: Option<Shape>,
    classes: u32,
    pixels: Pixels,
    /// Number of samples.
    samples: usize,
    /// What labels a sample has, and those of all samples, each below `classes`.
    label: Option<SampleTensor>,
    labels: Vec<u32>,
    /// The augmentation of samples drawn for training.
    augmentation: Augmentation,
    /// How many threads of a process prepare batches; `None` for one per core.
    decode_threads: Option<u32>,
}

impl Dataset {
    /// A set without samples, to be filled in.
    fn empty() -> Dataset {
        Dataset {
            place: String::new(),
            shape: Shape::flat(0),
            patch: None,
            classes: 0,
            pixels: Pixels::Values(Arc::default()),
            samples: 0,
            label: Some(SampleTensor::labels(Shape::SINGLE)),
            labels: Vec::new(),
            augmentation: Augmentation::default(),
            decode_threads: None,
        }
    }

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
        let samples = labels.len();
        Dataset::labelled(place, (shape, samples), images, classes, (Some(SampleTensor::labels(Shape::SINGLE)), labels))
    }

    /// A data set from `place` with `images` of `[samples, …]` values of a shape, and `labels` of what each sample has of
    /// them: one, one for each position, or none.
    ///
    /// # Errors
    /// As [`Dataset::new`].
    pub fn labelled(
        place: &str,
        (shape, samples): (Shape, usize),
        images: Vec<f32>,
        classes: u32,
        (label, labels): (Option<SampleTensor>, Vec<u32>),
    ) -> Result<Dataset, InputError> {
        let error = |value: String, message: String| Err(InputError::new(place, value, message));
        if samples == 0 || shape.elements() == 0 {
            return error(format!("{samples} samples of {shape}"), "is empty: give images".into());
        }
        if u32::try_from(samples).is_err() {
            return error(format!("{samples} samples"), format!("more than {} are too many", u32::MAX));
        }
        if images.len() as u64 != samples as u64 * shape.elements() {
            let values = images.len();
            return error(
                format!("{values} values"),
                format!("do not make {samples} images of {shape}, one per label"),
            );
        }
        let each = label.map_or(0, |label| label.elements());
        if labels.len() as u64 != samples as u64 * each {
            return error(format!("{} labels", labels.len()), format!("are not {each} for each of {samples} samples"));
        }
        if let Some(at) = labels.iter().position(|label| *label >= classes && (each == 1 || *label != IGNORED_LABEL)) {
            let sample = at as u64 / each;
            let message = format!("of sample {sample} must be below {classes}, the number of classes: fix the labels");
            return error(format!("label {}", labels[at]), message);
        }
        let pixels = Pixels::Values(Arc::new(images));
        Ok(Dataset { place: place.into(), shape, classes, pixels, samples, label, labels, ..Dataset::empty() })
    }

    /// Windows of tokens below `vocabulary` from `place`.
    fn of_tokens(place: &str, vocabulary: u32, tokens: Tokens) -> Dataset {
        let (shape, samples) = (tokens.sample().shape, tokens.len());
        let label = Some(SampleTensor::labels(shape));
        let pixels = Pixels::Tokens(tokens);
        Dataset { place: place.into(), shape, classes: vocabulary, pixels, samples, label, ..Dataset::empty() }
    }

    /// Returns (training part, held-out part), normalised, of the set named by `--data`: `mnist` (5,000 digits that are
    /// part of the binary), `text` (the bytes of a text that is, for models of tokens), `text-bpe` (its tokens by the
    /// tokenizer that is, too), `synthetic` or `synthetic:SAMPLES` (seeded images of the model's shape and classes), a
    /// folder of IDX files, or packed files, `TRAIN.pack` (of which a tenth is held out) or `TRAIN.pack+HELD_OUT.pack`.
    /// After any of them `:TRAIN+HELD_OUT` takes that many samples of the two parts, always the same ones.
    ///
    /// # Errors
    /// Unreadable or broken files, and data that do not fit `model`; each with place, value and cure.
    pub fn load(what: &str, model: &Model) -> Result<(Dataset, Dataset), InputError> {
        Dataset::load_augmented(what, model, Augmentation::default())
    }

    /// As [`Dataset::load`], with augmentation of the training part. Where patches are requested, the images of both
    /// parts may be larger than the model's input; for the held-out part the central patch is used.
    ///
    /// # Errors
    /// As there.
    pub fn load_augmented(
        what: &str,
        model: &Model,
        augmentation: Augmentation,
    ) -> Result<(Dataset, Dataset), InputError> {
        let (mut train, mut held_out) = Dataset::parts(what, model, augmentation)?;
        let statistics = train.pixels.normalisation(train.shape);
        train.pixels.normalise(&statistics, train.shape);
        held_out.pixels.normalise(&statistics, held_out.shape);
        Ok((train.augmented(augmentation), held_out))
    }

    /// As [`Dataset::load`], of images that may be larger than the model's input: what timing loads needs.
    ///
    /// # Errors
    /// As there.
    pub fn load_of_any_size(what: &str, model: &Model) -> Result<(Dataset, Dataset), InputError> {
        let patch = Augmentation { patch: true, ..Augmentation::default() };
        Dataset::load(what, model).or_else(|wrong| Dataset::load_augmented(what, model, patch).map_err(|_| wrong))
    }

    /// The sizes of packed files that predictions use, without reading a sample; `None` where `what` names no packed
    /// file.
    ///
    /// # Errors
    /// As [`Dataset::load`].
    pub fn packed_sizes(what: &str, model: &Model, augmentation: Augmentation) -> Result<Option<SetSizes>, InputError> {
        let (name, _) = name_and_subset(what);
        if files::packed(name).is_none() {
            return Ok(None);
        }
        let (train, held_out) = Dataset::parts(what, model, augmentation)?;
        Ok(Some(Dataset::sizes((&train, &held_out))))
    }

    /// Refuses a name that is neither a data set nor a path; with `elsewhere` it may be a path that other machines have.
    ///
    /// # Errors
    /// Such a name, with the cure.
    pub fn check_name(what: &str, elsewhere: bool) -> Result<(), InputError> {
        let (name, _) = name_and_subset(what);
        let is_path = |name: &str| Path::new(name).exists() || elsewhere && name.contains(['/', '.']);
        match name.split_once(':') {
            _ if files::packed(name).is_some() || is_path(name) => Ok(()),
            None if NAMES.contains(&name) => Ok(()),
            Some(("synthetic", samples)) if samples.parse::<u32>().is_ok_and(|samples| samples > 0) => Ok(()),
            _ => Err(unknown(what)),
        }
    }

    /// Both parts, not yet normalised.
    fn parts(what: &str, model: &Model, augmentation: Augmentation) -> Result<(Dataset, Dataset), InputError> {
        let (name, subset) = name_and_subset(what);
        let (mut train, mut held_out) = match model.tokens() {
            Some(tokens) => Dataset::parts_of_tokens(what, name, (model, tokens), augmentation)?,
            None => Dataset::parts_of_images(what, name, model)?,
        };
        if let Some(subset) = subset {
            (train, held_out) = subset.of(what, (train, held_out))?;
        }
        if augmentation.patch {
            (train, held_out) = (train.patches(model.input())?, held_out.patches(model.input())?);
        }
        train.check_fits(model)?;
        held_out.check_fits(model)?;
        Ok((train, held_out))
    }

    /// Both parts of the set `name` for a model of values.
    fn parts_of_images(what: &str, name: &str, model: &Model) -> Result<(Dataset, Dataset), InputError> {
        match (files::packed(name), name.split_once(':')) {
            (_, None) if name == "mnist" => digits::load(),
            (Some((train, _)), _) if TokenFile::is(train) => Err(tokens_for(model, name)),
            _ if texts::is_text(name) => Err(tokens_for(model, name)),
            (Some(files), _) => files::load_packed(files, model.input()),
            (_, None) if name == "synthetic" => synthetic::load(model.input(), model.classes(), None),
            (_, Some(("synthetic", samples))) => synthetic::load(model.input(), model.classes(), Some(samples)),
            _ if Path::new(name).exists() => files::load_idx(Path::new(name)),
            _ => Err(unknown(what)),
        }
    }

    /// Both parts of the set `name` for a model of so many tokens.
    fn parts_of_tokens(
        what: &str,
        name: &str,
        (model, tokens): (&Model, u32),
        augmentation: Augmentation,
    ) -> Result<(Dataset, Dataset), InputError> {
        if augmentation != Augmentation::default() {
            let message = format!("is of images, and the model {} takes tokens: leave it out", model.name());
            return Err(InputError::flag("augment", augmentation.to_string(), message));
        }
        if let Some(files) = files::packed(name).filter(|(train, _)| TokenFile::is(train)) {
            return texts::load_packed(files, model);
        }
        match name.split_once(':') {
            None if texts::is_text(name) => texts::load(name, model),
            None if name == "synthetic" => synthetic_tokens::load(model, tokens, None),
            Some(("synthetic", samples)) => synthetic_tokens::load(model, tokens, Some(samples)),
            // Images, which the check of what the model takes refuses.
            _ => Dataset::parts_of_images(what, name, model),
        }
    }

    /// The form in which samples are stored, and their mean sizes.
    pub fn stored(&self) -> StoredSamples {
        self.pixels.stored(self.shape)
    }

    /// The form in which samples are stored.
    pub fn form(&self) -> SampleForm {
        self.pixels.form()
    }

    /// How samples drawn for training are augmented.
    pub fn augmentation(&self) -> Augmentation {
        self.augmentation
    }

    /// The file of packed samples.
    pub fn file(&self) -> Option<&Path> {
        (self.form() != SampleForm::Values).then(|| Path::new(&self.place))
    }

    /// The sizes of a set's two parts, for predictions.
    pub fn sizes((train, held_out): (&Dataset, &Dataset)) -> SetSizes {
        let message = (!matches!(train.pixels, Pixels::Values(_))).then(|| train.mean_message());
        let counts = SetSizes::of_counts(train.len() as u64, held_out.len() as u64);
        SetSizes { stored: Some(train.stored()), message, ..counts }
    }

    /// Number of samples, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a data set is never empty")]
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Shape of a sample as the model receives it.
    pub fn shape(&self) -> Shape {
        self.patch.unwrap_or(self.shape)
    }

    /// Shape and format of a sample as the model receives it.
    pub fn sample(&self) -> SampleTensor {
        self.pixels.sample(self.shape())
    }

    /// Number of classes; every label is below it.
    pub fn classes(&self) -> u32 {
        self.classes
    }
}

/// A set's name and the subset to take, if any.
fn name_and_subset(what: &str) -> (&str, Option<Subset>) {
    match Subset::split(what) {
        Some((name, subset)) if !Path::new(what).exists() => (name, Some(subset)),
        _ => (what, None),
    }
}

/// The error for a set of tokens, of a model that takes others.
fn tokens_for(model: &Model, name: &str) -> InputError {
    let message =
        format!("is of tokens, and the model {} takes {}: choose other data or a model", model.name(), model.input());
    InputError::flag("data", name, message)
}

/// The error for a name that is neither a data set nor a path.
fn unknown(what: &str) -> InputError {
    let meant = nearest(what, NAMES);
    let hint = if meant.is_empty() { String::new() } else { format!("did you mean {}? ", meant.join(" or ")) };
    let message = format!(
        "there is no such folder or file: {hint}write {}, synthetic:SAMPLES, a folder of IDX files, TRAIN.pack \
         or TRAIN.pack+HELD_OUT.pack, and behind any of them :TRAIN+HELD_OUT for that many samples",
        NAMES.join(", ")
    );
    InputError::flag("data", what, message)
}

#[cfg(test)]
impl Dataset {
    /// All images, `[samples, channels, height, width]`, of a set held as values in memory.
    fn values(&self) -> &[f32] {
        let Pixels::Values(values) = &self.pixels else { panic!("samples are packed") };
        values
    }
}

#[cfg(test)]
mod tests;
