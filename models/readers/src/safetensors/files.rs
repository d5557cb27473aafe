//! Finds the files of a model's weights: one, or several that an index names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lockstep_topology::{Bytes, InputError, read_text};
use serde_json::Value;

use super::shard::Shard;

/// The names of a file of all weights, and of the index of several.
const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The longest index: one of a hundred thousand tensors has 10 MB.
const LONGEST: Bytes = Bytes(64 << 20);

/// The files at `path`: itself, those of the index that it is, or those in the folder that it is.
///
/// # Errors
/// A folder without them, a file that cannot be read or is cut, an index that does not match its files.
pub(super) fn open(path: &str) -> Result<Vec<Shard>, InputError> {
    let at = Path::new(path);
    if !at.is_dir() {
        return if path.ends_with(".json") { indexed(at) } else { Ok(vec![Shard::open(at)?]) };
    }
    let (whole, index) = (at.join(WHOLE), at.join(INDEX));
    match (whole.exists(), index.exists()) {
        (true, _) => Ok(vec![Shard::open(&whole)?]),
        (false, true) => indexed(&index),
        (false, false) => {
            let message = format!("has neither {WHOLE} nor {INDEX}: name a folder that has, or a file");
            Err(InputError::flag("weights", path, message))
        }
    }
}

/// The files that an index names.
fn indexed(index: &Path) -> Result<Vec<Shard>, InputError> {
    let shown = index.display().to_string();
    let wrong = |value: &str, message: String| InputError::new(&*shown, value, message);
    let text = read_text(index, LONGEST).map_err(|error| wrong("", error.with_cure("name a file of weights")))?;
    let map = map(&text).map_err(|message| wrong("", message))?;
    let folder = index.parent().unwrap_or(Path::new("."));
    let mut shards = BTreeMap::new();
    for file in map.values().collect::<BTreeSet<_>>() {
        if file.is_empty() || Path::new(file).file_name().is_none_or(|name| name != &**file) {
            return Err(wrong(file, "is no name of a file in this folder: copy the index again".to_owned()));
        }
        shards.insert(file, Shard::open(&folder.join(file))?);
    }
    for (name, file) in &map {
        if !shards[file].tensors.contains_key(name) {
            let message = format!("is to be in {file}, which has no such tensor: copy both again");
            return Err(wrong(&format!("tensor \"{name}\""), message));
        }
    }
    Ok(shards.into_values().collect())
}

/// The file of each tensor.
fn map(text: &str) -> Result<BTreeMap<String, String>, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("is no JSON ({error}): copy the index again"))?;
    let map = value.get("weight_map").and_then(Value::as_object).filter(|map| !map.is_empty());
    let files = map.and_then(|map| {
        map.iter().map(|(name, file)| Some((name.clone(), file.as_str()?.to_owned()))).collect::<Option<_>>()
    });
    files.ok_or_else(|| "has no weight_map with a file for each tensor: name the index of a model's weights".to_owned())
}
