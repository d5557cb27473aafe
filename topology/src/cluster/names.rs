//! Finds what a name or a pattern matches, and suggests near names if nothing matches: `node*.eth0`, `node[0-15].gpu*`.
//!
//! `*` matches any characters but the dot, so a pattern says how deep it reaches; `[a-b]` matches a number from a to b
//! without leading zeros.

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

/// Whether `pattern` matches `name`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut rest = pattern;
    // Every offset of `name` at which the pattern so far can end: linear however many stars there are.
    let mut ends = vec![0];
    while let Some(first) = rest.chars().next() {
        let mut next: Vec<usize> = Vec::new();
        if let Some((low, high, after)) = range(rest) {
            ends.iter().for_each(|end| next.extend(numbers(&name[*end..], low, high).map(|length| end + length)));
            rest = after;
        } else {
            for end in ends {
                match first {
                    '*' => next.extend(end..=name[end..].find('.').map_or(name.len(), |dot| end + dot)),
                    _ if name[end..].starts_with(first) => next.push(end + first.len_utf8()),
                    _ => {}
                }
            }
            rest = &rest[first.len_utf8()..];
        }
        next.retain(|end| name.is_char_boundary(*end));
        next.sort_unstable();
        next.dedup();
        ends = next;
    }
    ends.last() == Some(&name.len())
}

/// Lengths of the numbers from `low` to `high`, without leading zeros, that `text` starts with.
fn numbers(text: &str, low: u64, high: u64) -> impl Iterator<Item = usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (1..=digits).filter(move |length| {
        let number = &text[..*length];
        let plain = number == "0" || !number.starts_with('0');
        plain && number.parse().is_ok_and(|n: u64| (low..=high).contains(&n))
    })
}

/// The part of a pattern that every matching name starts with; the whole of a pattern that is a plain name.
fn prefix(pattern: &str) -> &str {
    &pattern[..pattern.find(['*', '[']).unwrap_or(pattern.len())]
}

/// The range that a pattern starts with: `"[3-7].eth0"` → (3, 7, `".eth0"`).
fn range(pattern: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = pattern.strip_prefix('[')?.split_once(']')?;
    let (low, high) = range.split_once('-')?;
    Some((low.parse().ok()?, high.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_exactly_the_names_they_describe() {
        for (pattern, yes, no) in [
            ("switch", vec!["switch"], vec!["switch0", "switc", ""]),
            ("node*.eth0", vec!["node0.eth0", "node12.eth0", "node.eth0"], vec!["node0.eth1", "node0", "x.eth0"]),
            ("*", vec!["a", "switch"], vec!["node0.cpu"]),
            ("*.gpu*", vec!["node0.gpu1", "n.gpu"], vec!["node0.cpu"]),
            ("node[8-11].cpu", vec!["node8.cpu", "node11.cpu"], vec!["node7.cpu", "node08.cpu", "node12.cpu"]),
            ("n[0-1]0", vec!["n00", "n10"], vec!["n20", "n0"]),
            ("[x]", vec!["[x]"], vec!["x"]),
        ] {
            yes.iter().for_each(|name| assert!(matches(pattern, name), "{pattern} {name}"));
            no.iter().for_each(|name| assert!(!matches(pattern, name), "{pattern} {name}"));
        }
    }
}
