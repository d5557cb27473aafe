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
use crate::token_pack::BYTES;

/// The text as it ships; `data/README.md` has its origin.
const FILE: &[u8] = include_bytes!("../../../../data/new-testament.txt.gz");

/// Returns (training part, held-out part) of the text that is part of the binary, whose tokens are bytes.
pub(super) fn load(model: &Model) -> Result<(Dataset, Dataset), InputError> {
    let mut text = Vec::new();
    if let Err(error) = MultiGzDecoder::new(FILE).read_to_end(&mut text) {
        return Err(InputError::new("text", "", format!("the gzip stream is broken ({error}): restore the file")));
    }
    let stream = Stream::Memory(Arc::new(text.into_iter().map(u32::from).collect()));
    parts("text", BYTES, stream, model.sample())
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
