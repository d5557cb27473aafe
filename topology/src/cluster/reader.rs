//! `Reader`: one TOML table with the place of every key and value, so that each error can name file and line.
//!
//! Plain serde would lose the line of a value that is well formed but makes no sense.

use crate::{InputError, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file that is being read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    /// Whether its links are plain unless they name a protocol.
    pub(super) plain: bool,
}

impl Source<'_> {
    /// An error at byte `offset` about `value`.
    pub(super) fn error(&self, offset: usize, value: impl Into<String>, message: impl Into<String>) -> InputError {
        InputError::at_offset(self.file, self.text, offset, value, message)
    }
}

/// One table of the file, called `title` in errors.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    title: &'static str,
    table: &'a DeTable<'a>,
    /// Where the table starts.
    pub(super) offset: usize,
}

/// A value with the place where it stands.
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) offset: usize,
    /// The key and the value as the file writes them, for errors.
    pub(super) shown: String,
}

impl<'a> Reader<'a> {
    /// The table `title`, refusing any key outside `keys`.
    pub(super) fn new(
        source: Source<'a>,
        title: &'static str,
        table: &'a DeTable<'a>,
        offset: usize,
        keys: &[&'static str],
    ) -> Result<Reader<'a>, InputError> {
        // Map order is by key; the error that stands first in the file is the one to show.
        let unknown = table.keys().filter(|key| !keys.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            let near = nearest(key.get_ref(), keys.iter().copied());
            let hint = if near.is_empty() { keys.join(", ") } else { near.join(", ") };
            let message = format!("unknown key in {title}; did you mean {hint}?");
            return Err(source.error(key.span().start, short(key.get_ref()), message));
        }
        Ok(Reader { source, title, table, offset })
    }

    /// An error about the table as a whole.
    pub(super) fn error(&self, message: impl Into<String>) -> InputError {
        self.source.error(self.offset, self.title, message)
    }

    /// An error about a value of this table.
    pub(super) fn error_at<T>(&self, at: &At<T>, message: impl Into<String>) -> InputError {
        self.source.error(at.offset, at.shown.clone(), message)
    }

    pub(super) fn missing(&self, key: &str, example: &str) -> InputError {
        self.error(format!("{key} is missing; add {key} = {example}"))
    }

    pub(super) fn get(&self, key: &str) -> Option<At<&'a DeValue<'a>>> {
        let found: &Spanned<DeValue<'a>> = self.table.get(key)?;
        let written = self.source.text.get(found.span()).unwrap_or("");
        Some(At { value: found.get_ref(), offset: found.span().start, shown: format!("{key} = {}", short(written)) })
    }

    /// A string, if the key is there.
    pub(super) fn text(&self, key: &str, example: &str) -> Result<Option<At<&'a str>>, InputError> {
        let Some(at) = self.get(key) else { return Ok(None) };
        match at.value.as_str() {
            Some(text) => Ok(Some(At { value: text, offset: at.offset, shown: at.shown })),
            None => Err(self.error_at(&at, format!("must be a string in quotes, e.g. {example}"))),
        }
    }

    /// What `read` makes of a string, if the key is there; `example` is a good value.
    pub(super) fn read<T>(
        &self,
        key: &str,
        example: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<At<T>>, InputError> {
        let Some(at) = self.text(key, example)? else { return Ok(None) };
        match read(at.value) {
            Ok(value) => Ok(Some(At { value, offset: at.offset, shown: at.shown })),
            Err(wrong) => Err(self.error_at(&at, bare(&wrong, at.value))),
        }
    }

    /// Like [`Reader::read`], for a key that must be there.
    pub(super) fn need<T>(
        &self,
        key: &str,
        example: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<At<T>, InputError> {
        self.read(key, example, read)?.ok_or_else(|| self.missing(key, example))
    }

    /// A whole number from 1 to `most`, if the key is there.
    pub(super) fn count(&self, key: &str, most: u64) -> Result<Option<At<u64>>, InputError> {
        self.whole(key, 1, most)
    }

    /// A whole number from `least` to `most`, if the key is there.
    pub(super) fn whole(&self, key: &str, least: u64, most: u64) -> Result<Option<At<u64>>, InputError> {
        let Some(at) = self.get(key) else { return Ok(None) };
        match integer(at.value, least, most) {
            Some(value) => Ok(Some(At { value, offset: at.offset, shown: at.shown })),
            None => Err(self.error_at(&at, format!("must be a whole number from {least} to {most}"))),
        }
    }

    /// A number from `least` to `most`, whole or not, if the key is there.
    pub(super) fn number(&self, key: &str, least: f64, most: f64) -> Result<Option<At<f64>>, InputError> {
        let Some(at) = self.get(key) else { return Ok(None) };
        let written = at.value.as_float().map(|n| n.as_str()).or(at.value.as_integer().map(|n| n.as_str()));
        match written.and_then(|text| text.replace('_', "").parse::<f64>().ok()) {
            Some(value) if (least..=most).contains(&value) => {
                Ok(Some(At { value, offset: at.offset, shown: at.shown }))
            }
            _ => Err(self.error_at(&at, format!("must be a number from {least} to {most}"))),
        }
    }

    /// Whole numbers from 1 to `most`: an array, or one number; none where the key is missing.
    pub(super) fn counts(&self, key: &str, example: &str, most: u64) -> Result<Vec<u32>, InputError> {
        let Some(at) = self.get(key) else { return Ok(Vec::new()) };
        let most = most.min(u64::from(u32::MAX));
        let each = |value: &DeValue<'_>| {
            let wrong = || self.error_at(&at, format!("must be whole numbers from 1 to {most}, e.g. {example}"));
            integer(value, 1, most).map(|number| number as u32).ok_or_else(wrong)
        };
        match at.value.as_array() {
            Some(array) => array.iter().map(|item| each(item.get_ref())).collect(),
            None => Ok(vec![each(at.value)?]),
        }
    }

    /// Strings: an array, or one string.
    pub(super) fn texts(&self, key: &str, example: &str) -> Result<Vec<At<&'a str>>, InputError> {
        let at = self.get(key).ok_or_else(|| self.missing(key, example))?;
        let wrong = || self.error_at(&at, format!("must be names in quotes, e.g. {example}"));
        let each = |value: &'a DeValue<'a>, offset: usize| {
            let value = value.as_str().ok_or_else(wrong)?;
            Ok(At { value, offset, shown: format!("{key}: {:?}", short(value)) })
        };
        match at.value.as_array() {
            Some(array) if array.is_empty() => Err(wrong()),
            Some(array) => array.iter().map(|item| each(item.get_ref(), item.span().start)).collect(),
            None => Ok(vec![each(at.value, at.offset)?]),
        }
    }

    /// What `read` makes of each of some strings; none where the key is missing.
    pub(super) fn reads<T>(
        &self,
        key: &str,
        example: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, InputError> {
        if self.get(key).is_none() {
            return Ok(Vec::new());
        }
        let texts = self.texts(key, example)?;
        texts.iter().map(|at| read(at.value).map_err(|wrong| self.error_at(at, bare(&wrong, at.value)))).collect()
    }

    /// Like [`Reader::count`], for a key that must be there.
    pub(super) fn need_count(&self, key: &str, example: &str, most: u64) -> Result<u64, InputError> {
        Ok(self.count(key, most)?.ok_or_else(|| self.missing(key, example))?.value)
    }

    /// A number above 0 and at most 1, if the key is there.
    pub(super) fn share(&self, key: &str, example: &str) -> Result<Option<At<f64>>, InputError> {
        let Some(at) = self.get(key) else { return Ok(None) };
        let number = match (at.value.as_float(), at.value.as_integer()) {
            (Some(float), _) => float.as_str().parse::<f64>().ok(),
            (None, Some(integer)) => integer.as_str().parse::<f64>().ok(),
            (None, None) => None,
        };
        match number.filter(|number| *number > 0.0 && *number <= 1.0) {
            Some(value) => Ok(Some(At { value, offset: at.offset, shown: at.shown })),
            None => Err(self.error_at(&at, format!("must be a number above 0 and at most 1, e.g. {example}"))),
        }
    }

    /// The two strings of an array of two.
    pub(super) fn pair(&self, key: &str, example: &str) -> Result<[At<&'a str>; 2], InputError> {
        let at = self.get(key).ok_or_else(|| self.missing(key, example))?;
        let wrong = || self.error_at(&at, format!("must be two names, e.g. {example}"));
        let array = at.value.as_array().ok_or_else(wrong)?;
        let mut ends = Vec::new();
        for item in array.iter() {
            let value = item.get_ref().as_str().ok_or_else(wrong)?;
            ends.push(At { value, offset: item.span().start, shown: format!("{key}: {:?}", short(value)) });
        }
        ends.try_into().map_err(|_| wrong())
    }

    /// The table under `key`, with only `keys` in it, if it is there.
    pub(super) fn table(
        &self,
        key: &str,
        title: &'static str,
        keys: &[&'static str],
    ) -> Result<Option<Reader<'a>>, InputError> {
        let Some(at) = self.get(key) else { return Ok(None) };
        let table = at.value.as_table().ok_or_else(|| self.error_at(&at, format!("must be a table {title}")))?;
        Ok(Some(Reader::new(self.source, title, table, at.offset, keys)?))
    }

    /// The tables of the array under `key`, in file order, with only `keys` in each; none where the key is missing.
    pub(super) fn tables(
        &self,
        key: &str,
        title: &'static str,
        keys: &[&'static str],
    ) -> Result<Vec<Reader<'a>>, InputError> {
        let Some(at) = self.get(key) else { return Ok(Vec::new()) };
        let wrong = |at: &At<_>| self.error_at(at, format!("must be tables, each under its own {title}"));
        let array = at.value.as_array().ok_or_else(|| wrong(&at))?;
        let each = array.iter().map(|item| {
            let table = item.get_ref().as_table().ok_or_else(|| wrong(&at))?;
            Reader::new(self.source, title, table, item.span().start, keys)
        });
        each.collect()
    }
}

/// A whole number from `least` to `most`.
fn integer(value: &DeValue<'_>, least: u64, most: u64) -> Option<u64> {
    let number = value.as_integer().and_then(|n| i128::from_str_radix(n.as_str(), n.radix()).ok())?;
    (i128::from(least)..=i128::from(most)).contains(&number).then_some(number as u64)
}

/// A message without the value that some begin with, which stands in the error already.
fn bare(wrong: &str, value: &str) -> String {
    wrong.strip_prefix(&format!("{value:?}")).unwrap_or(wrong).trim_start_matches([':', ' ']).to_string()
}

/// `text` cut to what fits in a message, on one line.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or("");
    let cut = line.char_indices().nth(60).map_or(line.len(), |(end, _)| end);
    if cut < text.len() { format!("{}…", &line[..cut]) } else { line.to_string() }
}
