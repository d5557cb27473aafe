//! One TOML table with the place of every key, so that each mistake is shown with its file and line.
//!
//! Values are read by hand: plain serde would lose the line of what is well formed but makes no sense.

use std::ops::Range;

use lockstep_topology::{ErrorPlace, InputError, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest piece of the file that an error repeats, in characters.
const SHOWN: usize = 60;

/// The file that is being read.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name in errors.
    pub file: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// A table, called `title` in errors.
#[derive(Debug, Clone, Copy)]
pub struct Section<'a> {
    source: Source<'a>,
    title: &'static str,
    table: &'a DeTable<'a>,
    offset: usize,
}

/// A value under its key, or an item of a list.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    source: Source<'a>,
    key: &'a str,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

impl<'a> Source<'a> {
    /// The whole file as a table.
    pub fn table(&self) -> Result<Spanned<DeTable<'a>>, InputError> {
        DeTable::parse(self.text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            self.error(error.span().unwrap_or(0..0), format!("not TOML: {message}"))
        })
    }

    /// An error about the text at `span`.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> InputError {
        let piece = self.text.get(span.clone()).unwrap_or("").lines().next().unwrap_or("").trim();
        let shown = match piece.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &piece[..end]),
            None => piece.to_owned(),
        };
        InputError::at_offset(self.file, self.text, span.start, shown, message)
    }
}

impl<'a> Section<'a> {
    /// The table, refusing any key outside `keys`.
    pub fn new(
        source: Source<'a>,
        title: &'static str,
        table: &'a DeTable<'a>,
        offset: usize,
        keys: &[&'static str],
    ) -> Result<Section<'a>, InputError> {
        // A map has its own order; the mistake that stands first in the file is the one to show.
        let unknown = table.keys().filter(|key| !keys.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            let near = nearest(key.get_ref(), keys.iter().copied());
            let cure = if near.is_empty() {
                format!("the keys are {}", keys.join(", "))
            } else {
                format!("did you mean {}?", near.join(" or "))
            };
            return Err(source.error(key.span(), format!("unknown key in {title}; {cure}")));
        }
        Ok(Section { source, title, table, offset })
    }

    /// The value under `key`, if it is there.
    pub fn get(&self, key: &str) -> Option<Entry<'a>> {
        let (key, value) = self.table.get_key_value(key)?;
        // A header is shown with its bracket.
        let before = self.source.text.get(..key.span().start).unwrap_or("");
        let start = if value.get_ref().is_table() { before.trim_end_matches('[').len() } else { before.len() };
        let span = start..value.span().end;
        Some(Entry { source: self.source, key: key.get_ref(), span, value: value.get_ref() })
    }

    /// The value under `key`, which must be there; `example` is a good one.
    pub fn need(&self, key: &str, example: &str) -> Result<Entry<'a>, InputError> {
        let lacks = || {
            let message = format!("lacks the key {key}: add {key} = {example}");
            self.source.error(self.offset..self.offset, format!("{} {message}", self.title))
        };
        self.get(key).ok_or_else(lacks)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        self.table.keys().filter_map(|key| self.get(key.get_ref()))
    }
}

impl<'a> Entry<'a> {
    /// The key.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// An error about the entry.
    pub fn error(&self, message: impl Into<String>) -> InputError {
        self.source.error(self.span.clone(), message)
    }

    /// The text of the entry, shortened, as errors repeat it.
    pub fn shown(&self) -> String {
        self.error("").value
    }

    /// File and line.
    pub fn place(&self) -> ErrorPlace {
        self.error("").place
    }

    /// Text in quotes, not empty.
    pub fn text(&self) -> Result<&'a str, InputError> {
        match self.value.as_str() {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(self.error(format!("{} must be a text in quotes", self.key))),
        }
    }

    /// Whether it is just this text.
    pub fn is(&self, text: &str) -> bool {
        self.plain_text() == Some(text)
    }

    /// Text in quotes, whatever it is.
    pub fn plain_text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    /// What `read` makes of a text.
    pub fn read<T, E: ToString>(&self, read: impl Fn(&str) -> Result<T, E>) -> Result<T, InputError> {
        let text = self.text()?;
        // The value stands in the error already; some messages begin with it.
        read(text).map_err(|wrong| {
            let wrong = wrong.to_string();
            let bare = wrong.strip_prefix(&format!("{text:?}")).or_else(|| wrong.strip_prefix(text)).unwrap_or(&wrong);
            self.error(bare.trim_start_matches([':', ' ']))
        })
    }

    /// A whole number in `range`.
    pub fn whole(&self, range: Range<u64>) -> Result<u64, InputError> {
        let number = self.value.as_integer().and_then(|n| i128::from_str_radix(n.as_str(), n.radix()).ok());
        let number = number.and_then(|number| u64::try_from(number).ok()).filter(|number| range.contains(number));
        number.ok_or_else(|| {
            self.error(format!("{} must be a whole number from {} to {}", self.key, range.start, range.end - 1))
        })
    }

    /// A size or count: from 1 to 2³² − 1.
    pub fn count(&self) -> Result<u32, InputError> {
        // The range holds no more than 32 bits.
        Ok(self.whole(1..1 << 32)? as u32)
    }

    /// A finite number of at least `least`.
    pub fn number(&self, least: f64) -> Result<f64, InputError> {
        let right = |number: f64| number.is_finite() && number >= least;
        self.checked(|number| {
            right(number).then_some(number).ok_or_else(|| format!("must be a number of at least {least}"))
        })
    }

    /// A number that `check` lets pass.
    pub fn checked(&self, check: impl Fn(f64) -> Result<f64, String>) -> Result<f64, InputError> {
        let text = match self.value {
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            _ => return Err(self.error(format!("{} must be a number", self.key))),
        };
        check(text.parse().unwrap_or(f64::NAN)).map_err(|wrong| self.error(format!("{} {wrong}", self.key)))
    }

    /// true or false.
    pub fn boolean(&self) -> Result<bool, InputError> {
        self.value.as_bool().ok_or_else(|| self.error(format!("{} must be true or false", self.key)))
    }

    /// The items of a list, or the value itself as the only one; at least one.
    pub fn items(&self) -> Result<Vec<Entry<'a>>, InputError> {
        let Some(items) = self.value.as_array() else { return Ok(vec![self.clone()]) };
        if items.is_empty() {
            return Err(self.error(format!("{} must have at least one item", self.key)));
        }
        let item = |item: &'a Spanned<DeValue<'a>>| Entry { span: item.span(), value: item.get_ref(), ..self.clone() };
        Ok(items.iter().map(item).collect())
    }

    /// A table with only `keys` in it.
    pub fn section(&self, title: &'static str, keys: &[&'static str]) -> Result<Section<'a>, InputError> {
        let table = self.value.as_table().ok_or_else(|| self.error(format!("must be a table {title}")))?;
        Section::new(self.source, title, table, self.span.start, keys)
    }
}
