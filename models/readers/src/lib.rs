//! Reads models: the project's TOML files and zoo, ONNX files and Caffe's network definitions, solvers and weights; reads and writes
//! weights of decoders.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod block;
mod caffe;
mod config;
mod decoder;
mod expression;
mod kinds;
mod model_file;
mod onnx;
mod safetensors;
mod sizes;
mod sketch;
#[cfg(test)]
mod tests;
mod wire;
mod zoo;

pub use caffe::Solver;
use lockstep_models::{Model, NamedValues};
use lockstep_topology::InputError;
pub use safetensors::{StoredWeights, WeightLayout};

/// Loads the model of that name in the zoo, or the one in the file at that path. Variants and sizes may follow a colon:
/// `alexnet:ungrouped`, `resnet-50:image=64,classes=10`, `nets/mine.toml:wide`; of decoders any key, `gpt:hidden=512,layers=4`.
///
/// # Errors
/// Neither exists (the nearest names are listed), or what [`parse_model`] refuses.
pub fn load_model(name_or_path: &str) -> Result<Model, InputError> {
    zoo::load(name_or_path)
}

/// The model that `text`, the content of `file`, describes (the format is in `docs/models.md`).
///
/// # Errors
/// File, line, value and cure of the first mistake.
///
/// ```
/// let text = r#"
/// name = "tiny"
/// input = [1, 2, 2]
/// [[layer]]
/// kind = "dense"
/// out_features = 3
/// [[layer]]
/// kind = "softmax_cross_entropy"
/// "#;
/// let model = lockstep_readers::parse_model("tiny.toml", text)?;
/// assert_eq!(model.parameter_elements(), 4 * 3 + 3);
/// # Ok::<(), lockstep_topology::InputError>(())
/// ```
pub fn parse_model(file: &str, text: &str) -> Result<Model, InputError> {
    model_file::parse(file, text, "")
}

/// The decoder in `text`, the content of `file`, a `config.json` of Hugging Face's transformers.
///
/// # Errors
/// The line of the first mistake or of a key that is not known, or an architecture that is not read.
///
/// ```
/// let text = r#"{"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}"#;
/// assert_eq!(lockstep_readers::read_config("gpt2/config.json", text)?.parameter_elements(), 124_439_808);
/// # Ok::<(), lockstep_topology::InputError>(())
/// ```
pub fn read_config(file: &str, text: &str) -> Result<Model, InputError> {
    config::parse(file, text, "")
}

/// The model in `bytes`, the content of the ONNX file `file`; its name is the file's. Parameters are initialized again:
/// of weights only shapes are read.
///
/// # Errors
/// The byte or node of the first mistake, or of the first operator without an equivalent here.
pub fn read_onnx(file: &str, bytes: &[u8]) -> Result<Model, InputError> {
    onnx::parse(file, bytes, false, zoo::biased)
}

/// The model that `text`, the content of `file`, defines as Caffe's networks are (`.prototxt`), to train or to deploy.
///
/// # Errors
/// The line of the first mistake, or of the first layer without an equivalent here.
pub fn read_caffe(file: &str, text: &str) -> Result<Model, InputError> {
    caffe::parse(file, text, None)
}

/// The values in `bytes`, the content of the `.caffemodel` file `file`, for the layers of `model`, by name; and a text
/// that lists the layers that only one of the two has.
///
/// # Errors
/// The byte of the first mistake, or layer, blob and shapes of what does not fit.
pub fn read_caffe_weights(file: &str, bytes: &[u8], model: &Model) -> Result<(NamedValues, String), InputError> {
    caffe::read_weights(file, bytes, model)
}

/// The weights at `path` for `model`, a decoder: a safetensors file, an index of several, or a folder with either, in which tensors
/// have the names and layouts of transformers; and a text that says what was found.
///
/// # Errors
/// A file that is missing, cut or none of safetensors; the first tensor that is missing, of another shape or of no layer.
pub fn open_weights(path: &str, model: &Model) -> Result<(StoredWeights, String), InputError> {
    safetensors::open(path, model)
}

/// The same of `bytes`, the content of the one file `file`.
///
/// # Errors
/// As there.
pub fn read_weights(file: &str, bytes: Vec<u8>, model: &Model) -> Result<(StoredWeights, String), InputError> {
    safetensors::read(file, bytes, model)
}

/// What [`load_model`] takes for the ONNX file's model `name` with the batch normalisation restored that an export in eval
/// mode has folded into its convolutions.
///
/// # Errors
/// A model that is no ONNX file.
pub fn unfolded_name(name: &str) -> Result<String, InputError> {
    zoo::unfolded(name)
}

/// The name of a model with one more size or key behind its colon.
///
/// ```
/// # use lockstep_readers::model_with;
/// assert_eq!(model_with("gpt2", "positions=64"), "gpt2:positions=64");
/// assert_eq!(model_with("nets/gpt.toml:wide", "positions=64"), "nets/gpt.toml:wide,positions=64");
/// ```
pub fn model_with(name_or_path: &str, setting: &str) -> String {
    zoo::with(name_or_path, setting)
}

/// Names of the models that come with the project, each followed by its file's variants.
pub fn zoo() -> Vec<String> {
    zoo::names()
}
