//! Reads a decoder from the `config.json` of Hugging Face's transformers.

mod architectures;
mod gemma;
mod keys;
mod rotary;
mod shared_keys;

use std::path::Path;

use lockstep_models::Model;
use lockstep_topology::document::suggestion;
use lockstep_topology::{ErrorPlace, InputError};
use serde_json::Value;

use super::decoder;
use architectures::{ARCHITECTURES, WITHOUT_EFFECT};
use keys::Keys;

/// The model in `text`, the content of `file`, with the settings behind its name, such as `layers=4`.
///
/// # Errors
/// The line of the first mistake, of an unknown key, or an architecture that is not read.
pub(super) fn parse(file: &str, text: &str, settings: &str) -> Result<Model, InputError> {
    let wrong = |error: serde_json::Error| {
        let place = ErrorPlace::line(file, error.line().max(1));
        InputError::new(place, "", format!("is no JSON ({error}): give the config.json of a model"))
    };
    let value: Value = serde_json::from_str(text).map_err(wrong)?;
    let Value::Object(map) = value else {
        return Err(InputError::new(file, "", "is no object: give the config.json of a model"));
    };
    let keys = Keys::new(file, text, &map);
    let name = keys.word("model_type")?.ok_or_else(|| keys.missing("model_type"))?;
    let Some(architecture) = ARCHITECTURES.iter().find(|known| known.name == name) else {
        let known = ARCHITECTURES.iter().map(|known| known.name);
        let message =
            format!("is not read: {} ({})", suggestion(name, known.clone()), known.collect::<Vec<_>>().join(", "));
        return Err(keys.error("model_type", message));
    };
    architecture.needed.iter().try_for_each(|needed| keys.stated(*needed))?;
    let mut decoder = (architecture.read)(&keys)?;
    keys.ignore(WITHOUT_EFFECT);
    keys.ignore(architecture.without_effect);
    keys.all_read(name)?;
    let own = Some(decoder.positions);
    let notes = decoder::override_with(&mut decoder, settings, file, own)?;
    let name = if settings.is_empty() { name_of(file, name) } else { format!("{}:{settings}", name_of(file, name)) };
    let source = format!("Hugging Face's config.json, model_type {}", architecture.name);
    let model = decoder::build(&decoder, (name, source), &ErrorPlace::from(file))?;
    Ok(model.with_architecture(architecture.name).with_notes([keys.notes(), notes].concat()))
}

/// The folder of a file `config.json`, else the file's own name.
fn name_of(file: &str, otherwise: &str) -> String {
    let path = Path::new(file);
    let stem = path.file_stem().filter(|stem| *stem != "config");
    let folder = || path.parent().and_then(Path::file_name);
    stem.or_else(folder).map_or_else(|| otherwise.to_owned(), |name| name.to_string_lossy().into_owned())
}
