//! `Entry`: holds and converts a value of a file with its place.

use std::ops::{Range, RangeInclusive};

use toml::de::DeValue;

use super::{Parsed, Table, TextSpot};
use crate::{ErrorPlace, InputError};

/// A value under its key, or an item of the list under it.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    pub(super) source: Parsed<'a>,
    pub(super) key: &'a str,
    pub(super) span: Range<usize>,
    pub(super) value: &'a DeValue<'a>,
    /// Whether it is an item of a list.
    pub(super) is_item: bool,
}

impl<'a> Entry<'a> {
    /// The key.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// Its place in the file.
    pub fn spot(&self) -> TextSpot<'a> {
        let spot = self.source.spot(self.span.clone());
        if self.is_item && self.value.is_str() {
            let shown = format!("{}: {}", self.key, spot.shown);
            return spot.showing(shown);
        }
        spot
    }

    /// An error about the entry.
    pub fn error(&self, message: impl Into<String>) -> InputError {
        self.spot().error(message)
    }

    /// The text of the entry, shortened, as errors repeat it.
    pub fn shown(&self) -> String {
        self.spot().shown.into_owned()
    }

    /// File and line.
    pub fn place(&self) -> ErrorPlace {
        self.error("").place
    }

    /// The error for a value of another type.
    fn wrong(&self, wanted: &str) -> InputError {
        self.error(format!("{} must be {wanted}, not of type {}", self.key, self.value.type_str()))
    }

    /// Text in quotes, not empty.
    ///
    /// # Errors
    /// It is none.
    pub fn text(&self) -> Result<&'a str, InputError> {
        match self.value.as_str() {
            Some(text) if text.trim().is_empty() => Err(self.error(format!("{} must not be empty", self.key))),
            Some(text) => Ok(text),
            None => Err(self.wrong("a text in quotes")),
        }
    }

    /// Any text in quotes.
    pub fn plain_text(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    /// Itself, if it is a text; `example` is a good one.
    pub(super) fn example(&self, example: &str) -> Result<&Self, InputError> {
        self.value.as_str().map(|_| self).ok_or_else(|| self.wrong(&format!("a text in quotes, e.g. {example}")))
    }

    /// Whether it is exactly this text.
    pub fn is(&self, text: &str) -> bool {
        self.plain_text() == Some(text)
    }

    /// The result of `read` for a text.
    ///
    /// # Errors
    /// It is no text, or the error of `read`.
    pub fn read<T, E: ToString>(&self, read: impl Fn(&str) -> Result<T, E>) -> Result<T, InputError> {
        let text = self.text()?;
        // The error shows the value already; some messages begin with it.
        read(text).map_err(|wrong| {
            let wrong = wrong.to_string();
            let bare = wrong.strip_prefix(&format!("{text:?}")).or_else(|| wrong.strip_prefix(text)).unwrap_or(&wrong);
            self.error(bare.trim_start_matches([':', ' ']))
        })
    }

    /// A whole number in `range`.
    ///
    /// # Errors
    /// It is none.
    pub fn whole(&self, range: RangeInclusive<u64>) -> Result<u64, InputError> {
        let wanted = || format!("a whole number from {} to {}", range.start(), range.end());
        let number = self.value.as_integer().ok_or_else(|| self.wrong(&wanted()))?;
        let number = i128::from_str_radix(number.as_str(), number.radix()).ok().and_then(|n| u64::try_from(n).ok());
        let number = number.filter(|number| range.contains(number));
        number.ok_or_else(|| self.error(format!("{} must be {}", self.key, wanted())))
    }

    /// A size or count: from 1 to 2³² − 1.
    ///
    /// # Errors
    /// It is none.
    pub fn count(&self) -> Result<u32, InputError> {
        // The range holds no more than 32 bits.
        Ok(self.whole(1..=u64::from(u32::MAX))? as u32)
    }

    /// Whole numbers from 1 to `most`: a list, or one number.
    ///
    /// # Errors
    /// One is none.
    pub fn counts(&self, most: u32) -> Result<Vec<u32>, InputError> {
        self.items()?.iter().map(|item| Ok(item.whole(1..=u64::from(most))? as u32)).collect()
    }

    /// A finite number of at least `least`.
    ///
    /// # Errors
    /// It is none.
    pub fn number(&self, least: f64) -> Result<f64, InputError> {
        let right = |number: f64| number.is_finite() && number >= least;
        self.checked(|number| {
            right(number).then_some(number).ok_or_else(|| format!("must be a number of at least {least}"))
        })
    }

    /// A number that `check` accepts.
    ///
    /// # Errors
    /// It is none, or the error of `check`.
    pub fn checked<T>(&self, check: impl Fn(f64) -> Result<T, String>) -> Result<T, InputError> {
        check(self.written("a number")?.parse().unwrap_or(f64::NAN))
            .map_err(|wrong| self.error(format!("{} {wrong}", self.key)))
    }

    /// A finite number in single precision.
    ///
    /// # Errors
    /// It is none.
    pub fn float(&self) -> Result<f32, InputError> {
        let parsed = self.written("a number")?.parse::<f32>().ok().filter(|number| number.is_finite());
        parsed.ok_or_else(|| self.error(format!("{} must be a finite number", self.key)))
    }

    /// The digits of a decimal number.
    fn written(&self, wanted: &str) -> Result<&'a str, InputError> {
        match self.value {
            DeValue::Float(number) => Ok(number.as_str()),
            DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str()),
            _ => Err(self.wrong(wanted)),
        }
    }

    /// true or false.
    ///
    /// # Errors
    /// It is neither.
    pub fn boolean(&self) -> Result<bool, InputError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// The items of a list, each under the list's key; `None` for anything else.
    pub fn list(&self) -> Option<Vec<Entry<'a>>> {
        let items = self.value.as_array()?.iter();
        Some(
            items
                .map(|item| Entry { span: item.span(), value: item.get_ref(), is_item: true, ..self.clone() })
                .collect(),
        )
    }

    /// The items of a list, or the value itself as the only one; at least one.
    ///
    /// # Errors
    /// The list is empty.
    pub fn items(&self) -> Result<Vec<Entry<'a>>, InputError> {
        let items = self.list().unwrap_or_else(|| vec![self.clone()]);
        if items.is_empty() {
            return Err(self.error(format!("{} must have at least one item", self.key)));
        }
        Ok(items)
    }

    /// A table with any keys; `None` for anything else.
    pub fn as_table(&self) -> Option<Table<'a>> {
        let table = self.value.as_table()?;
        Some(Table { source: self.source, title: self.key, table, offset: self.span.start })
    }

    /// A table with any keys.
    ///
    /// # Errors
    /// It is none.
    pub fn table(&self) -> Result<Table<'a>, InputError> {
        self.as_table().ok_or_else(|| self.wrong("a table"))
    }

    /// A table with only `keys` in it.
    ///
    /// # Errors
    /// It is none, or has another key.
    pub fn section(&self, title: &'a str, keys: &[&str]) -> Result<Table<'a>, InputError> {
        let table = self.value.as_table().ok_or_else(|| self.error(format!("must be a table {title}")))?;
        let table = Table { source: self.source, title, table, offset: self.span.start };
        table.allow(title, keys)?;
        Ok(table)
    }
}
