//! `Preparation`: what is done to a text before its tokens are merged: normalisation, spaces, pieces.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use super::pieces::{MARK, Pattern};

/// How a text is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Preparation {
    pub(super) normalizer: Normalizer,
    /// Whether spaces become marks after the normalisation.
    pub(super) marks: bool,
    pub(super) pattern: Pattern,
    pub(super) space: Space,
}

/// How a text is normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Normalizer {
    None,
    /// Characters are composed (NFC).
    Composes,
    /// Spaces become marks, and one more is put before the text where that is asked for.
    Marks {
        prepends: bool,
    },
}

/// Which texts are given a space before them, unless they begin with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Never,
    /// Those that nothing precedes.
    First,
    /// All between added tokens.
    Always,
}

impl Normalizer {
    /// Whether it leaves no spaces.
    pub(super) fn marks(self) -> bool {
        matches!(self, Normalizer::Marks { .. })
    }

    /// The normalised text.
    pub(super) fn of(self, text: &str) -> Cow<'_, str> {
        match self {
            Normalizer::None => text.into(),
            Normalizer::Composes => text.nfc().collect::<String>().into(),
            Normalizer::Marks { prepends } => {
                let before = if prepends && !text.is_empty() { MARK } else { "" };
                format!("{before}{}", text.replace(' ', MARK)).into()
            }
        }
    }
}

impl Preparation {
    /// A normalised text with its spaces.
    pub(super) fn spaced<'a>(&self, text: &'a str, is_first: bool) -> Cow<'a, str> {
        let space = if self.marks { MARK } else { " " };
        let text: Cow<'a, str> = if self.marks { text.replace(' ', MARK).into() } else { text.into() };
        let adds = match self.space {
            Space::Never => false,
            Space::First => is_first,
            Space::Always => true,
        };
        if adds && !text.starts_with(space) { format!("{space}{text}").into() } else { text }
    }

    /// Whether texts begin with a space that was put there to be a mark, which they do not have when they are decoded.
    pub(super) fn marks_beginnings(&self) -> bool {
        self.marks && self.space != Space::Never || self.normalizer == Normalizer::Marks { prepends: true }
    }
}
