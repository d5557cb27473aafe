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
    /// Nothing with these values, which are the usual ones; others are not understood.
    NothingIf(&'static [&'static str]),
    /// Nothing where it is switched off; on, it is not understood.
    Off,
    /// It changes memory or time by what is not counted here.
    NotCounted,
    /// It states the model, which a flag of ours may name instead.
    Model,
}

/// Keys with what they do; `*` at the end stands for any rest.
pub(crate) type Keys = &'static [(&'static str, Does)];

/// Keys that change neither memory nor the time of a step; `*` at the end stands for any rest.
pub(crate) type Nothing = &'static [&'static str];

/// A framework's files or flags. Keys that are in no list and that `together` does not read are not understood.
pub(crate) struct Source {
    /// Its name.
    pub(crate) name: &'static str,
    /// A file is its own that has one of these keys; `*` at the end stands for any rest.
    pub(crate) marks: &'static [&'static str],
    pub(crate) keys: &'static [Keys],
    pub(crate) nothing: &'static [Nothing],
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
            let does = self.keys.iter().copied().flatten().find(|(known, _)| is(known, key)).map(|(_, does)| *does);
            let place = || shown(key, value);
            match does {
                Some(Does::Model) if !has_model => continue,
                Some(Does::Model) => read.replaced.push(place()),
                // Of DeepSpeed, `auto` is what the trainer states.
                Some(Does::Is(_)) if value == "auto" => read.nothing.push(place()),
                Some(Does::Is(ours)) => read.set(ours, value),
                Some(Does::Switches(ours)) if !is_off(value) => read.set(ours, ""),
                Some(Does::Switches(_)) => read.nothing.push(place()),
                Some(Does::NotCounted) => read.not_counted.push(place()),
                Some(Does::NothingIf(usual)) if usual.contains(&value) => read.nothing.push(place()),
                Some(Does::Off) if is_off(value) => read.nothing.push(place()),
                Some(Does::NothingIf(_) | Does::Off) => read.not_read.push(place()),
                None if self.nothing.iter().copied().flatten().any(|known| is(known, key)) => {
                    read.nothing.push(place());
                }
                None => continue,
            }
            values.mark(key);
        }
        (self.together)(values, has_model, &mut read)?;
        for (key, value) in values.unread() {
            if is_off(value) { &mut read.assumed } else { &mut read.not_read }.push(shown(key, value));
        }
        Ok(read)
    }
}

/// Whether a key is the known one, whose end may be any.
fn is(known: &str, key: &str) -> bool {
    known.strip_suffix('*').map_or(known == key, |start| key.starts_with(start))
}

/// A key with its value.
pub(crate) fn shown(key: &str, value: &str) -> String {
    if value == "true" { key.to_owned() } else { format!("{key} {value}").trim_end().to_owned() }
}
