//! `Tokenizer`: encodes texts as tokens and decodes them, as a `tokenizer.json` of Hugging Face says.
//!
//! Tokenizers of byte-level BPE are read, in which every text has tokens and the tokens of a text decode to it. Their ids are those
//! of Hugging Face's library without the tokens that it puts around single texts.

mod added;
mod bytes;
mod file;
mod merges;
mod pieces;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use lockstep_topology::{Bytes, InputError, read_bytes};
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

use crate::token_file::MOST_TOKENS;
use added::{Added, Part};
use bytes::{bytes_of, character_of};
use file::{Bpe, CURE, File, Preparation};
use merges::Merges;

/// The longest file: the largest vocabularies take some 40 MB.
const LONGEST: Bytes = Bytes(1 << 30);

/// Pieces whose tokens are remembered, and the longest of them, in bytes.
const REMEMBERED: (usize, usize) = (1 << 16, 64);

/// What stands for a token that the tokenizer does not have.
const UNKNOWN: &[u8] = "\u{fffd}".as_bytes();

/// A byte-level BPE tokenizer.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    /// The file, as it was read.
    json: Arc<[u8]>,
    preparation: Preparation,
    /// The token of each byte.
    bytes: [u32; 256],
    merges: Merges,
    /// Pieces that are tokens whatever pairs say; empty where pairs decide.
    whole: HashMap<Box<[u8]>, u32>,
    /// Tokens found in a text as they are: before it is normalised, and after.
    added: [Added; 2],
    /// What each token stands for.
    texts: HashMap<u32, Box<[u8]>>,
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
        Sha256::digest(&self.json).iter().map(|byte| format!("{byte:02x}")).collect()
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
        self.texts == other.texts && self.merges == other.merges && self.preparation == other.preparation
    }

    /// The tokens of a text. Names of added tokens in it are these tokens.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let (mut tokens, mut known) = (Vec::with_capacity(text.len() / 3), HashMap::new());
        for part in self.added[0].parts(text) {
            match part {
                Part::Token(token) => tokens.push(token),
                Part::Text(text) if self.preparation.composes => {
                    self.encode_normalised(&text.nfc().collect::<String>(), &mut known, &mut tokens);
                }
                Part::Text(text) => self.encode_normalised(text, &mut known, &mut tokens),
            }
        }
        tokens
    }

    /// Appends the tokens of a text after its normalisation; `known` are pieces whose tokens have been found.
    fn encode_normalised(&self, text: &str, known: &mut HashMap<Box<str>, Vec<u32>>, tokens: &mut Vec<u32>) {
        for part in self.added[1].parts(text) {
            let text = match part {
                Part::Token(token) => {
                    tokens.push(token);
                    continue;
                }
                Part::Text(text) if self.preparation.add_space && !text.starts_with(' ') => format!(" {text}").into(),
                Part::Text(text) => std::borrow::Cow::Borrowed(text),
            };
            for piece in self.preparation.pattern.pieces(&text) {
                if let Some(found) = known.get(piece) {
                    tokens.extend(found);
                    continue;
                }
                let own = self.encode_piece(piece.as_bytes());
                tokens.extend(&own);
                if known.len() < REMEMBERED.0 && piece.len() <= REMEMBERED.1 {
                    known.insert(piece.into(), own);
                }
            }
        }
    }

    fn encode_piece(&self, piece: &[u8]) -> Vec<u32> {
        if let Some(token) = self.whole.get(piece) {
            return vec![*token];
        }
        let tokens: Vec<u32> = piece.iter().map(|byte| self.bytes[usize::from(*byte)]).collect();
        self.merges.join(&tokens)
    }

    /// The bytes for which tokens stand. They are UTF-8 where the tokens are those of a text; a token that there is none of is U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        tokens.iter().flat_map(|token| self.texts.get(token).map_or(UNKNOWN, |text| text)).copied().collect()
    }
}

/// Reads a tokenizer.
fn read(json: Arc<[u8]>) -> Result<Tokenizer, String> {
    if json.iter().all(u8::is_ascii_whitespace) {
        return Err("is empty: name a tokenizer.json".to_owned());
    }
    let file: File = serde_json::from_slice(&json).map_err(|error| match error.is_eof() {
        true => format!("is cut ({error}): copy the whole file"),
        false => format!("is no tokenizer of Hugging Face ({error}): name a tokenizer.json"),
    })?;
    let (bpe, preparation) = (file.bpe()?, file.preparation()?);
    let bytes = tokens_of_bytes(&bpe)?;
    let mut texts = texts_of(&bpe)?;
    for token in file.added_tokens.iter().filter(|token| !token.content.is_empty()) {
        token.check()?;
        let own = bpe.vocab.get(&token.content);
        if own.is_none() && texts.contains_key(&token.id) || own.is_some_and(|own| *own != token.id) {
            return Err(format!("the added token {:?} has the number {} of another: {CURE}", token.content, token.id));
        }
        texts.insert(token.id, token.content.as_bytes().into());
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
    let whole = match bpe.ignore_merges {
        true => bpe.vocab.values().filter_map(|token| Some((texts.get(token)?.clone(), *token))).collect(),
        false => HashMap::new(),
    };
    let added = [false, true].map(|normalized| Added::of(&file.added_tokens, normalized));
    Ok(Tokenizer { json, preparation, bytes, merges, whole, added, texts, vocabulary: largest + 1, end })
}

/// What the tokens of a vocabulary stand for.
fn texts_of(bpe: &Bpe) -> Result<HashMap<u32, Box<[u8]>>, String> {
    let byte_of: HashMap<char, u8> = (0..=255).map(|byte| (character_of(byte), byte)).collect();
    let mut texts = HashMap::with_capacity(bpe.vocab.len());
    for (token, number) in &bpe.vocab {
        if texts.insert(*number, bytes_of(token, |character| byte_of.get(&character).copied())).is_some() {
            return Err(format!("two tokens of the vocabulary have the number {number}: {CURE}"));
        }
    }
    Ok(texts)
}

/// The token of each byte.
fn tokens_of_bytes(bpe: &Bpe) -> Result<[u32; 256], String> {
    let mut tokens = [0; 256];
    for (byte, token) in (0..=255).zip(&mut tokens) {
        let name = character_of(byte).to_string();
        let own = bpe.vocab.get(&name);
        *token = *own.ok_or_else(|| format!("has no token {name:?} of the byte {byte:#04x}: {CURE}"))?;
    }
    Ok(tokens)
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
