//! `Added`: tokens that are found in a text by their names, whatever stands around them.

use super::file::AddedToken;
use super::preparation::Normalizer;

/// The tokens that are found in a text before, or after, its normalisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Added {
    /// Names and numbers, of two that begin alike the longer one first.
    tokens: Vec<(Box<str>, u32)>,
    /// With what names begin.
    firsts: Vec<char>,
}

/// A part of a text: a token that was found in it, or text.
pub(super) enum Part<'a> {
    Token(u32),
    Text(&'a str),
}

impl Added {
    /// Those of a file that are looked for before the normalisation, by their names, or after it, by normalised names.
    pub(super) fn of(added: &[AddedToken], after: Option<Normalizer>) -> Added {
        let own = added.iter().filter(|token| token.normalized == after.is_some() && !token.content.is_empty());
        let name = |token: &AddedToken| after.unwrap_or(Normalizer::None).of(&token.content).into();
        let mut tokens: Vec<(Box<str>, u32)> = own.map(|token| (name(token), token.id)).collect();
        tokens.sort_by(|one, other| other.0.len().cmp(&one.0.len()).then_with(|| one.cmp(other)));
        let mut firsts: Vec<char> = tokens.iter().filter_map(|(name, _)| name.chars().next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        Added { tokens, firsts }
    }

    /// The first token in a text, at its place the longest: its place, the bytes of its name, and its number.
    fn first(&self, text: &str) -> Option<(usize, usize, u32)> {
        let places = text.char_indices().filter(|(_, one)| self.firsts.contains(one));
        places.map(|(place, _)| place).find_map(|place| {
            let (name, token) = self.tokens.iter().find(|(name, _)| text[place..].starts_with(&**name))?;
            Some((place, name.len(), *token))
        })
    }

    /// The tokens in a text, and what is between them.
    pub(super) fn parts<'a>(&self, text: &'a str) -> impl Iterator<Item = Part<'a>> {
        let (mut rest, mut found) = (text, None);
        std::iter::from_fn(move || {
            if let Some(token) = found.take() {
                return Some(Part::Token(token));
            }
            let (before, behind) = match self.first(rest) {
                Some((place, length, token)) => {
                    found = Some(token);
                    (&rest[..place], &rest[place + length..])
                }
                None => (rest, ""),
            };
            rest = behind;
            if before.is_empty() { found.take().map(Part::Token) } else { Some(Part::Text(before)) }
        })
    }
}
