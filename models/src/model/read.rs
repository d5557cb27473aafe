//! TOML with places: tables and entries that know their file and line, so that each mistake can be shown where it stands.
//!
//! The values are read by hand rather than by serde because serde loses the spans inside tagged enums.

use std::ops::Range;

use lockstep_topology::{Bytes, DESCRIPTION, ErrorPlace, InputError, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::expression::{Arguments, size};
use super::{Model, block, build, sizes};
use crate::{Layer, Shape};

/// The key that each layer has.
const KIND: &str = "kind";

/// Longest piece of a file that an error repeats, in characters.
const SHOWN: usize = 60;

/// A text and the name under which errors speak of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

/// A TOML table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    source: Source<'a>,
    table: &'a DeTable<'a>,
    offset: usize,
}

/// A value and the key before it.
#[derive(Debug, Clone)]
pub(super) struct Entry<'a> {
    source: Source<'a>,
    pub(super) key: &'a str,
    span: Range<usize>,
    pub(super) value: &'a DeValue<'a>,
}

/// The model that a text describes, with the variants and sizes of `settings` (`ungrouped,image=64`; empty for none).
pub(super) fn parse(file: &str, text: &str, settings: &str) -> Result<Model, InputError> {
    let source = Source { file, text };
    let root = document(&source)?;
    let root = Table { source, table: root.get_ref(), offset: 0 };
    root.allow("a model", &["name", "source", "input", "size", "variant", "block", "layer"])?;
    let name = root.need("name", "e.g. name = \"lenet\"")?.string()?;
    let origin = root.get("source").map_or(Ok(""), |entry| entry.string())?;
    let (name, list) = if settings.is_empty() {
        (name.to_owned(), Vec::new())
    } else {
        (format!("{name}:{settings}"), settings.split(',').map(str::trim).collect())
    };
    let sizes = sizes::resolve(&root, &name, &list)?;
    let entry = root.need("input", "the shape of a sample, e.g. input = [1, 28, 28]")?;
    let drafts = block::unfold(&root, input(&entry, &sizes.values)?, entry.place(), &sizes.values)?;
    build::build(name, sizes.source.unwrap_or(origin).to_owned(), drafts)
}

/// The names of the variants that a text describes.
pub(super) fn variants(file: &str, text: &str) -> Result<Vec<String>, InputError> {
    let source = Source { file, text };
    let root = document(&source)?;
    let names = sizes::variants(&Table { source, table: root.get_ref(), offset: 0 })?;
    Ok(names.into_iter().map(str::to_owned).collect())
}

fn document<'a>(source: &Source<'a>) -> Result<Spanned<DeTable<'a>>, InputError> {
    // A list of layers is as fast to count as it is slow to parse.
    let mut headers = source.text.match_indices("[[layer]]").filter(|(at, _)| source.text[..*at].ends_with('\n'));
    if let Some((at, header)) = headers.nth(block::MAX_LAYERS) {
        return Err(source.error(at..at + header.len(), block::too_many()));
    }
    // In one line, layers of blocks and variants are counted too.
    let is_key = |at: &usize| source.text[at + KIND.len()..].trim_start_matches([' ', '\t']).starts_with('=');
    let mut kinds = source.text.match_indices(KIND).map(|(at, _)| at).filter(is_key);
    if let Some(at) = kinds.nth(4 * block::MAX_LAYERS) {
        return Err(source.error(at..at + KIND.len(), block::too_many()));
    }
    if source.text.len() as u64 > DESCRIPTION.0 {
        let length = Bytes(source.text.len() as u64);
        let message =
            format!("the description takes {length}, and {DESCRIPTION} are read: repeat layers in a [[block]]");
        return Err(InputError::new(source.file, "", message));
    }
    DeTable::parse(source.text).map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        source.error(error.span().unwrap_or(0..0), format!("not TOML: {message}"))
    })
}

/// `[channels, height, width]`.
fn input(entry: &Entry<'_>, sizes: &Arguments) -> Result<Layer, InputError> {
    let items = entry.items().filter(|items| items.len() == 3);
    let Some(items) = items else {
        return Err(entry.error("must be three sizes, [channels, height, width]; a vector of n features is [n, 1, 1]"));
    };
    let side = |index: usize| size(&items[index], sizes);
    let layer = Layer::input(Shape { channels: side(0)?, height: side(1)?, width: side(2)? });
    layer.output_shape(&[]).map_err(|message| entry.error(message))?;
    Ok(layer)
}

impl Source<'_> {
    /// An error about the piece of text at `span`.
    pub(super) fn error(&self, span: Range<usize>, message: impl Into<String>) -> InputError {
        let piece = self.text.get(span.clone()).unwrap_or("").lines().next().unwrap_or("").trim();
        let mut shown: String = piece.chars().take(SHOWN).collect();
        if shown.len() < piece.len() {
            shown.push('…');
        }
        InputError::at_offset(self.file, self.text, span.start, shown, message)
    }
}

impl<'a> Table<'a> {
    /// The entry under `key`.
    pub(super) fn get(&self, key: &str) -> Option<Entry<'a>> {
        self.table.get_key_value(key).map(|(key, value)| Entry {
            source: self.source,
            key: key.get_ref(),
            span: key.span().start..value.span().end,
            value: value.get_ref(),
        })
    }

    /// The entry under `key`, which must be there.
    pub(super) fn need(&self, key: &str, example: &str) -> Result<Entry<'a>, InputError> {
        self.get(key).ok_or_else(|| self.error(format!("lacks the key \"{key}\": {example}")))
    }

    /// All entries, by key.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        self.table.keys().filter_map(|key| self.get(key.get_ref()))
    }

    /// Refuses keys other than `keys`.
    pub(super) fn allow(&self, owner: &str, keys: &[&str]) -> Result<(), InputError> {
        match self.entries().find(|entry| !keys.contains(&entry.key)) {
            None => Ok(()),
            Some(entry) => {
                let cure = suggestion(entry.key, keys.iter().copied());
                Err(entry.error(format!("{owner} has no key \"{}\": {cure}", entry.key)))
            }
        }
    }

    /// An error about the table as a whole.
    pub(super) fn error(&self, message: impl Into<String>) -> InputError {
        self.source.error(self.offset..self.offset, message)
    }

    /// File and line where the table begins.
    pub(super) fn place(&self) -> ErrorPlace {
        self.error("").place
    }
}

/// "did you mean", or all that there is.
pub(super) fn suggestion<'a>(wanted: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = nearest(wanted, names.clone());
    if !near.is_empty() {
        return format!("did you mean {}?", near.join(", "));
    }
    let all: Vec<&str> = names.collect();
    if all.is_empty() { "there is none to choose from".to_owned() } else { format!("choose from {}", all.join(", ")) }
}

impl<'a> Entry<'a> {
    /// An error about the entry.
    pub(super) fn error(&self, message: impl Into<String>) -> InputError {
        self.source.error(self.span.clone(), message)
    }

    /// File and line of the entry.
    pub(super) fn place(&self) -> ErrorPlace {
        self.error("").place
    }

    /// Text.
    pub(super) fn string(&self) -> Result<&'a str, InputError> {
        match self.value.as_str() {
            Some("") => Err(self.error(format!("{} must not be empty", self.key))),
            Some(text) => Ok(text),
            None => Err(self.wrong("a string in quotes")),
        }
    }

    /// true or false.
    pub(super) fn boolean(&self) -> Result<bool, InputError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// A whole number that fits 32 bits.
    pub(super) fn size(&self) -> Result<u32, InputError> {
        let number = self.value.as_integer().ok_or_else(|| self.wrong("a whole number"))?;
        let parsed = i128::from_str_radix(number.as_str(), number.radix());
        parsed
            .ok()
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| self.error(format!("{} must be a whole number from 0 to {}", self.key, u32::MAX)))
    }

    /// A finite number.
    pub(super) fn float(&self) -> Result<f32, InputError> {
        let text = match self.value {
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            _ => return Err(self.wrong("a number")),
        };
        let parsed = text.parse::<f32>().ok().filter(|number| number.is_finite());
        parsed.ok_or_else(|| self.error(format!("{} must be a finite number", self.key)))
    }

    /// The elements of an array, each under the array's key.
    pub(super) fn items(&self) -> Option<Vec<Entry<'a>>> {
        let items = self.value.as_array()?.iter();
        Some(items.map(|item| Entry { span: item.span(), value: item.get_ref(), ..self.clone() }).collect())
    }

    /// A table.
    pub(super) fn table(&self) -> Result<Table<'a>, InputError> {
        let table = self.value.as_table().ok_or_else(|| self.wrong("a table"))?;
        Ok(Table { source: self.source, table, offset: self.span.start })
    }

    /// An array of tables with at least one element.
    pub(super) fn tables(&self) -> Result<Vec<Table<'a>>, InputError> {
        let items = self.items().ok_or_else(|| self.wrong("a list of tables, e.g. [[layer]]"))?;
        if items.is_empty() {
            return Err(self.error(format!("{} must not be empty", self.key)));
        }
        items.iter().map(Entry::table).collect()
    }

    /// The error for a value of another type.
    pub(super) fn wrong(&self, wanted: &str) -> InputError {
        self.error(format!("{} must be {wanted}, not of type {}", self.key, self.value.type_str()))
    }
}
