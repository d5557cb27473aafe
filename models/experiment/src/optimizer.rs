//! The keys of `[optimizer]` and `[init]`, which experiments and recipes share.

use lockstep_models::InitRules;
use lockstep_topology::InputError;

use super::{Experiment, SETTINGS};
use lockstep_topology::document::Entry;

const INIT: [&str; 6] = ["convolution", "convolution_1x1", "dense", "last_dense", "bias", "residual_gamma"];

/// Takes over what a table `[optimizer]` says.
pub(super) fn optimizer(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    let rows: Vec<_> = SETTINGS.iter().filter(|setting| setting.table == Some("optimizer")).collect();
    let section = entry.section("[optimizer]", &rows.iter().map(|row| row.key).collect::<Vec<_>>())?;
    for entry in section.entries() {
        rows.iter().filter(|row| row.key == entry.key()).try_for_each(|row| row.how.read(experiment, &entry))?;
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
