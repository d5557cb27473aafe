//! Loads sets of tokens: the text that is part of the binary, and packed files, whose last windows are held out.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use lockstep_models::{Model, SampleTensor, SetSizes};
use lockstep_topology::InputError;

use super::Dataset;
use super::tokens::{Stream, Tokens};
use crate::token_file::TokenFile;
use crate::token_pack::{BYTES, tokens_of_document};
use crate::tokenizer::Tokenizer;

/// The text as it ships, and its tokenizer; `data/README.md` has their origin.
const FILE: &[u8] = include_bytes!("../../../../data/new-testament.txt.gz");
const TOKENIZER: &[u8] = include_bytes!("../../../../data/new-testament-tokenizer.json");

/// Whether a set is of the text that is part of the binary, as bytes or as tokens of its tokenizer.
pub(super) fn is_text(name: &str) -> bool {
    name == SetSizes::TEXT.0 || name == SetSizes::TEXT_BPE.0
}

/// Returns (training part, held-out part) of the text that is part of the binary: its bytes, or tokens.
pub(super) fn load(name: &str, model: &Model) -> Result<(Dataset, Dataset), InputError> {
    let mut text = Vec::new();
    if let Err(error) = MultiGzDecoder::new(FILE).read_to_end(&mut text) {
        return Err(InputError::new(name, "", format!("the gzip stream is broken ({error}): restore the file")));
    }
    let (vocabulary, tokens) = match name == SetSizes::TEXT.0 {
        true => (BYTES, text.into_iter().map(u32::from).collect()),
        false => {
            let tokenizer = own_tokenizer()?;
            (tokenizer.vocabulary(), tokens_of_document(name, &text, &tokenizer)?)
        }
    };
    parts(name, vocabulary, Stream::Memory(Arc::new(tokens)), model.sample())
}

/// The tokenizer that is part of the binary.
pub(super) fn own_tokenizer() -> Result<Tokenizer, InputError> {
    Tokenizer::parse(SetSizes::TEXT_BPE.0, TOKENIZER)
}

/// The same of packed files; without a second one, of the last tenth of the first.
pub(super) fn load_packed(
    (train, held_out): (&Path, Option<&Path>),
    model: &Model,
) -> Result<(Dataset, Dataset), InputError> {
    let open = |path| TokenFile::open(path).map(Arc::new);
    let first = open(train)?;
    let (place, vocabulary) = (first.place().to_owned(), first.header().vocabulary);
    let Some(held_out) = held_out else { return parts(&place, vocabulary, Stream::Mapped(first), model.sample()) };
    let second = open(held_out)?;
    if second.header().vocabulary != vocabulary {
        let message = format!("the training tokens have a vocabulary of {vocabulary}: pack both with one tokenizer");
        let value = format!("a vocabulary of {}", second.header().vocabulary);
        return Err(InputError::new(second.place(), value, message));
    }
    let encode_alike = match [&first, &second].map(|set| set.tokenizer_json()) {
        [one, other] if one == other => true,
        _ => matches!((first.tokenizer()?, second.tokenizer()?), (Some(one), Some(other)) if one.encodes_as(&other)),
    };
    if !encode_alike {
        let message = format!("was not packed with the tokenizer of {place}: pack both with one");
        return Err(InputError::new(second.place(), "", message));
    }
    let whole = |file: Arc<TokenFile>| {
        let place = file.place().to_owned();
        let all = windows(&place, &Stream::Mapped(file.clone()), model.sample(), 1)?;
        Ok(set(&place, vocabulary, Stream::Mapped(file), model.sample(), 0..all))
    };
    Ok((whole(first)?, whole(second)?))
}

/// The windows of a stream, of which each begins where the one before ends.
fn windows(place: &str, stream: &Stream, sample: SampleTensor, least: u64) -> Result<u64, InputError> {
    let (tokens, positions) = (stream.tokens(), sample.elements());
    let windows = SetSizes::windows(tokens, positions);
    if windows < least || u32::try_from(windows).is_err() {
        let message = format!(
            "make {windows} windows of {positions} positions, and {least} to {} are possible: use more text, or another \
             number of positions",
            u32::MAX
        );
        return Err(InputError::new(place, format!("{tokens} tokens"), message));
    }
    Ok(windows)
}

fn set(place: &str, vocabulary: u32, stream: Stream, sample: SampleTensor, windows: std::ops::Range<u64>) -> Dataset {
    let starts = windows.map(|window| window * sample.elements()).collect();
    Dataset::of_tokens(place, vocabulary, Tokens::of(stream, starts, sample))
}

/// Both parts of one stream: its last windows are held out.
fn parts(place: &str, vocabulary: u32, stream: Stream, sample: SampleTensor) -> Result<(Dataset, Dataset), InputError> {
    let all = windows(place, &stream, sample, 2)?;
    let train = SetSizes::of_windows(all).train;
    let held_out = set(place, vocabulary, stream.clone(), sample, train..all);
    Ok((set(place, vocabulary, stream, sample, 0..train), held_out))
}
