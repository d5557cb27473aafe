//! `Tokenizer`: encodes texts as tokens and decodes them, as a `tokenizer.json` of Hugging Face says.
//!
//! Tokenizers of BPE are read whose tokens are bytes, or characters and bytes where a character is no token, so that every text has
//! tokens. Their ids are those of Hugging Face's library without the tokens that it puts around single texts.

mod added;
mod bytes;
mod file;
mod merges;
mod pieces;
mod preparation;
mod units;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use lockstep_topology::{Bytes, InputError, read_bytes};
use sha2::{Digest, Sha256};

use added::{Added, Part};
use bytes::{bytes_by_character, bytes_of};
use file::{Bpe, CURE, File};
use merges::Merges;
use preparation::Preparation;
use units::{Texts, Units, texts_of};

/// The largest vocabulary.
pub(crate) const MOST_TOKENS: u32 = 1 << 24;
/// The longest file: the largest vocabularies take some 40 MB.
const LONGEST: Bytes = Bytes(1 << 30);

/// Pieces whose tokens are remembered, and the longest of them, in bytes.
const REMEMBERED: (usize, usize) = (1 << 16, 64);

/// Pieces whose tokens have been found.
pub(crate) type Pieces = HashMap<Box<str>, Vec<u32>>;

/// What stands for a token that the tokenizer does not have.
const UNKNOWN: &[u8] = "\u{fffd}".as_bytes();

/// A BPE tokenizer.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    /// The file, as it was read.
    json: Arc<[u8]>,
    preparation: Preparation,
    units: Units,
    merges: Merges,
    /// Pieces that are tokens whatever pairs say; empty where pairs decide.
    whole: HashMap<Box<str>, u32>,
    /// Tokens found in a text as they are: before it is normalised, and after.
    added: [Added; 2],
    /// What each token stands for.
    texts: Texts,
    vocabulary: u32,
    end: Option<(String, u32)>,
}

impl Tokenizer {
    /// Names of the token that ends a document, of which a tokenizer's first one is meant: of gpt2 and qwen, llama 3, llama 2 and
    /// mistral, gemma, deepseek.
    pub const ENDS: [&str; 5] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>"];

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A file that cannot be read, is cut, or describes a tokenizer of another kind.
    pub fn open(path: &Path) -> Result<Tokenizer, InputError> {
        let place = path.display().to_string();
        let read = read_bytes(path, LONGEST);
        let json = read.map_err(|error| InputError::new(&place, "", error.with_cure("name a tokenizer.json")))?;
        Tokenizer::parse(&place, json)
    }

    /// Reads a file's content; `place` is for messages.
    ///
    /// # Errors
    /// Content that is cut, or describes a tokenizer of another kind.
    pub fn parse(place: &str, json: impl Into<Arc<[u8]>>) -> Result<Tokenizer, InputError> {
        let json = json.into();
        read(json).map_err(|message| InputError::new(place, "", message))
    }

    /// The file, as it was read.
    pub fn json(&self) -> &Arc<[u8]> {
        &self.json
    }

    /// SHA-256 of the file, in hexadecimal.
    pub fn sha256(&self) -> String {
        sha256(&self.json)
    }

    /// The size of the vocabulary: the largest token and one.
    pub fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    /// The token that ends a document, with its name; `None` where none of the known names is a special token.
    pub fn end(&self) -> Option<(&str, u32)> {
        self.end.as_ref().map(|(name, token)| (&**name, *token))
    }

    /// Whether both have the same tokens under the same numbers, and texts have the same ones of them.
    pub fn encodes_as(&self, other: &Tokenizer) -> bool {
        let parts = |of: &Tokenizer| (of.texts == other.texts, of.merges == other.merges, of.units == other.units);
        let texts_are_cut_alike = self.preparation == other.preparation && self.added == other.added;
        self.json == other.json || texts_are_cut_alike && self.whole == other.whole && parts(self) == (true, true, true)
    }

    /// The tokens of a text. Names of added tokens in it are these tokens.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.encode_with(text, &mut Pieces::default())
    }

    /// The same of one of several texts; `known` are the pieces of earlier ones.
    pub(crate) fn encode_with(&self, text: &str, known: &mut Pieces) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3);
        for part in self.added[0].parts(text) {
            match part {
                Part::Token(token) => tokens.push(token),
                Part::Text(text) => {
                    self.encode_normalised(&self.preparation.normalizer.of(text), known, &mut tokens);
                }
            }
        }
        tokens
    }

    /// Appends the tokens of a text after its normalisation.
    fn encode_normalised(&self, text: &str, known: &mut Pieces, tokens: &mut Vec<u32>) {
        for part in self.added[1].parts(text) {
            let text = match part {
                Part::Token(token) => {
                    tokens.push(token);
                    continue;
                }
                Part::Text(text) => self.preparation.spaced(text, tokens.is_empty()),
            };
            for piece in self.preparation.pattern.pieces(&text) {
                if let Some(found) = known.get(piece) {
                    tokens.extend(found);
                    continue;
                }
                let own = self.encode_piece(piece);
                tokens.extend(&own);
                if known.len() < REMEMBERED.0 && piece.len() <= REMEMBERED.1 {
                    known.insert(piece.into(), own);
                }
            }
        }
    }

    fn encode_piece(&self, piece: &str) -> Vec<u32> {
        match self.whole.get(piece) {
            Some(token) => vec![*token],
            None => self.merges.join(&self.units.tokens(piece)),
        }
    }

    /// The bytes for which tokens stand, without the space that was put before their text. They are UTF-8 where the tokens are those of
    /// a text; a token that there is none of is U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        let text = |token: &u32| self.texts.get(token).map_or(UNKNOWN, |text| text);
        let mut all: Vec<u8> = tokens.iter().flat_map(text).copied().collect();
        if self.preparation.marks_beginnings() && all.first() == Some(&b' ') {
            all.remove(0);
        }
        all
    }
}

/// SHA-256 of a tokenizer's file, in hexadecimal.
pub(crate) fn sha256(json: &[u8]) -> String {
    Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a tokenizer.
fn read(json: Arc<[u8]>) -> Result<Tokenizer, String> {
    if json.iter().all(u8::is_ascii_whitespace) {
        return Err("is empty: name a tokenizer.json".to_owned());
    }
    let mut file: File = serde_json::from_slice(&json).map_err(|error| match error.is_eof() {
        true => format!("is cut ({error}): copy the whole file"),
        false => format!("is no tokenizer of Hugging Face ({error}): name a tokenizer.json"),
    })?;
    let bpe = file.bpe()?;
    let preparation = file.preparation(bpe.byte_fallback)?;
    let units = Units::of(&bpe)?;
    let mut texts = texts_of(&bpe)?;
    // Numbers that Hugging Face's library gives to tokens outside of the vocabulary, whatever the file says.
    let mut next = bpe.vocab.len() as u32;
    for token in file.added_tokens.iter().filter(|token| !token.content.is_empty()) {
        token.check()?;
        let own = bpe.vocab.get(&token.content).copied();
        let number = own.unwrap_or(next);
        if number != token.id || own.is_none() && texts.contains_key(&number) {
            let (name, stated) = (&token.content, token.id);
            let message = "has the number of another, or not the one that Hugging Face's library gives it";
            return Err(format!("the added token {name:?}, {stated}, {message} ({number}): {CURE}"));
        }
        next = next.max(number.saturating_add(1));
        // One of the vocabulary stands for what it does there.
        texts.entry(number).or_insert_with(|| token.content.as_bytes().into());
    }
    let largest = texts.keys().max().copied().unwrap_or(0);
    if largest >= MOST_TOKENS {
        return Err(format!("has a token of the number {largest}, and {} is the most: {CURE}", MOST_TOKENS - 1));
    }
    let end = Tokenizer::ENDS.iter().find_map(|name| {
        let token = file.added_tokens.iter().find(|token| token.special && token.content == *name)?;
        Some(((*name).to_owned(), token.id))
    });
    let merges = merges_of(&bpe)?;
    let whole = if bpe.ignore_merges { whole(&bpe) } else { HashMap::new() };
    let added = [None, Some(preparation.normalizer)].map(|after| Added::of(&file.added_tokens, after));
    Ok(Tokenizer { json, preparation, units, merges, whole, added, texts, vocabulary: largest + 1, end })
}

/// The pieces that are tokens: as they are written where texts are characters, else as the bytes that they name, if these are a
/// text.
fn whole(bpe: &Bpe) -> HashMap<Box<str>, u32> {
    let by_character = bytes_by_character();
    let piece = |(name, token): (&String, &u32)| -> Option<(Box<str>, u32)> {
        let bytes = if bpe.byte_fallback { name.as_bytes().into() } else { bytes_of(name, &by_character)? };
        Some((str::from_utf8(&bytes).ok()?.into(), *token))
    };
    bpe.vocab.iter().filter_map(piece).collect()
}

/// The pairs of a vocabulary.
fn merges_of(bpe: &Bpe) -> Result<Merges, String> {
    let mut merges = Merges::default();
    for (rank, pair) in bpe.merges.iter().enumerate() {
        let wrong = |what: String| format!("pair {} of merges {what}: {CURE}", rank + 1);
        let (first, second) = pair.tokens().ok_or_else(|| wrong("is not two tokens".to_owned()))?;
        let token = |name: &str| {
            let own = bpe.vocab.get(name).copied();
            own.ok_or_else(|| wrong(format!("has {name:?}, which the vocabulary lacks")))
        };
        let joined = token(&format!("{first}{second}"))?;
        merges.add((token(first)?, token(second)?), (rank as u32, joined));
    }
    Ok(merges)
}
