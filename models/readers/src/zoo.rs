//! Holds the models that come with the project, compiled in so that the program needs no data folder.

use std::path::Path;

use lockstep_topology::aliases::is_alike;
use lockstep_topology::document::suggestion;
use lockstep_topology::{Bytes, InputError, MODEL, Unreadable, read_bytes, read_text};

use lockstep_models::{Model, Shape};

use super::{caffe, config, model_file, onnx};

/// Names and texts, by name.
pub(super) const ZOO: &[(&str, &str)] = &[
    ("alexnet", include_str!("../../zoo/alexnet.toml")),
    ("alexnet-one-tower", include_str!("../../zoo/alexnet-one-tower.toml")),
    ("googlenet", include_str!("../../zoo/googlenet.toml")),
    ("googlenet-bn", include_str!("../../zoo/googlenet-bn.toml")),
    ("gpt", include_str!("../../zoo/gpt.toml")),
    ("gpt2", include_str!("../../zoo/gpt2.toml")),
    ("gpt2-char", include_str!("../../zoo/gpt2-char.toml")),
    ("gpt2-large", include_str!("../../zoo/gpt2-large.toml")),
    ("gpt2-medium", include_str!("../../zoo/gpt2-medium.toml")),
    ("gpt2-xl", include_str!("../../zoo/gpt2-xl.toml")),
    ("gpt3-175b", include_str!("../../zoo/gpt3-175b.toml")),
    ("inception-v3", include_str!("../../zoo/inception-v3.toml")),
    ("lenet", include_str!("../../zoo/lenet.toml")),
    ("llama-2-13b", include_str!("../../zoo/llama-2-13b.toml")),
    ("llama-2-70b", include_str!("../../zoo/llama-2-70b.toml")),
    ("llama-2-7b", include_str!("../../zoo/llama-2-7b.toml")),
    ("llama-3-405b", include_str!("../../zoo/llama-3-405b.toml")),
    ("llama-3-70b", include_str!("../../zoo/llama-3-70b.toml")),
    ("llama-3-8b", include_str!("../../zoo/llama-3-8b.toml")),
    ("llama-3.2-1b", include_str!("../../zoo/llama-3.2-1b.toml")),
    ("mistral-7b", include_str!("../../zoo/mistral-7b.toml")),
    ("mlp", include_str!("../../zoo/mlp.toml")),
    ("msft-speech", include_str!("../../zoo/msft-speech.toml")),
    ("nin", include_str!("../../zoo/nin.toml")),
    ("qwen3-0.6b", include_str!("../../zoo/qwen3-0.6b.toml")),
    ("qwen3-8b", include_str!("../../zoo/qwen3-8b.toml")),
    ("resnet-101", include_str!("../../zoo/resnet-101.toml")),
    ("resnet-152", include_str!("../../zoo/resnet-152.toml")),
    ("resnet-32", include_str!("../../zoo/resnet-32.toml")),
    ("resnet-50", include_str!("../../zoo/resnet-50.toml")),
    ("vgg-16", include_str!("../../zoo/vgg-16.toml")),
    ("vgg-16-cifar", include_str!("../../zoo/vgg-16-cifar.toml")),
    ("vgg-19", include_str!("../../zoo/vgg-19.toml")),
];

/// A kind of files that hold models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// This project's.
    Own,
    /// ONNX's.
    Onnx,
    /// Caffe's.
    Caffe,
    /// A decoder's, of Hugging Face's transformers.
    Config,
}

/// Endings of their names.
const FORMATS: [(&str, Format); 4] =
    [(".toml", Format::Own), (".onnx", Format::Onnx), (".prototxt", Format::Caffe), (".json", Format::Config)];

/// Endings of files of other programs, which are refused.
const FOREIGN: [&str; 12] =
    [".pt", ".pth", ".pt2", ".safetensors", ".h5", ".keras", ".pb", ".tflite", ".ckpt", ".bin", ".caffemodel", ".py"];

/// Names of all models with their variants.
pub(super) fn names() -> Vec<String> {
    let of_file = |(name, text): &(&str, &str)| {
        // Errors in our own files are reported when they are loaded.
        let variants = model_file::variants(&file(name), text).unwrap_or_default();
        let variants = variants.into_iter().map(|variant| format!("{name}:{variant}"));
        [(*name).to_owned()].into_iter().chain(variants).collect::<Vec<_>>()
    };
    ZOO.iter().flat_map(of_file).collect()
}

/// The model of that name, else of that path, with the settings after the colon.
pub(super) fn load(wanted: &str) -> Result<Model, InputError> {
    let (name_or_path, settings) = split(wanted);
    if let Some((name, text)) = ZOO.iter().find(|(name, _)| is_alike(name, name_or_path)) {
        return model_file::parse(&file(name), text, settings);
    }
    let ending = FORMATS.iter().find(|(ending, _)| name_or_path.ends_with(ending));
    let is_other = FOREIGN.iter().any(|ending| name_or_path.ends_with(ending));
    let format = match ending {
        Some((_, format)) => *format,
        None if is_other => return Err(InputError::new(name_or_path, "", EXPORT)),
        None if name_or_path.contains(std::path::MAIN_SEPARATOR) => Format::Own,
        None => return Err(unknown(name_or_path)),
    };
    let refused = |message: &str| Err(InputError::new("", format!("model \"{wanted}\""), message));
    let unreadable =
        |error: Unreadable| InputError::new(name_or_path, "", format!("the model {}", error.with_cure(CURE)));
    let path = Path::new(name_or_path);
    let text = |most: Bytes| read_text(path, most).map_err(unreadable);
    match format {
        Format::Own => model_file::parse(name_or_path, &text(LONGEST)?, settings),
        Format::Config => config::parse(name_or_path, &text(LONGEST)?, settings),
        Format::Onnx if !matches!(settings, "" | "unfold") => refused(NO_SIZES),
        Format::Onnx => {
            let bytes = read_bytes(path, MODEL).map_err(unreadable)?;
            onnx::parse(name_or_path, &bytes, !settings.is_empty(), biased)
        }
        Format::Caffe => match (settings, input(settings)) {
            ("", _) => caffe::parse(name_or_path, &text(LONGEST_FOREIGN)?, None),
            (_, None) => refused("takes nothing behind its colon but the shape of a sample, input=3x224x224"),
            (_, shape) => caffe::parse(name_or_path, &text(LONGEST_FOREIGN)?, shape),
        },
    }
}

/// The error for a name that is neither in the zoo nor a path.
fn unknown(name: &str) -> InputError {
    let cure = suggestion(name, ZOO.iter().map(|(name, _)| *name));
    let end = if cure.ends_with('?') { "" } else { "." };
    let one = if name.contains(',') { ONE } else { "" };
    let message = format!(
        "there is no such model in the zoo, and a path ends in .toml, .json, .onnx or .prototxt: {one}{cure}{end} {KINDS}"
    );
    InputError::new("", format!("model \"{name}\""), message)
}

/// The name of an ONNX file's model with the batch normalisation restored that an export has folded away.
///
/// # Errors
/// A model of another format, which has none folded away.
pub(super) fn unfolded(name_or_path: &str) -> Result<String, InputError> {
    match split(name_or_path) {
        (path, "" | "unfold") if path.ends_with(".onnx") => Ok(format!("{path}:unfold")),
        _ => {
            let message = "restores the batch normalisation that an export has folded into the convolutions of an ONNX file, and \
                           this model is none: leave it out";
            Err(InputError::flag("unfold", name_or_path, message))
        }
    }
}

/// A name with one more setting behind its colon.
pub(super) fn with(name_or_path: &str, setting: &str) -> String {
    let between = if split(name_or_path).1.is_empty() { ':' } else { ',' };
    format!("{name_or_path}{between}{setting}")
}

/// The networks of the zoo whose convolutions have biases and no normalisation.
pub(super) fn biased() -> Vec<Model> {
    let names = ["alexnet", "alexnet-one-tower", "vgg-16", "vgg-19", "nin", "googlenet", "lenet"];
    names.iter().filter_map(|name| load(name).ok()).collect()
}

/// The shape in `input=CHANNELSxHEIGHTxWIDTH`.
fn input(settings: &str) -> Option<Shape> {
    let sizes = settings.strip_prefix("input=")?.split('x').map(|size| size.parse().ok());
    match sizes.collect::<Option<Vec<u32>>>()?[..] {
        [channels, height, width] => Some(Shape::of_image(channels, height, width)),
        _ => None,
    }
}

/// The longest text of a model that is read, only to report that it has too many layers; the TOML parser takes less.
const LONGEST: Bytes = Bytes(64 << 20);

/// The longest file of another framework: a list of the most layers has about as many bytes.
const LONGEST_FOREIGN: Bytes = Bytes(8 << 20);

/// Which models there can be.
const KINDS: &str = "Models are of convolutions, dense layers and elementwise ones, on images or feature vectors, and \
                     decoders: gpt:hidden=768,layers=12,heads=12 is one of any size, and so is a config.json.";

/// Of several names where one is expected.
const ONE: &str = "name one, or sweep over them with lockstep sim sweep; ";

/// Of settings of an ONNX file.
const NO_SIZES: &str = "a .onnx file has no variants or sizes: write nothing behind its colon, or unfold to restore batch \
                        normalisation that an export has folded away";

/// The advice on files of other programs.
const EXPORT: &str = "a model's file ends in .toml, .json (a decoder's config.json), .onnx or .prototxt (Caffe): export it to ONNX (torch.onnx.export, tf2onnx)";

/// The advice on what to name instead.
const CURE: &str = "lockstep models list shows those that need no file";

fn file(name: &str) -> String {
    format!("models/zoo/{name}.toml")
}

/// Splits at the colon into name or path, and the settings after it; a path may hold colons of its own.
fn split(wanted: &str) -> (&str, &str) {
    let behind = |(ending, _): &(&str, Format)| Some(wanted.rfind(&format!("{ending}:"))? + ending.len());
    match FORMATS.iter().find_map(behind) {
        Some(colon) => (&wanted[..colon], &wanted[colon + 1..]),
        None if FORMATS.iter().any(|(ending, _)| wanted.ends_with(ending)) => (wanted, ""),
        None => wanted.split_once(':').unwrap_or((wanted, "")),
    }
}
