//! Expands ranges in lists: `1..32` is 1, 2, 4 … 32, for numbers of ranks and numbers of hosts.

use std::fmt;

use lockstep_topology::InputError;

use crate::experiment::Experiment;
use crate::form::Items;
use lockstep_topology::document::Entry;

/// How many ranks a point has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankCount {
    /// This many.
    Of(u32),
    /// One on each GPU of the cluster, or on each core where it has none.
    All,
}

impl fmt::Display for RankCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankCount::Of(count) => count.fmt(f),
            RankCount::All => f.write_str("all"),
        }
    }
}

/// Numbers, `1..1024` or `all`, each of which may expand to several numbers of ranks.
pub(crate) struct Ranges;

impl Items<RankCount> for Ranges {
    fn is_number(&self) -> bool {
        true
    }

    fn text(&self, text: &str) -> Result<Vec<RankCount>, String> {
        counts(text)
    }

    fn entry(&self, entry: &Entry<'_>) -> Result<Vec<RankCount>, InputError> {
        if entry.text().is_ok() { entry.read(counts) } else { Ok(vec![RankCount::Of(entry.count()?)]) }
    }

    fn again(&self, count: &RankCount, key: &str) -> String {
        format!("{count} ranks appear twice in {key}: leave one out")
    }
}

/// The numbers of ranks that an experiment lists.
pub(crate) fn own(experiment: &Experiment) -> Vec<RankCount> {
    match &experiment.mesh {
        Some(mesh) => vec![RankCount::Of(mesh.ranks())],
        None => experiment.ranks.iter().copied().map(RankCount::Of).collect(),
    }
}

/// Sets one number of ranks, or none where the cluster determines it.
pub(crate) fn set(experiment: &mut Experiment, count: RankCount) {
    experiment.ranks = if let RankCount::Of(count) = count { vec![count] } else { Vec::new() };
}

/// `8`, `1..1024` or `all`.
///
/// # Errors
/// Anything else, with the cure.
pub fn counts(text: &str) -> Result<Vec<RankCount>, String> {
    let text = text.trim();
    if text == "all" {
        return Ok(vec![RankCount::All]);
    }
    if let Some((first, last)) = text.split_once("..") {
        return Ok(doublings(first, last)?.into_iter().map(RankCount::Of).collect());
    }
    match text.parse() {
        Ok(count) if count > 0 => Ok(vec![RankCount::Of(count)]),
        _ if is_large(text) => Err(format!("is too large: numbers go up to {}", u32::MAX)),
        _ => Err(format!("must be a whole number from 1 to {}, a range such as 1..1024, or all", u32::MAX)),
    }
}

/// The clusters that an entry such as `dgx-a100:1..32@infiniband-hdr` expands to, the smallest first.
///
/// # Errors
/// An invalid range.
pub fn clusters(entry: &str) -> Result<Vec<String>, String> {
    // A path may contain two dots as well, but not a number before them and a colon before that.
    for (at, _) in entry.match_indices("..") {
        let (before, after) = (&entry[..at], &entry[at + 2..]);
        let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (name, first) = before.split_at(before.len() - digits);
        if digits == 0 || !name.ends_with(':') {
            continue;
        }
        let last = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (last, rest) = after.split_at(last);
        return Ok(doublings(first, last)?.into_iter().map(|count| format!("{name}{count}{rest}")).collect());
    }
    Ok(vec![entry.to_owned()])
}

/// `first`, twice that, and so on, and `last`.
fn doublings(first: &str, last: &str) -> Result<Vec<u32>, String> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => {
            let twice = |count: &u32| count.checked_mul(2).filter(|count| *count < last);
            let mut all: Vec<u32> = std::iter::successors(Some(first), twice).collect();
            if first < last {
                all.push(last);
            }
            Ok(all)
        }
        (Some(first), Some(last)) => Err(format!("{first}..{last} is not a range: write the smaller number first")),
        _ if [first, last].iter().any(|text| is_large(text)) => {
            Err(format!("{first}..{last} is too large: numbers go up to {}", u32::MAX))
        }
        _ => Err(format!("{first}..{last} is not a range: write it like 1..32, which is 1, 2, 4, 8, 16, 32")),
    }
}

/// Whether it is a number that does not fit 32 bits.
fn is_large(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) && text.parse::<u32>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_double_up_to_their_end() {
        let of = |text: &str| counts(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        for (text, all) in [
            ("8", "8"),
            ("all", "all"),
            ("1..8", "1 2 4 8"),
            ("3..20", "3 6 12 20"),
            ("5..5", "5"),
            ("5..6", "5 6"),
            ("2147483648..4294967295", "2147483648 4294967295"),
        ] {
            assert_eq!(of(text), all, "{text}");
        }
        for text in ["0", "", "0..4", "8..4", "1..", "..", "1..x", "many", "-1", "4294967296"] {
            assert!(counts(text).is_err(), "{text}");
        }
        for text in ["1..99999999999", "99999999999", "4294967296..8"] {
            assert!(counts(text).unwrap_err().contains("up to 4294967295"), "{text}");
        }
    }

    #[test]
    fn cluster_ranges_expand_to_numbers_of_hosts() {
        let of = |text: &str| clusters(text).unwrap();
        assert_eq!(of("dgx-a100:2..4@net"), ["dgx-a100:2@net", "dgx-a100:4@net"]);
        assert_eq!(of("../my.toml:1..2"), ["../my.toml:1", "../my.toml:2"]);
        for plain in ["ethernet-4", "dgx-a100:8", "../a..b/x.toml", "c:x..2"] {
            assert_eq!(of(plain), [plain]);
        }
        assert!(clusters("dgx-a100:4..2").unwrap_err().contains("4..2 is not a range"));
        assert!(clusters("dgx-a100:1..4294967296").unwrap_err().contains("up to 4294967295"));
        assert!(clusters("dgx-a100:4..").is_err());
    }
}
