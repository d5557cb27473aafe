//! `Source`: the keys of another framework, each with what it does to memory and time.

use lockstep_topology::InputError;

use crate::read::Read;
use crate::values::{Values, is_off};

/// What a key of another framework does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Does {
    /// Its value is that of our flag.
    Is(&'static str),
    /// It switches our flag on.
    Switches(&'static str),
    /// It changes neither memory nor the time of a step.
    Nothing,
    /// Nothing with these values, which are the usual ones; others are not understood.
    NothingIf(&'static [&'static str]),
    /// It is read together with others.
    Together,
}

/// A framework's files or flags.
pub(crate) struct Source {
    /// Its name.
    pub(crate) name: &'static str,
    /// A file is its own that has one of these keys; `*` at the end stands for any rest.
    pub(crate) marks: &'static [&'static str],
    /// Its keys; `*` at the end stands for any rest. Others are not understood.
    pub(crate) keys: &'static [(&'static str, Does)],
    /// Reads what keys mean together; the flag says that the model is named elsewhere.
    pub(crate) together: fn(&Values, bool, &mut Read) -> Result<(), InputError>,
}

impl Source {
    /// Whether these values are of this framework.
    pub(crate) fn has(&self, values: &Values) -> bool {
        values.iter().any(|(key, _)| self.marks.iter().any(|mark| is(mark, key)))
    }

    /// Reads them.
    ///
    /// # Errors
    /// Values that contradict each other or that a key cannot have.
    pub(crate) fn read(&self, values: &Values, has_model: bool) -> Result<Read, InputError> {
        let mut read = Read { source: self.name, ..Read::default() };
        for (key, value) in values.iter() {
            match self.keys.iter().find(|(known, _)| is(known, key)).map(|(_, does)| *does) {
                // Of DeepSpeed, `auto` is what the trainer states.
                Some(Does::Is(_)) if value == "auto" => read.nothing.push(shown(key, value)),
                Some(Does::Is(ours)) => read.set(ours, value),
                Some(Does::Switches(ours)) if !is_off(value) => read.set(ours, ""),
                Some(Does::Switches(_) | Does::Nothing) => read.nothing.push(shown(key, value)),
                Some(Does::NothingIf(usual)) if is_off(value) || usual.contains(&value) => {
                    read.nothing.push(shown(key, value));
                }
                Some(Does::Together) => {}
                Some(Does::NothingIf(_)) | None if is_off(value) => read.nothing.push(shown(key, value)),
                Some(Does::NothingIf(_)) | None => read.not_read.push(shown(key, value)),
            }
        }
        (self.together)(values, has_model, &mut read)?;
        Ok(read)
    }
}

fn is(known: &str, key: &str) -> bool {
    known.strip_suffix('*').map_or(known == key, |start| key.starts_with(start))
}

/// A key with its value.
pub(crate) fn shown(key: &str, value: &str) -> String {
    if value == "true" { key.to_owned() } else { format!("{key} {value}") }
}
