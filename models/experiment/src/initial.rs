//! Reads the keys of `[init]`, which experiments and recipes share, and tells which of them a model does not read.

use lockstep_models::{Init, InitRules, Model};
use lockstep_topology::InputError;
use lockstep_topology::document::Entry;

use crate::experiment::Experiment;

/// A key of `[init]`.
pub(crate) struct InitKey {
    key: &'static str,
    /// The key in the places of an experiment.
    pub(crate) place: &'static str,
    /// The layers that it is about.
    pub(crate) what: &'static str,
    read: fn(&mut InitRules, &Entry<'_>) -> Result<(), InputError>,
    /// Its value, as errors repeat it.
    pub(crate) value: fn(&InitRules) -> String,
    /// Sets it to a constant.
    probe: fn(&mut InitRules, f32),
}

/// A row of the table: a key, its field, and the layers.
macro_rules! row {
    ($key:literal, $field:ident, $what:literal, $read:expr, $probe:expr) => {
        InitKey {
            key: $key,
            place: concat!("init.", $key),
            what: $what,
            read: |rules, entry| {
                rules.$field = Some($read(entry)?);
                Ok(())
            },
            value: |rules| rules.$field.map(|value| value.to_string()).unwrap_or_default(),
            probe: |rules, value| rules.$field = Some($probe(value)),
        }
    };
}

const KEYS: &[InitKey] = &[
    row!("convolution", convolution, "convolutions", |entry: &Entry<'_>| entry.read(str::parse), Init::Constant),
    row!(
        "convolution_1x1",
        convolution_1x1,
        "1x1 convolutions",
        |entry: &Entry<'_>| entry.read(str::parse),
        Init::Constant
    ),
    row!("dense", dense, "dense layers", |entry: &Entry<'_>| entry.read(str::parse), Init::Constant),
    row!("last_dense", last_dense, "dense layers", |entry: &Entry<'_>| entry.read(str::parse), Init::Constant),
    row!("bias", bias, "biases", single, |value| value),
    row!("residual_gamma", residual_gamma, "batch norms that end a residual block", single, |value| value),
];

/// A number that is finite in fp32, as parameters are.
fn single(entry: &Entry<'_>) -> Result<f32, InputError> {
    let finite = |number: f64| {
        let fits = (number as f32).is_finite();
        fits.then_some(number as f32).ok_or_else(|| format!("must be a number up to {:e}", f32::MAX))
    };
    entry.checked(finite)
}

/// Applies a table `[init]`.
///
/// # Errors
/// An unknown key, or a value that its key cannot have.
pub(crate) fn read(experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
    let section = entry.section("[init]", &KEYS.iter().map(|row| row.key).collect::<Vec<_>>())?;
    for entry in section.entries() {
        for row in KEYS.iter().filter(|row| row.key == entry.key()) {
            (row.read)(&mut experiment.inits, &entry)?;
        }
    }
    experiment.place_keys(entry)
}

/// The keys that change nothing in `model`, whatever their value.
pub(crate) fn unread(model: &Model) -> Vec<&'static InitKey> {
    let with = |row: &InitKey, value: f32| {
        let mut rules = InitRules::default();
        (row.probe)(&mut rules, value);
        model.clone().with_inits(&rules)
    };
    KEYS.iter().filter(|row| with(row, 1.5).inits() == with(row, 2.5).inits()).collect()
}
