//! Selects the layers of a net that take part in training, and reads their batch size.

use lockstep_topology::InputError;

use super::layers::is_data;
use super::text::Message;

/// Samples of a batch, if the training data layer states them.
pub(super) fn batch_size(net: &Message<'_>) -> Result<Option<u32>, InputError> {
    for field in net.fields().iter().filter(|field| matches!(field.name, "layer" | "layers")) {
        let layer = field.message()?;
        let kind = layer.get("type").map_or(Ok(""), |field| field.name_of_type())?;
        if is_data(kind) && in_training(layer)? {
            for of in ["data_param", "image_data_param", "memory_data_param", "hdf5_data_param"] {
                if let Some(size) = layer.message(of)?.get("batch_size") {
                    return match size.size()? {
                        0 => Err(size.error("must be at least 1")),
                        samples => Ok(Some(samples)),
                    };
                }
            }
        }
    }
    Ok(None)
}

/// Whether a layer takes part in training.
pub(super) fn in_training(layer: &Message<'_>) -> Result<bool, InputError> {
    let train = |rule: &str, without: bool| {
        let mut found = without;
        for field in layer.all(rule) {
            let rule = field.message()?;
            rule.allow(&[&["phase", "stage", "not_stage", "min_level", "max_level"]])?;
            // A net is trained in no stage and at level 0 unless its solver says otherwise.
            let in_state = rule.get("stage").is_none() && rule.size("min_level", 0)? == 0;
            found = rule.word("phase", "TRAIN")? == "TRAIN" && in_state;
            if found {
                break;
            }
        }
        Ok::<bool, InputError>(found)
    };
    Ok(train("include", true)? && !train("exclude", false)?)
}
