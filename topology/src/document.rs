//! Parses TOML with places: tables and values have their line, so that each error names it.
//!
//! Cluster files, model files and experiments are read with it. Values are taken one by one because serde would lose
//! the line of a value that is well formed but wrong.

mod entry;

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::DeTable;

use crate::aliases::{instead_of, key_of};
use crate::{ErrorPlace, InputError, LineIndex, nearest};
pub use entry::Entry;

/// Longest piece of a file that an error repeats, in characters.
const SHOWN: usize = 60;

/// A text and its name in errors.
#[derive(Debug, Clone, Copy)]
pub struct SourceText<'a> {
    /// Name of the file as it was given.
    pub file: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// A parsed file.
pub struct Document<'a> {
    source: SourceText<'a>,
    lines: LineIndex,
    tree: Spanned<DeTable<'a>>,
}

/// A parsed text with its lines.
#[derive(Debug, Clone, Copy)]
struct Parsed<'a> {
    source: SourceText<'a>,
    lines: &'a LineIndex,
}

impl<'a> Parsed<'a> {
    fn spot(&self, span: Range<usize>) -> TextSpot<'a> {
        let line = self.lines.line(span.start);
        TextSpot { file: self.source.file, line, shown: self.source.shown(span) }
    }
}

/// A table, called `title` in errors.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    source: Parsed<'a>,
    title: &'a str,
    table: &'a DeTable<'a>,
    offset: usize,
}

/// A piece of a file that errors may refer to later.
#[derive(Debug, Clone)]
pub struct TextSpot<'a> {
    file: &'a str,
    line: usize,
    shown: Cow<'a, str>,
}

impl<'a> SourceText<'a> {
    /// Parses the text.
    ///
    /// # Errors
    /// The place where it is not TOML.
    pub fn parse(self) -> Result<Document<'a>, InputError> {
        let tree = DeTable::parse(self.text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            self.error(error.span().unwrap_or(0..0), format!("not TOML: {message}"))
        })?;
        Ok(Document { source: self, lines: LineIndex::of(self.text), tree })
    }

    /// An error about the text at `span`.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> InputError {
        self.spot(span).error(message)
    }

    pub(crate) fn spot(&self, span: Range<usize>) -> TextSpot<'a> {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        TextSpot { file: self.file, line, shown: self.shown(span) }
    }

    /// The first line of the text at `span`, shortened.
    fn shown(&self, span: Range<usize>) -> Cow<'a, str> {
        let piece = self.text.get(span).unwrap_or("");
        let line = piece.lines().next().unwrap_or("").trim();
        match line.char_indices().nth(SHOWN) {
            Some((end, _)) => Cow::Owned(format!("{}…", &line[..end])),
            None => Cow::Borrowed(line),
        }
    }
}

impl<'a> TextSpot<'a> {
    /// The same place with another text for its content.
    #[must_use]
    pub fn showing(self, shown: impl Into<Cow<'a, str>>) -> TextSpot<'a> {
        TextSpot { shown: shown.into(), ..self }
    }

    /// An error about it.
    pub fn error(&self, message: impl Into<String>) -> InputError {
        InputError::new(ErrorPlace::line(self.file, self.line), self.shown.as_ref(), message)
    }
}

impl<'a> Document<'a> {
    /// The whole file as a table with only `keys` in it.
    ///
    /// # Errors
    /// The first other key.
    pub fn table(&'a self, title: &'a str, keys: &[&str]) -> Result<Table<'a>, InputError> {
        let table = self.root(title);
        table.allow(title, keys)?;
        Ok(table)
    }

    /// The value under `key` of the whole file, if it is there.
    pub fn get(&'a self, key: &str) -> Option<Entry<'a>> {
        self.root("").get(key)
    }

    fn root(&'a self, title: &'a str) -> Table<'a> {
        let source = Parsed { source: self.source, lines: &self.lines };
        Table { source, title, table: self.tree.get_ref(), offset: 0 }
    }
}

impl<'a> Table<'a> {
    /// Refuses keys other than `keys`; `owner` names their owner.
    ///
    /// # Errors
    /// The first other key in the file's order.
    pub fn allow(&self, owner: &str, keys: &[&str]) -> Result<(), InputError> {
        let unknown = self.entries().filter(|entry| !keys.contains(&entry.key));
        let Some(entry) = unknown.min_by_key(|entry| entry.span.start) else { return Ok(()) };
        let other = key_of(entry.key).filter(|key| keys.contains(key)).map(|key| format!("write {key}"));
        let none = || instead_of(entry.key).filter(|_| keys.contains(&"model")).map(|cure| format!("it {cure}"));
        let cure = other.or_else(none).unwrap_or_else(|| suggestion(entry.key, keys.iter().copied()));
        Err(entry.error(format!("{owner} has no key {}: {cure}", entry.key)))
    }

    /// Refuses the keys that nothing reads beside the others of the table; `why` says which of these is the reason.
    ///
    /// # Errors
    /// The first such key.
    pub fn unread(&self, keys: &[&str], why: &str) -> Result<(), InputError> {
        match keys.iter().find_map(|key| self.get(key)) {
            Some(entry) => Err(entry.error(format!("{why}: leave {} out", entry.key))),
            None => Ok(()),
        }
    }

    /// The value under `key`, if it is there.
    pub fn get(&self, key: &str) -> Option<Entry<'a>> {
        let (key, value) = self.table.get_key_value(key)?;
        // A header is shown with its brackets.
        let start = self.source.source.text.get(..key.span().start).unwrap_or("").trim_end_matches('[').len();
        let span = start..value.span().end;
        Some(Entry { source: self.source, key: key.get_ref(), span, value: value.get_ref(), is_item: false })
    }

    /// The value under `key`, which must be there; `example` is a good one.
    ///
    /// # Errors
    /// It is missing.
    pub fn need(&self, key: &str, example: &str) -> Result<Entry<'a>, InputError> {
        self.get(key).ok_or_else(|| self.missing(key, example))
    }

    /// The result of `read` for the value under `key`, if it is there.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Entry<'a>) -> Result<T, InputError>,
    ) -> Result<Option<T>, InputError> {
        self.get(key).map(|entry| read(&entry)).transpose()
    }

    /// The result of `read` for the text under `key`, if it is there; `example` is a good value.
    ///
    /// # Errors
    /// It is no text, or the error of `read`.
    pub fn read<T, E: ToString>(
        &self,
        key: &str,
        example: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, InputError> {
        self.optional(key, |entry| entry.example(example)?.read(read))
    }

    /// Like [`Table::read`], for a key that must be there.
    ///
    /// # Errors
    /// It is missing, or the error of [`Table::read`].
    pub fn required<T, E: ToString>(
        &self,
        key: &str,
        example: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, InputError> {
        self.read(key, example, read)?.ok_or_else(|| self.missing(key, example))
    }

    /// A whole number in `range`, if the key is there.
    ///
    /// # Errors
    /// It is none.
    pub fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, InputError> {
        self.optional(key, |entry| entry.whole(range))
    }

    /// The tables of the list under `key`, in file order, with only `keys` in each; none where the key is missing.
    ///
    /// # Errors
    /// It is no list of tables, or one has another key.
    pub fn tables(&self, key: &str, title: &'a str, keys: &[&str]) -> Result<Vec<Table<'a>>, InputError> {
        let Some(entry) = self.get(key) else { return Ok(Vec::new()) };
        let wrong = || entry.error(format!("must be tables, each under its own {title}"));
        let items = entry.list().filter(|items| items.iter().all(|item| item.value.is_table())).ok_or_else(wrong)?;
        items.iter().map(|item| item.section(title, keys)).collect()
    }

    /// All entries, by key.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        self.table.keys().filter_map(|key| self.get(key.get_ref()))
    }

    /// The beginning of the table.
    pub fn spot(&self) -> TextSpot<'a> {
        self.source.spot(self.offset..self.offset).showing(self.title)
    }

    /// An error about the table as a whole.
    pub fn error(&self, message: impl Into<String>) -> InputError {
        self.spot().error(message)
    }

    /// The error for a key that is missing; `example` is a good value.
    pub fn missing(&self, key: &str, example: &str) -> InputError {
        self.error(format!("lacks the key {key}: add {key} = {example}"))
    }

    /// An error about the value under `key`, or about the table where there is none.
    pub fn error_at(&self, key: &str, message: impl Into<String>) -> InputError {
        self.get(key).map_or_else(|| self.spot(), |entry| entry.spot()).error(message)
    }
}

/// The names nearest to `wanted`, or the `others` where none is near; joined by commas.
pub fn nearest_or_all<'a>(
    wanted: &str,
    names: impl IntoIterator<Item = &'a str>,
    others: impl FnOnce() -> Vec<&'a str>,
) -> String {
    let near = nearest(wanted, names);
    if near.is_empty() { others() } else { near }.join(", ")
}

/// "did you mean", or all that there is.
pub fn suggestion<'a>(wanted: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = nearest(wanted, names.clone());
    if !near.is_empty() {
        return format!("did you mean {}?", near.join(", "));
    }
    let all: Vec<&str> = names.collect();
    if all.is_empty() { "there is none to choose from".to_owned() } else { format!("choose from {}", all.join(", ")) }
}
