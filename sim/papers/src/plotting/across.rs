//! Reads the horizontal axis from its TOML text, and creates the configurations along it.

use lockstep_topology::{Bytes, ErrorPlace, InputError};

use crate::plot::Across;
use lockstep_experiment::{Experiment, read};
use lockstep_report::svg::Spacing;
use lockstep_topology::document::{Entry, SourceText, Table};

const X_KEYS: [&str; 7] = ["key", "label", "values", "names", "times", "write", "scale"];
/// The key that is the buffer of an allreduce and not a key of an experiment.
pub(super) const BYTES: &str = "bytes";

/// The horizontal axis, and what its values replace in a configuration.
pub(super) struct Moved {
    pub(super) key: String,
    pub(super) across: Across,
    /// The TOML value of the key at each value of the axis.
    texts: Vec<String>,
    /// Whether a factor or a text turns its values into those of the key.
    converts: bool,
    pub(super) place: ErrorPlace,
}

impl Moved {
    pub(super) fn of(entry: &Entry<'_>) -> Result<Moved, InputError> {
        let axis = entry.section("an axis", &X_KEYS)?;
        let key = axis.need("key", "\"ranks\"")?.text()?.to_owned();
        if key == BYTES {
            axis.unread(&["times", "write"], "bytes are written as they are")?;
        }
        let times = axis.get("times").map_or(Ok(1.0), |entry| entry.number(1.0))?;
        let write = axis.get("write").map(|entry| entry.text()).transpose()?;
        let mut values = Vec::new();
        let mut texts = Vec::new();
        for item in axis.need("values", "[8, 16, 32]")?.items()? {
            if key == BYTES {
                let bytes: Bytes = item.read(str::parse)?;
                values.push((bytes.0 as f64, Some(bytes.to_string())));
                continue;
            }
            let value = item.number(f64::MIN_POSITIVE)?;
            values.push((value, None));
            texts.push(write.map_or_else(
                || format!("{}", value * times),
                |write| format!("{:?}", write.replace("{}", &format!("{}", value * times))),
            ));
        }
        if let Some(entry) = axis.get("names") {
            let names = entry.items()?;
            if names.len() != values.len() {
                return Err(entry.error("must be as many as values"));
            }
            for (value, name) in values.iter_mut().zip(&names) {
                value.1 = Some(name.text()?.to_owned());
            }
        }
        let label = axis.need("label", "\"GPUs\"")?.text()?.to_owned();
        let across = Across { label, spacing: spacing(&axis)?, values };
        let converts = axis.get("times").or(axis.get("write")).is_some();
        Ok(Moved { key, across, texts, converts, place: entry.place() })
    }

    /// Whether its values are numbers of ranks.
    pub(super) fn counts_ranks(&self) -> bool {
        self.key == "ranks" && !self.converts
    }

    /// The experiment at each value of the axis.
    pub(super) fn each(&self, base: &Experiment) -> Result<Vec<Experiment>, InputError> {
        if self.key == BYTES {
            return Ok(vec![base.clone(); self.across.values.len()]);
        }
        self.texts.iter().map(|text| set(base, &self.key, text, &self.place)).collect()
    }
}

/// The experiment with the TOML value `text` under `key`.
pub(super) fn set(base: &Experiment, key: &str, text: &str, place: &ErrorPlace) -> Result<Experiment, InputError> {
    let line = format!("{key} = {text}\n");
    let source = SourceText { file: "", text: &line };
    let here = |error: InputError| error.at(place);
    let document = source.parse().map_err(here)?;
    let section = document.table("a configuration", &read::keys()).map_err(here)?;
    let mut experiment = base.clone();
    section.entries().try_for_each(|entry| read::set(&mut experiment, &entry)).map_err(here)?;
    Ok(experiment)
}

/// How an axis spaces its values.
pub(super) fn spacing(axis: &Table<'_>) -> Result<Spacing, InputError> {
    match axis.get("scale") {
        None => Ok(Spacing::Linear),
        Some(entry) if entry.is("log") => Ok(Spacing::Log),
        Some(entry) => Err(entry.error("write scale = \"log\", or leave it out: linear, from zero")),
    }
}
