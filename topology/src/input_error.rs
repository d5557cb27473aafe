//! The one shape of an error in what a user wrote: file, line, value, what is wrong, and the cure.

use std::fmt::{self, Write};

/// A mistake in a user's input; the command line ends with exit code 2 on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    /// File and line, e.g. `cluster.toml:14`, or the flag, e.g. `--ranks`; empty where neither exists.
    pub place: String,
    /// What stands there, e.g. `bandwidth = "-3GB/s"`; empty where it does not help.
    pub value: String,
    /// What is wrong with it and how to mend it.
    pub message: String,
}

impl InputError {
    /// An error at `place` about `value`.
    pub fn new(place: impl Into<String>, value: impl Into<String>, message: impl Into<String>) -> InputError {
        InputError { place: place.into(), value: value.into(), message: message.into() }
    }

    /// An error at the line of `text` (the content of `file`) where byte `offset` stands.
    pub fn at_offset(
        file: &str,
        text: &str,
        offset: usize,
        value: impl Into<String>,
        message: impl Into<String>,
    ) -> InputError {
        let line = text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1;
        InputError::new(format!("{file}:{line}"), value, message)
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.place, &self.value, &self.message];
        let mut first = true;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            f.write_str(if first { "" } else { ": " })?;
            first = false;
            // One line, whatever was written: a terminal obeys control characters.
            for c in part.chars() {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
            }
        }
        Ok(())
    }
}

impl std::error::Error for InputError {}

/// Of `names`, those that look most like `wanted`, for "did you mean".
///
/// ```
/// # use lockstep_topology::nearest;
/// assert_eq!(nearest("lennet", ["lenet", "resnet-32", "mlp"]), vec!["lenet"]);
/// ```
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(usize, &str)> = names.into_iter().map(|name| (edits(wanted, name), name)).collect();
    scored.sort();
    let limit = (wanted.chars().count() / 2).max(2);
    scored.into_iter().filter(|(score, _)| *score <= limit).take(3).map(|(_, name)| name).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_is_wrong() {
        let error = InputError::new("--model", "a\x1b[31m\nb", "größe: \ttake another");
        assert_eq!(error.to_string(), "--model: a\\u{1b}[31m\\nb: größe: \\ttake another");
        assert_eq!(InputError::new("", "", "all wrong").to_string(), "all wrong");
    }
}
