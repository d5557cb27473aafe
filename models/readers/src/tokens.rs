//! Checks that a model of tokens has an entry and a score for each of them.

use lockstep_models::{Dimension, Draft, Layer, LayerId, Model};
use lockstep_topology::{ErrorPlace, InputError};

/// The names and the places of drafts.
pub(super) fn places(drafts: &[Draft]) -> Vec<(String, ErrorPlace)> {
    drafts.iter().map(|draft| (draft.name.clone(), draft.place.clone())).collect()
}

/// A table that tokens are looked up in has an entry for each of them, and a loss at each position a score.
pub(super) fn check(model: Model, places: &[(String, ErrorPlace)]) -> Result<Model, InputError> {
    let Some(tokens) = model.tokens() else { return Ok(model) };
    for node in model.layers() {
        let refuse = |message: String| {
            let place =
                places.iter().find(|(name, _)| *name == node.name).map_or(ErrorPlace::None, |(_, place)| place.clone());
            let value = format!("{} ({})", node.name, node.layer.kind());
            Err(InputError { place, value, message })
        };
        match &node.layer {
            Layer::Embedding(table) if node.inputs.contains(&LayerId(0)) && table.entries < tokens => {
                return refuse(format!("has {} entries for {tokens} tokens: give it as many or more", table.entries));
            }
            _ => {}
        }
        let scores = if node.layer.is_loss() { node.classes() } else { 0 };
        if scores < tokens && node.labels().is_some_and(|labels| labels.shape.has(Dimension::Position)) {
            return refuse(format!(
                "has scores of {scores} of {tokens} tokens: give the layer before it as many or more"
            ));
        }
    }
    Ok(model)
}
