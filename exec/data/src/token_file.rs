//! Reads and writes packed token sets: a header page, the tokens, the checksum of each block, where documents begin, and the tokenizer
//! that made the tokens; all numbers little-endian.
//!
//! A block is verified when one of its tokens is first read, so that opening a large set reads none of them.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_topology::InputError;
use memmap2::Mmap;

use crate::format::checksum;
use crate::packed::map;
use crate::tokenizer::{MOST_TOKENS, Tokenizer};

/// The first eight bytes.
pub(crate) const MAGIC: [u8; 8] = *b"locktoks";
/// Versions of the format, of sets without a tokenizer and with one; a reader refuses others.
const VERSIONS: [u32; 2] = [1, 2];
/// Bytes before the first token: a page.
pub(crate) const TOKENS: u64 = 4096;
/// Bytes of the header, its checksum included.
const HEADER: usize = 64;
/// Tokens of a block.
pub(crate) const BLOCK: u64 = 1 << 16;

/// The header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenHeader {
    /// Tokens of all documents.
    pub tokens: u64,
    /// The size of the vocabulary; every token is below it.
    pub vocabulary: u32,
    /// Documents.
    pub documents: u64,
    /// CRC-32 of all that follows the tokens.
    pub index_checksum: u32,
    /// Bytes of the tokenizer's file, which ends the set; 0 without one.
    pub tokenizer: u64,
}

impl TokenHeader {
    /// Bytes of a token: two where the vocabulary allows it.
    pub fn width(&self) -> u64 {
        if self.vocabulary <= 1 << 16 { 2 } else { 4 }
    }

    /// Where the tokens end and the checksums of blocks begin.
    fn index(&self) -> Option<u64> {
        self.tokens.checked_mul(self.width())?.checked_add(TOKENS)
    }

    /// Where the documents end and the tokenizer begins.
    fn end_of_index(&self) -> Option<u64> {
        let documents = self.documents.checked_mul(8)?;
        self.index()?.checked_add(4 * self.tokens.div_ceil(BLOCK))?.checked_add(documents)
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> Option<u64> {
        self.end_of_index()?.checked_add(self.tokenizer)
    }

    fn version(&self) -> u32 {
        VERSIONS[usize::from(self.tokenizer > 0)]
    }

    /// Encodes the page before the tokens.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TOKENS as usize);
        bytes.extend(MAGIC);
        bytes.extend(self.version().to_le_bytes());
        bytes.extend((self.width() as u32).to_le_bytes());
        bytes.extend(self.tokens.to_le_bytes());
        bytes.extend(self.documents.to_le_bytes());
        bytes.extend(self.vocabulary.to_le_bytes());
        bytes.extend(self.index_checksum.to_le_bytes());
        bytes.extend(self.tokenizer.to_le_bytes());
        bytes.resize(HEADER - 4, 0);
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes.resize(TOKENS as usize, 0);
        bytes
    }

    /// Decodes the header of a file of these bytes.
    ///
    /// # Errors
    /// Another kind of file, another version, or damage.
    pub fn decode(file: &[u8]) -> Result<TokenHeader, String> {
        let Some(header) = file.get(..TOKENS as usize).filter(|bytes| bytes.starts_with(&MAGIC)) else {
            return Err("is no packed token set: pack texts into one".to_owned());
        };
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if !VERSIONS.contains(&word(8)) {
            let [oldest, newest] = VERSIONS;
            return Err(format!("has version {}, and this reads {oldest} and {newest}: pack it again", word(8)));
        }
        if word(HEADER - 4) != checksum(&header[..HEADER - 4]) {
            return Err(format!("the header is damaged (bytes 0 to {}): pack it again", HEADER - 1));
        }
        let (vocabulary, index_checksum, tokenizer) = (word(32), word(36), long(40));
        let found = TokenHeader { tokens: long(16), documents: long(24), vocabulary, index_checksum, tokenizer };
        let is_vocabulary = (2..=MOST_TOKENS).contains(&found.vocabulary);
        let is_width = u64::from(word(12)) == found.width() && word(8) == found.version();
        if !is_vocabulary || !is_width || !(1..=found.tokens).contains(&found.documents) {
            return Err("the header contradicts itself: pack it again".to_owned());
        }
        match found.bytes() {
            Some(bytes) if bytes == file.len() as u64 => Ok(found),
            wanted => {
                let (wanted, has) = (wanted.unwrap_or(u64::MAX), file.len());
                Err(format!("has {has} bytes, and {wanted} by its header: it is cut, pack it again"))
            }
        }
    }

    /// The number of the first token of each document, for the file of this header.
    ///
    /// # Errors
    /// A damaged index, or documents that do not follow each other.
    pub fn documents(&self, file: &[u8]) -> Result<Vec<u64>, String> {
        let from = self.index().unwrap_or(u64::MAX) as usize;
        let index = &file[from..];
        if checksum(index) != self.index_checksum {
            return Err(format!("the index is damaged (bytes {from} to {}): pack it again", file.len() - 1));
        }
        let borders = &index[4 * self.tokens.div_ceil(BLOCK) as usize..];
        let borders = borders[..8 * self.documents as usize].as_chunks::<8>().0;
        let borders: Vec<u64> = borders.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let ascend = borders.windows(2).all(|pair| pair[0] < pair[1]);
        match borders[0] == 0 && ascend && borders[borders.len() - 1] < self.tokens {
            true => Ok(borders),
            false => Err("documents do not follow each other: pack it again".to_owned()),
        }
    }

    /// Verifies a block: its checksum, and that each of its tokens is below the vocabulary. The error has its bytes.
    ///
    /// # Errors
    /// Damage.
    ///
    /// # Panics
    /// When the file of this header has no such block.
    pub fn verify(&self, file: &[u8], block: u64) -> Result<(), (String, String)> {
        let (first, end) = (block * BLOCK, self.tokens.min((block + 1) * BLOCK));
        let bytes = self.slice(file, first..end);
        let at = self.index().unwrap_or(u64::MAX) as usize + 4 * block as usize;
        let wanted: [u8; 4] = std::array::from_fn(|byte| file[at + byte]);
        let from = TOKENS + first * self.width();
        let place = || format!("bytes {from} to {}", from + bytes.len() as u64 - 1);
        if checksum(bytes) != u32::from_le_bytes(wanted) {
            let message = "the tokens do not have their checksum: the file has changed, pack it again";
            return Err((place(), message.to_owned()));
        }
        let mut read = vec![0; (end - first) as usize];
        self.copy(file, first, &mut read);
        match read.iter().position(|token| *token >= self.vocabulary) {
            None => Ok(()),
            Some(at) => {
                let (token, number, most) = (read[at], first + at as u64, self.vocabulary);
                let message = format!("token {number} is {token}, and the vocabulary has {most}: pack it again");
                Err((place(), message))
            }
        }
    }

    /// The bytes of these tokens of a file.
    fn slice<'a>(&self, file: &'a [u8], tokens: std::ops::Range<u64>) -> &'a [u8] {
        let at = |token: u64| (TOKENS + token * self.width()) as usize;
        &file[at(tokens.start)..at(tokens.end)]
    }

    /// Copies tokens of a file from `first` on, as many as `to` has.
    fn copy(&self, file: &[u8], first: u64, to: &mut [u32]) {
        let bytes = self.slice(file, first..first + to.len() as u64);
        if self.width() == 2 {
            let numbers = bytes.as_chunks::<2>().0.iter().map(|two| u32::from(u16::from_le_bytes(*two)));
            to.iter_mut().zip(numbers).for_each(|(to, token)| *to = token);
        } else {
            let numbers = bytes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four));
            to.iter_mut().zip(numbers).for_each(|(to, token)| *to = token);
        }
    }
}

/// A packed token set whose header and index have been checked.
#[derive(Debug)]
pub struct TokenFile {
    place: String,
    map: Mmap,
    header: TokenHeader,
    documents: Vec<u64>,
    /// By block, whether it has been verified.
    verified: Vec<AtomicBool>,
}

impl TokenFile {
    /// Whether the file at `path` begins as a packed token set.
    pub fn is(path: &Path) -> bool {
        let mut first = [0; MAGIC.len()];
        let read = |mut file: File| file.read_exact(&mut first);
        path.is_file() && File::open(path).and_then(read).is_ok() && first == MAGIC
    }

    /// Opens the set at `path`, without reading tokens.
    ///
    /// # Errors
    /// No such file, or one that is cut, damaged in header or index, or of another kind.
    pub fn open(path: &Path) -> Result<TokenFile, InputError> {
        let place = path.display().to_string();
        let map = map(path)?;
        let damaged = |message| InputError::new(&place, "", message);
        let header = TokenHeader::decode(&map).map_err(damaged)?;
        let documents = header.documents(&map).map_err(damaged)?;
        let verified = (0..header.tokens.div_ceil(BLOCK)).map(|_| AtomicBool::new(false)).collect();
        Ok(TokenFile { place, map, header, documents, verified })
    }

    /// The file, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Its header.
    pub fn header(&self) -> &TokenHeader {
        &self.header
    }

    /// The number of the first token of each document.
    pub fn documents(&self) -> &[u64] {
        &self.documents
    }

    /// The file of the tokenizer that made the tokens; empty where none is known.
    pub fn tokenizer_json(&self) -> &[u8] {
        &self.map[self.map.len() - self.header.tokenizer as usize..]
    }

    /// The tokenizer that made the tokens; `None` where none is known.
    ///
    /// # Errors
    /// One that is not read.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, InputError> {
        match self.tokenizer_json() {
            [] => Ok(None),
            json => Tokenizer::parse(&format!("the tokenizer in {}", self.place), json).map(Some),
        }
    }

    /// Verifies the blocks of these tokens that have not been verified: their checksums, and that each token is below the
    /// vocabulary.
    ///
    /// # Errors
    /// A block that is damaged, with its bytes.
    ///
    /// # Panics
    /// When there are no such tokens.
    pub fn verify(&self, tokens: std::ops::Range<u64>) -> Result<(), InputError> {
        for block in tokens.start / BLOCK..tokens.end.div_ceil(BLOCK) {
            if !self.verified[block as usize].load(Ordering::Relaxed) {
                let damaged = |(bytes, message)| InputError::new(&self.place, bytes, message);
                self.header.verify(&self.map, block).map_err(damaged)?;
                self.verified[block as usize].store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Copies the tokens from `first` on, as many as `to` has.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn copy(&self, first: u64, to: &mut [u32]) {
        self.header.copy(&self.map, first, to);
    }
}
