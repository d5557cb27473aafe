//! `Units`: the tokens with which a text begins before any are merged, bytes or characters, and what tokens stand for.

use std::collections::HashMap;

use super::bytes::{bytes_by_character, bytes_of, character_of};
use super::file::{Bpe, CURE};
use super::pieces::MARK;

/// What the tokens of a vocabulary stand for, by number.
pub(super) type Texts = HashMap<u32, Box<[u8]>>;

/// The tokens of single bytes and characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Units {
    bytes: [u32; 256],
    /// Tokens of characters, where these are looked for first; else none.
    characters: HashMap<char, u32>,
}

impl Units {
    /// Those of a model.
    ///
    /// # Errors
    /// A byte that has no token.
    pub(super) fn of(bpe: &Bpe) -> Result<Units, String> {
        let mut bytes = [0; 256];
        for (byte, token) in (0..=255).zip(&mut bytes) {
            let name = name(byte, bpe.byte_fallback);
            let own = bpe.vocab.get(&name).copied();
            *token = own.ok_or_else(|| format!("has no token {name:?} of the byte {byte:#04x}: {CURE}"))?;
        }
        let single = |token: &str| token.chars().next().filter(|first| first.len_utf8() == token.len());
        let characters = bpe.vocab.iter().filter_map(|(token, number)| Some((single(token)?, *number)));
        let characters = if bpe.byte_fallback { characters.collect() } else { HashMap::new() };
        Ok(Units { bytes, characters })
    }

    /// The tokens of a piece before any are merged.
    pub(super) fn tokens(&self, piece: &str) -> Vec<u32> {
        let bytes = |text: &str| text.bytes().map(|byte| self.bytes[usize::from(byte)]).collect::<Vec<_>>();
        if self.characters.is_empty() {
            return bytes(piece);
        }
        let mut tokens = Vec::with_capacity(piece.len());
        for character in piece.chars() {
            match self.characters.get(&character) {
                Some(token) => tokens.push(*token),
                None => tokens.extend(bytes(character.encode_utf8(&mut [0; 4]))),
            }
        }
        tokens
    }
}

/// The token of a byte.
fn name(byte: u8, by_characters: bool) -> String {
    if by_characters { format!("<0x{byte:02X}>") } else { character_of(byte).to_string() }
}

/// What the tokens of a vocabulary stand for.
///
/// # Errors
/// Two tokens of one number.
pub(super) fn texts_of(bpe: &Bpe) -> Result<Texts, String> {
    let by_character = bytes_by_character();
    let names: HashMap<String, u8> = (0..=255).map(|byte| (name(byte, true), byte)).collect();
    let text = |token: &String| match (bpe.byte_fallback, names.get(token)) {
        (false, _) => bytes_of(token, &by_character).unwrap_or_else(|| token.as_bytes().into()),
        (true, Some(byte)) => [*byte].into(),
        (true, None) => token.replace(MARK, " ").into_bytes().into(),
    };
    let mut texts = HashMap::with_capacity(bpe.vocab.len());
    for (token, number) in &bpe.vocab {
        if texts.insert(*number, text(token)).is_some() {
            return Err(format!("two tokens of the vocabulary have the number {number}: {CURE}"));
        }
    }
    Ok(texts)
}
