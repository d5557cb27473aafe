//! Flags and files of other training frameworks, read as those of this project, and layouts written as theirs.
//!
//! Each framework is one file: a table of its keys, and a function for what several of them mean together. What changes neither
//! memory nor time is listed; what may and is not understood is named, so that no answer is of another training.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod hugging_face;
mod optimizer;
mod print;
mod read;
mod source;
mod sources;
#[cfg(test)]
mod tests;
mod values;
mod zero;

use std::path::Path;

use lockstep_topology::InputError;

pub use print::{Printed, print};
pub use read::Read;
use sources::{MEGATRON, SOURCES};
use values::Values;

/// The flags in a file of another framework, recognised by its keys; `has_model` says that the model is named elsewhere.
///
/// # Errors
/// A file that cannot be read or is of no known framework, or values that a key cannot have.
pub fn read_file(path: &Path, has_model: bool) -> Result<Read, InputError> {
    let place = path.display().to_string();
    let mut values = Values::of_file(path)?;
    zero::add_deepspeed(&mut values, path)?;
    // Megatron-LM's arguments in a file have underscores.
    if values.first(&["tensor_model_parallel_size", "micro_batch_size"]).is_some() && values.get("base_model").is_none()
    {
        values = values.hyphenated();
    }
    let Some(source) = SOURCES.iter().find(|source| source.has(&values)) else {
        let known: Vec<&str> = SOURCES.iter().map(|source| source.name).collect();
        let message = format!("is of none of these: {}", known.join(", "));
        return Err(InputError::new(place, "", message));
    };
    source.read(&values, has_model).map_err(|error| error.or_at(place.as_str()))
}

/// The flags in a command line of Megatron-LM: `--tensor-model-parallel-size 8 --bf16`.
///
/// # Errors
/// Words that are no flags, or values that a flag cannot have.
pub fn read_megatron(text: &str, has_model: bool) -> Result<Read, InputError> {
    MEGATRON.read(&Values::of_words(text)?, has_model)
}
