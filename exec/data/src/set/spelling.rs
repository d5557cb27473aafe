//! `Spelling`: what the tokens of a set stand for, and whether it is that of a model's weights.

use std::path::Path;

use lockstep_models::SetSizes;
use lockstep_topology::{ErrorPlace, InputError};

use super::{Dataset, files, name_and_subset, texts};
use crate::token_file::TokenFile;
use crate::token_pack::BYTES;
use crate::tokenizer::{Tokenizer, sha256};

/// What transformers call the file of a tokenizer.
const FILE: &str = "tokenizer.json";

/// What the tokens of a set stand for.
#[derive(Debug, Clone)]
pub enum Spelling {
    /// Bytes of texts.
    Bytes,
    /// Parts of texts, which a tokenizer has made.
    Tokenizer(Box<Tokenizer>),
    /// Nothing that is known.
    Numbers,
}

impl Spelling {
    /// What the tokens of a packed set stand for.
    ///
    /// # Errors
    /// A tokenizer that is not read.
    pub fn of(set: &TokenFile) -> Result<Spelling, InputError> {
        Ok(match set.tokenizer()? {
            Some(tokenizer) => Spelling::Tokenizer(Box::new(tokenizer)),
            None if set.header().vocabulary == BYTES => Spelling::Bytes,
            None => Spelling::Numbers,
        })
    }

    /// The tokens of a text; `None` where tokens stand for nothing.
    pub fn encode(&self, text: &str) -> Option<Vec<u32>> {
        match self {
            Spelling::Bytes => Some(text.bytes().map(u32::from).collect()),
            Spelling::Tokenizer(tokenizer) => Some(tokenizer.encode(text)),
            Spelling::Numbers => None,
        }
    }

    /// The text of tokens, with U+FFFD for what is none; `None` where tokens stand for nothing.
    pub fn decode(&self, tokens: &[u32]) -> Option<String> {
        let bytes = match self {
            // 0xff is in no text.
            Spelling::Bytes => tokens.iter().map(|token| u8::try_from(*token).unwrap_or(u8::MAX)).collect(),
            Spelling::Tokenizer(tokenizer) => tokenizer.decode(tokens),
            Spelling::Numbers => return None,
        };
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Dataset {
    /// What the tokens of the set `what` stand for; numbers where it has none, or no tokenizer is known.
    ///
    /// # Errors
    /// A packed file that cannot be opened.
    pub fn spelling(what: &str) -> Result<Spelling, InputError> {
        let Some(set) = packed_tokens(what)? else {
            return match name_and_subset(what).0 {
                name if name == SetSizes::TEXT.0 => Ok(Spelling::Bytes),
                name if name == SetSizes::TEXT_BPE.0 => Ok(Spelling::Tokenizer(Box::new(texts::own_tokenizer()?))),
                _ => Ok(Spelling::Numbers),
            };
        };
        Spelling::of(&set)
    }

    /// SHA-256 of the tokenizer in the packed files that `what` names; `None` where they have none.
    ///
    /// # Errors
    /// A packed file that cannot be opened.
    pub fn tokenizer_sha256(what: &str) -> Result<Option<String>, InputError> {
        let set = packed_tokens(what)?.filter(|set| !set.tokenizer_json().is_empty());
        Ok(set.map(|set| sha256(set.tokenizer_json())))
    }

    /// Refuses tokens of another tokenizer than the one beside the weights, a file or folder, with which a model begins.
    ///
    /// # Errors
    /// The tokenizer beside the weights is another, or is not read.
    pub fn check_tokenizer(what: &str, weights: &Path) -> Result<(), InputError> {
        let folder = if weights.is_dir() { Some(weights) } else { weights.parent() };
        let Some(beside) = folder.map(|folder| folder.join(FILE)).filter(|beside| beside.is_file()) else {
            return Ok(());
        };
        // The usual case, without reading either.
        let is_same = |set: TokenFile| std::fs::read(&beside).is_ok_and(|json| json == set.tokenizer_json());
        if packed_tokens(what)?.is_some_and(is_same) {
            return Ok(());
        }
        let is_own = match Dataset::spelling(what)? {
            // Of tokens that stand for nothing known nothing is known to differ.
            Spelling::Numbers => true,
            Spelling::Bytes => false,
            Spelling::Tokenizer(own) => own.encodes_as(&Tokenizer::open(&beside)?),
        };
        if is_own {
            return Ok(());
        }
        let beside = beside.display().to_string();
        let message = format!(
            "the weights have another tokenizer than the data {what}: pack texts with it ({}), and name the set ({})",
            ErrorPlace::Flag("tokenizer"),
            ErrorPlace::Flag("data")
        );
        Err(InputError::new(&beside, "", message))
    }
}

/// The packed tokens that `what` names, if it does.
fn packed_tokens(what: &str) -> Result<Option<TokenFile>, InputError> {
    let (name, _) = name_and_subset(what);
    let train = files::packed(name).map(|(train, _)| train).filter(|train| TokenFile::is(train));
    train.map(TokenFile::open).transpose()
}
