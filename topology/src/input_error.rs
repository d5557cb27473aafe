//! `InputError`: reports an error in a user's input: file, line, value, what is wrong, and the cure.

use std::fmt;

use crate::terminal::{printable_line, shortened, with_short_words};

/// The place of a mistake.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ErrorPlace {
    /// No useful place.
    #[default]
    None,
    /// The setting of this key, e.g. `batch_per_rank`; shown as its flag, `--batch-per-rank`.
    Flag(&'static str),
    /// A line of a file, counted from 1; shown as `cluster.toml:14`.
    File {
        /// The file's name as it was given.
        file: String,
        /// The line.
        line: usize,
    },
    /// Anything else that has a name: a whole file, an argument, a role of a program.
    Named(String),
}

impl ErrorPlace {
    /// A line of `file`.
    pub fn line(file: &str, line: usize) -> ErrorPlace {
        ErrorPlace::File { file: file.to_owned(), line }
    }
}

impl fmt::Display for ErrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorPlace::None => Ok(()),
            ErrorPlace::Flag(key) => write!(f, "--{}", key.replace('_', "-")),
            ErrorPlace::File { file, line } => write!(f, "{file}:{line}"),
            ErrorPlace::Named(name) => f.write_str(name),
        }
    }
}

impl From<String> for ErrorPlace {
    fn from(name: String) -> ErrorPlace {
        if name.is_empty() { ErrorPlace::None } else { ErrorPlace::Named(name) }
    }
}

impl From<&str> for ErrorPlace {
    fn from(name: &str) -> ErrorPlace {
        name.to_owned().into()
    }
}

impl From<&String> for ErrorPlace {
    fn from(name: &String) -> ErrorPlace {
        name.clone().into()
    }
}

impl From<&ErrorPlace> for ErrorPlace {
    fn from(place: &ErrorPlace) -> ErrorPlace {
        place.clone()
    }
}

/// A mistake in a user's input; the command line ends with exit code 2 on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// Its place.
    pub place: ErrorPlace,
    /// The offending text, e.g. `bandwidth = "-3GB/s"`; empty where it does not help.
    pub value: String,
    /// What is wrong with it and how to fix it.
    pub message: String,
}

impl InputError {
    /// An error at `place` about `value`.
    pub fn new(place: impl Into<ErrorPlace>, value: impl Into<String>, message: impl Into<String>) -> InputError {
        InputError { place: place.into(), value: value.into(), message: message.into() }
    }

    /// An error in the setting of that key.
    pub fn flag(key: &'static str, value: impl Into<String>, message: impl Into<String>) -> InputError {
        InputError::new(ErrorPlace::Flag(key), value, message)
    }

    /// The same mistake at another place.
    pub fn at(self, place: impl Into<ErrorPlace>) -> InputError {
        InputError { place: place.into(), ..self }
    }

    /// The same mistake, at `place` where it has none.
    pub fn or_at(self, place: impl Into<ErrorPlace>) -> InputError {
        if self.place == ErrorPlace::None { self.at(place) } else { self }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        let place = if matches!(self.place, ErrorPlace::Named(_)) { shortened(&place) } else { place.as_str().into() };
        let parts = [place, shortened(&self.value), with_short_words(&self.message)];
        let mut first = true;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            f.write_str(if first { "" } else { ": " })?;
            first = false;
            f.write_str(&printable_line(part))?;
        }
        Ok(())
    }
}

impl std::error::Error for InputError {}

/// Letters of a part that names something.
const LEAST_PART: usize = 3;

/// Of `names`, those that look most like `wanted`, for "did you mean"; where none does, the shortest that it is a part of, as
/// `hdr` is of `infiniband-hdr`.
///
/// ```
/// # use lockstep_topology::nearest;
/// assert_eq!(nearest("lennet", ["lenet", "resnet-32", "mlp"]), vec!["lenet"]);
/// assert_eq!(nearest("hdr", ["infiniband-fdr", "infiniband-hdr"]), vec!["infiniband-hdr"]);
/// ```
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(usize, &str)> = names.into_iter().map(|name| (edits(wanted, name), name)).collect();
    scored.sort();
    let limit = (wanted.chars().count() / 2).max(2);
    let all = scored.iter().map(|(_, name)| *name);
    let near: Vec<&str> = scored.iter().filter(|(score, _)| *score <= limit).take(3).map(|(_, name)| *name).collect();
    let part = squeezed(wanted);
    if !near.is_empty() || part.chars().count() < LEAST_PART {
        return near;
    }
    // By their edits, the shortest come first.
    all.filter(|name| squeezed(name).contains(&part)).take(3).collect()
}

/// Levenshtein distance in characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != *y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

/// Lower case, without hyphens, underscores and blanks.
pub(crate) fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !['-', '_', ' '].contains(c)).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_is_wrong() {
        let error = InputError::flag("model", "a\x1b[31m\nb", "größe: \ttake another");
        assert_eq!(error.to_string(), "--model: a\\u{1b}[31m\\nb: größe: \\ttake another");
        assert_eq!(InputError::new("", "", "all wrong").to_string(), "all wrong");
    }
}
