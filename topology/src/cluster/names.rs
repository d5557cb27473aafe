//! Finds what a name or a pattern matches, and suggests near names if nothing matches.

use super::pattern::{matches, prefix, range};
use crate::InputError;
use crate::document::{Entry, nearest_or_all};

/// Names with their positions, sorted by name.
pub(super) struct Names<'a> {
    sorted: Vec<(&'a str, u32)>,
}

impl<'a> Names<'a> {
    /// All `names` with their positions.
    ///
    /// # Errors
    /// The name that occurs twice, with its later position.
    pub(super) fn new(names: impl Iterator<Item = (&'a str, u32)>) -> Result<Names<'a>, (&'a str, u32)> {
        let mut sorted: Vec<(&str, u32)> = names.collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(twice) => Err(twice[1]),
            None => Ok(Names { sorted }),
        }
    }

    /// Positions of all things that the name or pattern `wanted` matches, ascending.
    pub(super) fn find(&self, wanted: &Entry<'_>) -> Result<Vec<u32>, InputError> {
        let (mut found, text) = (Vec::new(), wanted.text()?);
        let start = prefix(text);
        match range(&text[start.len()..]) {
            // A short range is a few names, each of which is found without looking at the others.
            Some((low, high, rest)) if high.saturating_sub(low) < 1_000 => {
                (low..=high).for_each(|number| self.collect(&format!("{start}{number}{rest}"), &mut found));
            }
            _ => self.collect(text, &mut found),
        }
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            return Err(wanted.error(self.nothing(text)));
        }
        Ok(found)
    }

    /// Adds the positions of all matches of `pattern`.
    fn collect(&self, pattern: &str, found: &mut Vec<u32>) {
        let start = prefix(pattern);
        let from = self.sorted.partition_point(|(name, _)| *name < start);
        let near = self.sorted[from..].iter().take_while(|(name, _)| name.starts_with(start));
        found.extend(near.filter(|(name, _)| matches(pattern, name)).map(|(_, position)| *position));
    }

    /// The error message for a name that matches nothing.
    fn nothing(&self, wanted: &str) -> String {
        let parts = format!("{wanted}.*");
        if let Some((part, _)) = self.sorted.iter().find(|(name, _)| matches(&parts, name)) {
            return format!("is a host; a link joins parts of hosts, like {part}");
        }
        // Enough names to be helpful; comparing with a million would take longer than reading the file.
        let names = || self.sorted.iter().take(5_000).map(|(name, _)| *name);
        let hint = nearest_or_all(wanted, names(), || names().take(3).collect());
        let what = if prefix(wanted) == wanted { "no such name" } else { "matches nothing" };
        format!("{what}; did you mean {hint}?")
    }
}
