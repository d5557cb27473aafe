//! Parses the settings after a strategy's name, `key=value` between colons, for strategies that average models.

use std::fmt;
use std::ops::Range;

use crate::Assignment;

/// Assigns batches first come, first served.
const FIRST_COME: &str = "first-come";

/// Assigns batches in turn.
const ROUND_ROBIN: &str = "round-robin";

/// Gives each device a model between its learners' and the average one.
const REFERENCE_MODELS: &str = "reference-models";

/// Keys and values, each key once; a word alone has no value.
pub(super) struct Settings<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Settings<'a> {
    /// Reads `momentum=0.9:tau=2:first-come`; an empty text has none.
    pub(super) fn parse(text: &'a str, keys: &[&str]) -> Result<Settings<'a>, String> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for part in text.split(':').filter(|_| !text.is_empty()) {
            let is_word = [FIRST_COME, ROUND_ROBIN].contains(&part) || part == REFERENCE_MODELS && keys.contains(&part);
            let word = is_word.then_some((part, ""));
            let known = part.split_once('=').filter(|(key, _)| keys.contains(key) && *key != REFERENCE_MODELS);
            let Some((key, value)) = word.or(known) else {
                let (words, keys): (Vec<&str>, Vec<&str>) = keys.iter().partition(|key| **key == REFERENCE_MODELS);
                let words: String = words.iter().map(|word| format!(", {word}")).collect();
                let keys = keys.join("=…, ");
                return Err(format!(
                    "{part:?} is not a setting of it: write {keys}=…{words}, {ROUND_ROBIN} or {FIRST_COME}"
                ));
            };
            if found.iter().any(|(other, _)| *other == key) {
                return Err(format!("{key} is given twice: leave one out"));
            }
            found.push((key, value));
        }
        Ok(Settings(found))
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(other, _)| *other == key).map(|(_, value)| *value)
    }

    /// A number within `range`.
    pub(super) fn number(&self, key: &str, range: Range<f64>) -> Result<Option<f64>, String> {
        let Some(text) = self.value(key) else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(format!("{key}={text}: must be a number from {} to below {}", range.start, range.end)),
        }
    }

    /// A count of at least one.
    pub(super) fn count(&self, key: &str) -> Result<Option<u32>, String> {
        let Some(text) = self.value(key) else { return Ok(None) };
        match text.parse::<u32>() {
            Ok(count) if count > 0 => Ok(Some(count)),
            _ => Err(format!("{key}={text}: must be a whole number of at least 1")),
        }
    }

    /// Which learner takes which batch.
    pub(super) fn assignment(&self) -> Result<Assignment, String> {
        match (self.value(FIRST_COME), self.value(ROUND_ROBIN)) {
            (None, None) => Ok(Assignment::Own),
            (None, Some(_)) => Ok(Assignment::RoundRobin),
            (Some(_), None) => Ok(Assignment::FirstCome),
            (Some(_), Some(_)) => Err(format!("{FIRST_COME} and {ROUND_ROBIN} exclude each other: leave one out")),
        }
    }

    /// Whether devices have reference models.
    pub(super) fn reference_models(&self) -> bool {
        self.value(REFERENCE_MODELS).is_some()
    }

    /// α: more than 0, since learners must influence each other, and at most 1.
    pub(super) fn alpha(&self) -> Result<Option<f64>, String> {
        let Some(text) = self.value("alpha") else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(alpha) if alpha > 0.0 && alpha <= 1.0 => Ok(Some(alpha)),
            _ => Err(format!("alpha={text}: must be a number above 0, and at most 1")),
        }
    }
}

/// Writes the settings that both strategies have, unless they are the defaults.
pub(super) fn write_common(
    f: &mut fmt::Formatter<'_>,
    period: u32,
    alpha: Option<f64>,
    assignment: Assignment,
) -> fmt::Result {
    if period > 1 {
        write!(f, ":tau={period}")?;
    }
    alpha.map_or(Ok(()), |alpha| write!(f, ":alpha={alpha}"))?;
    match assignment {
        Assignment::Own => Ok(()),
        Assignment::RoundRobin => write!(f, ":{ROUND_ROBIN}"),
        Assignment::FirstCome => write!(f, ":{FIRST_COME}"),
    }
}
