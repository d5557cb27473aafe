//! Reads and writes the weights of decoders in safetensors files, with the names and layouts of Hugging Face's transformers.

mod files;
mod layout;
mod names;
mod shard;
#[cfg(test)]
mod tests;
mod values;
mod write;

pub use layout::WeightLayout;
pub use values::StoredWeights;

use lockstep_models::Model;
use lockstep_topology::InputError;

use shard::{Content, Shard};

/// The layer of scores.
const HEAD: &str = "head";

/// The layer of learned positions.
const POSITIONS: &str = "positions";

/// The weights at `path` for `model`, and a text that says what was found.
///
/// # Errors
/// See [`crate::open_weights`].
pub(super) fn open(path: &str, model: &Model) -> Result<(StoredWeights, String), InputError> {
    let layout = WeightLayout::of(model)?;
    StoredWeights::of(path, files::open(path)?, layout)
}

/// The same of `bytes`, the content of one file.
pub(super) fn read(file: &str, bytes: Vec<u8>, model: &Model) -> Result<(StoredWeights, String), InputError> {
    let layout = WeightLayout::of(model)?;
    StoredWeights::of(file, vec![Shard::of(file, Content::Bytes(bytes))?], layout)
}
