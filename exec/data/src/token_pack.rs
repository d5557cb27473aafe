//! Packs texts into a token set: each file a document, its bytes the tokens, or those of a tokenizer.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use lockstep_models::SetSizes;
use lockstep_topology::InputError;

use crate::format::checksum;
use crate::token_file::{BLOCK, TOKENS, TokenHeader};
use crate::tokenizer::{MOST_TOKENS, Pieces, Tokenizer};

/// The vocabulary where the tokens are bytes.
pub const BYTES: u32 = SetSizes::BYTES;

/// Writes the tokens of documents to a file under another name, which [`TokenWriter::finish`] renames.
pub struct TokenWriter {
    out: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
    header: TokenHeader,
    /// The tokens of the block in progress, as they are in the file.
    block: Vec<u8>,
    checksums: Vec<u32>,
    documents: Vec<u64>,
    /// The file of the tokenizer that made the tokens.
    tokenizer: Vec<u8>,
}

impl TokenWriter {
    /// Begins a set of tokens below `vocabulary` at `out`.
    ///
    /// # Errors
    /// A vocabulary that files do not have; it cannot be written.
    pub fn create(out: &Path, vocabulary: u32) -> Result<TokenWriter, InputError> {
        if !(2..=MOST_TOKENS).contains(&vocabulary) {
            let message = format!("has too few tokens, or more than {MOST_TOKENS}: use another tokenizer");
            return Err(InputError::flag("text", format!("a vocabulary of {vocabulary}"), message));
        }
        let mut name = out.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let header = TokenHeader { tokens: 0, vocabulary, documents: 0, index_checksum: 0, tokenizer: 0 };
        let begun = File::create(&partial).and_then(|file| {
            let mut file = BufWriter::with_capacity(1 << 20, file);
            file.write_all(&[0; TOKENS as usize]).map(|()| file)
        });
        let file = begun.map_err(|failure| unwritable(out, &failure))?;
        let (block, checksums, documents, tokenizer) = Default::default();
        Ok(TokenWriter { out: out.to_owned(), partial, file, header, block, checksums, documents, tokenizer })
    }

    /// Begins a set of this tokenizer's tokens at `out`, which has its file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn of_tokenizer(out: &Path, tokenizer: &Tokenizer) -> Result<TokenWriter, InputError> {
        let writer = TokenWriter::create(out, tokenizer.vocabulary())?;
        Ok(TokenWriter { tokenizer: tokenizer.json().to_vec(), ..writer })
    }

    /// Adds a document; one without tokens is none.
    ///
    /// # Errors
    /// A token that the vocabulary does not have; it cannot be written.
    pub fn add(&mut self, tokens: impl IntoIterator<Item = u32>) -> Result<(), InputError> {
        let first = self.header.tokens;
        let full = (BLOCK * self.header.width()) as usize;
        for token in tokens {
            if token >= self.header.vocabulary {
                let message = format!("the vocabulary has {} tokens: use its own tokenizer", self.header.vocabulary);
                return Err(InputError::flag("text", format!("token {token}"), message));
            }
            match self.header.width() {
                2 => self.block.extend((token as u16).to_le_bytes()),
                _ => self.block.extend(token.to_le_bytes()),
            }
            self.header.tokens += 1;
            if self.block.len() == full {
                self.end_block()?;
            }
        }
        if self.header.tokens > first {
            self.documents.push(first);
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), InputError> {
        self.checksums.push(checksum(&self.block));
        self.file.write_all(&self.block).map_err(|failure| unwritable(&self.out, &failure))?;
        self.block.clear();
        Ok(())
    }

    /// Completes the file; returns its header.
    ///
    /// # Errors
    /// No document, or the file cannot be written.
    pub fn finish(mut self) -> Result<TokenHeader, InputError> {
        if self.documents.is_empty() {
            let _ = std::fs::remove_file(&self.partial);
            return Err(InputError::flag("text", "", "the files have no text: name others"));
        }
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let sums = self.checksums.iter().flat_map(|sum| sum.to_le_bytes());
        let mut index: Vec<u8> = sums.chain(self.documents.iter().flat_map(|first| first.to_le_bytes())).collect();
        let (documents, tokenizer) = (self.documents.len() as u64, self.tokenizer.len() as u64);
        index.append(&mut self.tokenizer);
        let header = TokenHeader { documents, index_checksum: checksum(&index), tokenizer, ..self.header };
        let out = self.out;
        let complete = self.file.write_all(&index).and_then(|()| {
            use std::os::unix::fs::FileExt;
            let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            file.write_all_at(&header.encode(), 0)?;
            file.sync_all()?;
            std::fs::rename(&self.partial, &out)
        });
        complete.map(|()| header).map_err(|failure| {
            let _ = std::fs::remove_file(&self.partial);
            unwritable(&out, &failure)
        })
    }
}

fn unwritable(out: &Path, failure: &std::io::Error) -> InputError {
    InputError::flag("out", out.display().to_string(), format!("cannot be written: {failure}; name another place"))
}

/// The bytes of a text, unpacked if it ends in `.gz`.
///
/// # Errors
/// It cannot be read.
pub fn read_text_file(path: &Path) -> Result<Vec<u8>, InputError> {
    let mut text = Vec::new();
    let is_packed = path.extension().is_some_and(|ending| ending == "gz");
    let read = File::open(path).and_then(|mut file| match is_packed {
        true => MultiGzDecoder::new(file).read_to_end(&mut text),
        false => file.read_to_end(&mut text),
    });
    let wrong = |failure: std::io::Error| {
        InputError::new(path.display().to_string(), "", format!("cannot be read: {failure}: name another text"))
    };
    read.map(|_| text).map_err(wrong)
}

/// The tokens of a document as packed sets have them: those of its text, and the one that ends documents.
///
/// # Errors
/// A text that is not UTF-8, at its first such byte.
pub fn tokens_of_document(place: &str, text: &[u8], tokenizer: &Tokenizer) -> Result<Vec<u32>, InputError> {
    tokens_of(place, text, tokenizer, &mut Pieces::default())
}

/// The same of one of several documents, with the pieces of earlier ones.
fn tokens_of(place: &str, text: &[u8], tokenizer: &Tokenizer, known: &mut Pieces) -> Result<Vec<u32>, InputError> {
    let text = str::from_utf8(text).map_err(|error| {
        let message = "is no UTF-8, which tokenizers need: convert the text, or leave the tokenizer out to pack bytes";
        InputError::new(place, format!("byte {}", error.valid_up_to()), message)
    })?;
    let mut tokens = tokenizer.encode_with(text, known);
    if !tokens.is_empty() {
        tokens.extend(tokenizer.end().map(|(_, token)| token));
    }
    Ok(tokens)
}

/// Packs the files `texts`, each a document, whose tokens are its bytes or those of a tokenizer; `progress` hears of the files that
/// are done.
///
/// # Errors
/// A file that cannot be read or is no text, no text at all, or an output that cannot be written.
pub fn pack_texts(
    texts: &[PathBuf],
    tokenizer: Option<&Tokenizer>,
    out: &Path,
    mut progress: impl FnMut(usize),
) -> Result<TokenHeader, InputError> {
    let begun = tokenizer.map(|tokenizer| TokenWriter::of_tokenizer(out, tokenizer));
    let mut writer = begun.unwrap_or_else(|| TokenWriter::create(out, BYTES))?;
    let mut known = Pieces::default();
    for (number, path) in texts.iter().enumerate() {
        let place = path.display().to_string();
        let added = read_text_file(path).and_then(|text| match tokenizer {
            Some(tokenizer) => writer.add(tokens_of(&place, &text, tokenizer, &mut known)?),
            None => writer.add(text.into_iter().map(u32::from)),
        });
        if let Err(error) = added {
            let _ = std::fs::remove_file(&writer.partial);
            return Err(error);
        }
        progress(number + 1);
    }
    writer.finish()
}
