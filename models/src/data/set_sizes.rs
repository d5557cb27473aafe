//! Counts the samples of a data set by its name, so that predictions load what runs load.

use lockstep_topology::Dtype;
use serde::{Deserialize, Serialize};

use crate::{Dimension, Shape};

/// Samples of the two parts of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetSizes {
    /// To train on.
    pub train: u64,
    /// Held out.
    pub held_out: u64,
    /// How they are stored; `None` where that is not known.
    pub stored: Option<StoredSamples>,
    /// How many numbers of which format a message has that carries one, on average; `None`: those of its image.
    pub message: Option<(u64, Dtype)>,
}

/// How the samples of a set are stored, and their mean sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredSamples {
    /// Their form.
    pub form: SampleForm,
    /// Bytes as they are stored.
    pub bytes: u64,
    /// Pixels of the picture.
    pub pixels: u64,
}

/// The form in which samples are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleForm {
    /// JPEG files of a packed set, which are decoded.
    #[default]
    Jpeg,
    /// PNG files of a packed set, or more of them than JPEG files, which are decoded.
    Png,
    /// Arrays of bytes of a packed set, which are converted to fp32.
    Bytes,
    /// fp32 values in memory, which are copied.
    Values,
}

impl SampleForm {
    /// Whether samples are files of pictures, which are decoded.
    pub fn is_picture(self) -> bool {
        matches!(self, SampleForm::Jpeg | SampleForm::Png)
    }
}

impl StoredSamples {
    /// Values of this shape in memory.
    pub fn values(shape: Shape) -> StoredSamples {
        let pixels = shape.places();
        StoredSamples { form: SampleForm::Values, bytes: 4 * shape.elements(), pixels }
    }
}

impl SetSizes {
    /// The digits that are part of the binary.
    pub const MNIST: SetSizes = SetSizes::of_counts(4_000, 1_000);
    /// The default number of synthetic training images, and the most bytes of memory that they may then take.
    const SYNTHETIC: (u64, u64) = (4_000, 1 << 30);

    /// The sizes of the set that `--data` names, for a model whose inputs have this shape; `None` for a folder, whose
    /// files state them.
    ///
    /// ```
    /// # use lockstep_models::{SetSizes, Shape};
    /// let image = Shape::of_image(1, 28, 28);
    /// let sizes = |what: &str| SetSizes::of(what, image).map(|sizes| (sizes.train, sizes.held_out));
    /// assert_eq!(sizes("synthetic"), Some((4000, 1000)));
    /// assert_eq!(sizes("synthetic:64"), Some((64, 16)));
    /// assert_eq!(sizes("some/folder:500+100"), Some((500, 100)));
    /// assert_eq!(sizes("some/folder"), None);
    /// ```
    pub fn of(what: &str, input: Shape) -> Option<SetSizes> {
        let subset = || {
            let (_, counts) = what.rsplit_once(':')?;
            let (train, held_out) = counts.split_once('+')?;
            Some(SetSizes::of_counts(train.parse().ok()?, held_out.parse().ok()?))
        };
        let of_text = |tokens| Some(SetSizes::of_windows(SetSizes::windows(tokens, input.elements())));
        match what.split_once(':') {
            None if what == "mnist" => Some(SetSizes::MNIST),
            None if what == SetSizes::TEXT.0 => of_text(SetSizes::TEXT.1),
            None if what == SetSizes::TEXT_BPE.0 => of_text(SetSizes::TEXT_BPE.1),
            None if what == "synthetic" => Some(SetSizes::synthetic(SetSizes::default_synthetic(input))),
            Some(("synthetic", count)) if count.parse::<u32>().is_ok() => count.parse().ok().map(SetSizes::synthetic),
            _ => subset(),
        }
        .map(|sizes| SetSizes { message: sizes.message.or(SetSizes::window(input)), ..sizes })
    }

    /// What a message has that carries a sequence of tokens: those that the model reads and the last one that it predicts.
    pub fn window(input: Shape) -> Option<(u64, Dtype)> {
        let is_tokens = input.has(Dimension::Position) && !input.has(Dimension::Feature);
        is_tokens.then(|| (input.elements() + 1, Dtype::U32))
    }

    /// The vocabulary of texts whose tokens are bytes.
    pub const BYTES: u32 = 256;
    /// The vocabulary of the tokenizer that is part of the binary.
    pub const BPE: u32 = 1024;
    /// The set of the text that is part of the binary, and its bytes.
    pub const TEXT: (&str, u64) = ("text", 952_775);
    /// The set of the same text by the tokenizer that is part of the binary, and its tokens.
    pub const TEXT_BPE: (&str, u64) = ("text-bpe", 306_157);

    /// The windows of so many positions in so many tokens: each begins where the one before ends, and needs one token more.
    pub fn windows(tokens: u64, positions: u64) -> u64 {
        tokens.saturating_sub(1) / positions.max(1)
    }

    /// These windows of a stream, of which the last tenth is held out, at least one.
    pub fn of_windows(windows: u64) -> SetSizes {
        let held_out = (windows / 10).max(1).min(windows);
        SetSizes::of_counts(windows - held_out, held_out)
    }

    /// This number of synthetic images, and a quarter of it held out.
    pub fn synthetic(train: u64) -> SetSizes {
        SetSizes::of_counts(train, train / 4)
    }

    /// These numbers of samples, whose values are in memory.
    pub const fn of_counts(train: u64, held_out: u64) -> SetSizes {
        SetSizes { train, held_out, stored: None, message: None }
    }

    /// The default number of synthetic training images of this shape.
    pub fn default_synthetic(input: Shape) -> u64 {
        let (samples, bytes) = SetSizes::SYNTHETIC;
        samples.min(bytes / Dtype::F32.bytes(input.elements()).max(1)).max(4)
    }
}
