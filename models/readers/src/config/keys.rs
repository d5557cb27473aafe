//! The keys of a `config.json`: reads each with its line, and knows which have not been read.

use std::cell::RefCell;
use std::collections::BTreeSet;

use lockstep_topology::{ErrorPlace, InputError};
use serde_json::{Map, Value};

/// A key, and what transformers takes for an absent one.
pub(super) type Needed = (&'static str, &'static str);

/// An object of a file.
pub(super) struct Keys<'a> {
    file: &'a str,
    text: &'a str,
    map: &'a Map<String, Value>,
    read: RefCell<BTreeSet<&'a str>>,
    notes: RefCell<Vec<String>>,
}

impl<'a> Keys<'a> {
    /// The keys of an object in `text`, the content of `file`.
    pub(super) fn new(file: &'a str, text: &'a str, map: &'a Map<String, Value>) -> Keys<'a> {
        Keys { file, text, map, read: RefCell::default(), notes: RefCell::default() }
    }

    /// An error at the line of a key.
    pub(super) fn error(&self, key: &str, message: impl Into<String>) -> InputError {
        let quoted = format!("\"{key}\"");
        let at = self.text.find(&quoted);
        let place = at.map_or(ErrorPlace::from(self.file), |at| {
            ErrorPlace::line(self.file, self.text[..at].matches('\n').count() + 1)
        });
        let value = self.map.get(key).map_or_else(String::new, |value| {
            let shown: String = value.to_string().chars().take(60).collect();
            format!("{key}: {shown}")
        });
        InputError::new(place, value, message)
    }

    /// The error for a key that is not there.
    pub(super) fn missing(&self, key: &str) -> InputError {
        InputError::new(self.file, "", format!("lacks the key {key}: is it the config.json of a decoder?"))
    }

    /// Refuses a file without this key, for which transformers takes a value of its own then.
    pub(super) fn stated(&self, (key, otherwise): Needed) -> Result<(), InputError> {
        match self.map.contains_key(key) {
            true => Ok(()),
            false => {
                let message = format!("lacks the key {key}, for which transformers takes {otherwise} then: state it");
                Err(self.error("model_type", message))
            }
        }
    }

    /// A value; `null` is none.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        let (key, value) = self.map.get_key_value(key)?;
        self.read.borrow_mut().insert(key);
        Some(value).filter(|value| !value.is_null())
    }

    /// A size, at least 1.
    pub(super) fn size(&self, key: &str) -> Result<Option<u32>, InputError> {
        let read = |value: &Value| value.as_u64().and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
        let wrong = || self.error(key, format!("must be a whole number from 1 to {}", u32::MAX));
        self.get(key).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    /// A count, which may be 0.
    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, InputError> {
        let read = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
        let wrong = || self.error(key, format!("must be a whole number from 0 to {}", u32::MAX));
        self.get(key).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    /// A size that must be there.
    pub(super) fn need(&self, key: &str) -> Result<u32, InputError> {
        self.size(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number above 0.
    pub(super) fn number(&self, key: &str) -> Result<Option<f32>, InputError> {
        let read = |value: &Value| {
            value.as_f64().map(|number| number as f32).filter(|number| *number > 0.0 && number.is_finite())
        };
        let wrong = || self.error(key, "must be a number above 0");
        self.get(key).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    /// A number above 0 that must be there, and not be `null`.
    pub(super) fn need_number(&self, key: &str) -> Result<f32, InputError> {
        let wrong = || match self.map.contains_key(key) {
            true => self.error(key, "must be a number above 0"),
            false => self.missing(key),
        };
        self.number(key)?.ok_or_else(wrong)
    }

    /// A number above 0, not `null`; if the key is absent, `otherwise`.
    pub(super) fn number_or(&self, key: &str, otherwise: f32) -> Result<f32, InputError> {
        if self.map.contains_key(key) { self.need_number(key) } else { Ok(otherwise) }
    }

    /// Yes or no.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, InputError> {
        let wrong = || self.error(key, "must be true or false");
        self.get(key).map(|value| value.as_bool().ok_or_else(wrong)).transpose()
    }

    /// A text.
    pub(super) fn word(&self, key: &str) -> Result<Option<&'a str>, InputError> {
        let wrong = || self.error(key, "must be a text");
        self.get(key).map(|value| value.as_str().ok_or_else(wrong)).transpose()
    }

    /// A list of texts.
    pub(super) fn words(&self, key: &str) -> Result<Option<Vec<&'a str>>, InputError> {
        let wrong = || self.error(key, "must be a list of texts");
        let read = |value: &'a Value| value.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<&str>>>();
        self.get(key).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    /// An object of its own.
    pub(super) fn inner(&self, key: &str) -> Result<Option<Keys<'a>>, InputError> {
        let wrong = || self.error(key, "must be an object");
        let read = |value: &'a Value| value.as_object().map(|map| Keys::new(self.file, self.text, map));
        self.get(key).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    /// Refuses another value of a yes-or-no key than the one whose model is built.
    pub(super) fn only(&self, key: &str, wanted: bool) -> Result<(), InputError> {
        match self.flag(key)? {
            Some(found) if found != wanted => {
                Err(self.error(key, format!("is read as {wanted} alone: no layers are known for this")))
            }
            _ => Ok(()),
        }
    }

    /// Notes rates of dropout, whose layers are left out.
    pub(super) fn leave_out_dropout(&self, keys: &[&str]) {
        let rates: Vec<String> = keys
            .iter()
            .filter_map(|key| self.get(key).map(|rate| (key, rate)))
            .filter(|(_, rate)| rate.as_f64() != Some(0.0))
            .map(|(key, rate)| format!("{key} = {rate}"))
            .collect();
        if !rates.is_empty() {
            self.notes.borrow_mut().push(format!("dropout of the file is left out: {}", rates.join(", ")));
        }
    }

    /// What was left out.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// Counts keys as read that do not change layers and sizes.
    pub(super) fn ignore(&self, keys: &[&str]) {
        keys.iter().for_each(|key| {
            self.get(key);
        });
    }

    /// Refuses keys that nothing has read.
    pub(super) fn all_read(&self, what: &str) -> Result<(), InputError> {
        let unknown: Vec<&str> =
            self.map.keys().map(String::as_str).filter(|key| !self.read.borrow().contains(key)).collect();
        match unknown.first() {
            None => Ok(()),
            Some(first) => {
                let message = format!(
                    "{what} has no such key here ({}): remove what does not change layers and sizes",
                    unknown.join(", ")
                );
                Err(self.error(first, message))
            }
        }
    }
}
