//! The keys of `[optimizer]` and `[init]`, which experiments and recipes share.

use lockstep_models::{InitRules, Optimizer};
use lockstep_topology::InputError;

use super::reader::Entry;

const OPTIMIZER: [&str; 9] = [
    "learning_rate",
    "scaling",
    "warm_up",
    "decay",
    "momentum",
    "momentum_form",
    "nesterov",
    "weight_decay",
    "decay_batch_norm",
];

const INIT: [&str; 6] = ["convolution", "convolution_1x1", "dense", "last_dense", "bias", "residual_gamma"];

/// Takes over what a table `[optimizer]` says.
pub(super) fn optimizer(optimizer: &mut Optimizer, entry: &Entry<'_>) -> Result<(), InputError> {
    for entry in entry.section("[optimizer]", &OPTIMIZER)?.entries() {
        match entry.key() {
            "learning_rate" => optimizer.learning_rate = entry.number(0.0)?,
            "scaling" => optimizer.scaling = entry.read(str::parse)?,
            "warm_up" => optimizer.warm_up = entry.read(str::parse)?,
            "decay" => optimizer.decay = entry.read(str::parse)?,
            "momentum" => optimizer.momentum = entry.checked(super::momentum)?,
            "momentum_form" => optimizer.form = entry.read(str::parse)?,
            "nesterov" => optimizer.nesterov = entry.boolean()?,
            "weight_decay" => optimizer.weight_decay = entry.number(0.0)?,
            _ => optimizer.decay_batch_norm = entry.boolean()?,
        }
    }
    Ok(())
}

/// A number that is finite in fp32.
fn single(number: f64) -> Result<f64, String> {
    (number as f32).is_finite().then_some(number).ok_or_else(|| format!("must be a number up to {:e}", f32::MAX))
}

/// Takes over what a table `[init]` says.
pub(super) fn inits(rules: &mut InitRules, entry: &Entry<'_>) -> Result<(), InputError> {
    for entry in entry.section("[init]", &INIT)?.entries() {
        match entry.key() {
            "convolution" => rules.convolution = Some(entry.read(str::parse)?),
            "convolution_1x1" => rules.convolution_1x1 = Some(entry.read(str::parse)?),
            "dense" => rules.dense = Some(entry.read(str::parse)?),
            "last_dense" => rules.last_dense = Some(entry.read(str::parse)?),
            // Parameters are fp32.
            "bias" => rules.bias = Some(entry.checked(single)? as f32),
            _ => rules.residual_gamma = Some(entry.checked(single)? as f32),
        }
    }
    Ok(())
}
