//! `NoDecay`: selects parameters that weight decay leaves out, by their number of dimensions or by patterns of names.

use std::fmt;
use std::str::FromStr;

use crate::Parameter;

/// The word for parameters of one dimension: biases, and factors of normalisations.
const ONE_DIMENSIONAL: &str = "one-dimensional";

/// Patterns of names, in which `*` stands for any text, and `one-dimensional`; none by default.
///
/// ```
/// # use lockstep_models::NoDecay;
/// let spared: NoDecay = "one-dimensional,*embedding*".parse().unwrap();
/// assert_eq!(spared.to_string(), "one-dimensional,*embedding*");
/// assert!("*.bias,".parse::<NoDecay>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NoDecay(Vec<String>);

impl NoDecay {
    /// Whether it selects nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it selects a parameter.
    pub fn spares(&self, parameter: &Parameter) -> bool {
        self.0.iter().any(|pattern| selects(pattern, parameter))
    }

    /// The first of its patterns that selects none of the parameters.
    pub fn idle<'p>(&self, parameters: impl Iterator<Item = &'p Parameter> + Clone) -> Option<&str> {
        let idle = |pattern: &&String| !parameters.clone().any(|parameter| selects(pattern, parameter));
        self.0.iter().find(idle).map(String::as_str)
    }
}

fn selects(pattern: &str, parameter: &Parameter) -> bool {
    match pattern {
        ONE_DIMENSIONAL => parameter.shape.dimensions().len() == 1,
        pattern => matches(pattern, &parameter.name),
    }
}

/// Whether a name is `pattern`, in which each `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl FromStr for NoDecay {
    type Err = String;

    fn from_str(text: &str) -> Result<NoDecay, String> {
        let patterns: Vec<String> = text.split(',').map(|pattern| pattern.trim().to_owned()).collect();
        match patterns.iter().any(String::is_empty) {
            true => {
                let cure = "name parameters, as in *.bias or one-dimensional, with commas between them";
                Err(format!("{text:?}: has an empty pattern: {cure}"))
            }
            false => Ok(NoDecay(patterns)),
        }
    }
}

impl fmt::Display for NoDecay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by trying every text for the first `*`.
    fn matches_by_trial(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|taken| matches_by_trial(rest, &name[taken..])),
            Some((letter, rest)) => name.first() == Some(letter) && matches_by_trial(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn patterns_are_those_of_every_trial(pattern in "[ab*]{0,6}", name in "[ab]{0,7}") {
            prop_assert_eq!(matches(&pattern, &name), matches_by_trial(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
