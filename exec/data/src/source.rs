//! Lists the samples of a set to be packed, each with its location, before any is read.
//!
//! What cannot be listed as a sample (a truncated shard, an image without a label) is an item too, with the reason, so
//! that refusing and skipping follow one rule.

pub mod cifar;
mod folder;
pub mod lmdb;
mod open;
pub mod shards;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use lockstep_models::Shape;
use lockstep_topology::{Bytes, read_bytes};
use memmap2::Mmap;
use sha2::{Digest, Sha256};

use crate::datum;
use crate::format::MOST_SAMPLE_BYTES;

/// The part to read of a set that has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetPart {
    /// The training part.
    #[default]
    Train,
    /// The test part.
    HeldOut,
}

/// Bytes that contain items.
enum Content {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Content::Mapped(map) => map,
            Content::Owned(bytes) => bytes,
        }
    }
}

/// The location of an item's bytes.
enum Piece {
    /// A file of its own.
    File(PathBuf),
    /// `length` bytes of a content.
    Range { content: usize, offset: u64, length: u64 },
    /// Missing, for this reason.
    Bad(String),
}

/// A sample before it is read.
struct Item {
    /// Its path, or its name within a file; if empty, its number is used.
    name: String,
    /// Its class, if the list contains it.
    label: u32,
    piece: Piece,
}

/// The storage format of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Jpeg,
    Raw(Shape),
    /// Messages with a label and a raw array or an encoded image; with the shape of raw ones.
    Datum(Option<Shape>),
}

/// A set to be packed.
pub struct Source {
    place: String,
    kind: Kind,
    contents: Vec<(PathBuf, Content)>,
    items: Vec<Item>,
    /// If the format specifies the number of classes.
    classes: Option<u32>,
    /// Whether it has a part to train on and one that is held out.
    has_parts: bool,
    /// What was chosen or left out.
    notes: Vec<String>,
}

/// A sample to be packed.
#[derive(Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The bytes of the array or the file.
    pub bytes: Cow<'a, [u8]>,
    /// Class.
    pub label: u32,
}

impl Source {
    /// Number of samples, including those that cannot be read.
    #[expect(clippy::len_without_is_empty, reason = "a source is never empty")]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Number of classes, if the format specifies it.
    pub fn classes(&self) -> Option<u32> {
        self.classes
    }

    /// Whether the set has a part to train on and one that is held out.
    pub fn has_parts(&self) -> bool {
        self.has_parts
    }

    /// What was chosen among the files, or left out.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The shape of all samples, if they are arrays of bytes; `None` for JPEG files.
    pub fn shape(&self) -> Option<Shape> {
        match self.kind {
            Kind::Raw(shape) => Some(shape),
            Kind::Jpeg => None,
            Kind::Datum(shape) => shape,
        }
    }

    /// The location of sample `number`, for messages.
    pub fn name(&self, number: usize) -> String {
        let item = &self.items[number];
        let own = if item.name.is_empty() { format!("sample {number}") } else { item.name.clone() };
        match &item.piece {
            Piece::File(path) => path.display().to_string(),
            Piece::Range { content, .. } => format!("{}: {own}", self.contents[*content].0.display()),
            Piece::Bad(_) => format!("{}: {own}", self.place),
        }
    }

    /// The bytes of an item.
    fn bytes(&self, number: usize) -> Result<Cow<'_, [u8]>, String> {
        match &self.items[number].piece {
            Piece::File(path) => {
                read_bytes(path, Bytes(MOST_SAMPLE_BYTES)).map(Cow::Owned).map_err(|failure| failure.with_cure(""))
            }
            Piece::Range { content, offset, length } => {
                let bytes = self.contents[*content].1.bytes();
                let end = offset.checked_add(*length).filter(|end| *end <= bytes.len() as u64);
                let Some(end) = end else { return Err("lies outside its file".to_owned()) };
                Ok(Cow::Borrowed(&bytes[*offset as usize..end as usize]))
            }
            Piece::Bad(reason) => Err(reason.clone()),
        }
    }

    /// Reads sample `number`; images are not decoded.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn sample(&self, number: usize) -> Result<Sample<'_>, String> {
        let bytes = self.bytes(number)?;
        let Kind::Datum(shape) = self.kind else {
            return Ok(Sample { bytes, label: self.items[number].label });
        };
        let sample = datum::read(&bytes)?;
        if sample.shape != shape {
            let as_text = |shape: Option<Shape>| shape.map_or("an encoded image".to_owned(), |shape| shape.to_string());
            return Err(format!(
                "is {}, others are {}: all must be alike, so pack such samples apart",
                as_text(sample.shape),
                as_text(shape)
            ));
        }
        Ok(Sample { bytes: Cow::Owned(sample.data), label: sample.label })
    }

    /// A hash of the list: names, locations, labels, and lengths and modification times of files.
    pub(crate) fn identity(&self) -> Sha256 {
        let mut hash = Sha256::new();
        let file = |path: &Path, hash: &mut Sha256| {
            hash.update(path.as_os_str().as_encoded_bytes());
            if let Ok(found) = path.metadata() {
                hash.update(found.len().to_le_bytes());
                let changed = found.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
                hash.update(changed.unwrap_or_default().as_nanos().to_le_bytes());
            }
        };
        self.contents.iter().for_each(|(path, _)| file(path, &mut hash));
        for item in &self.items {
            hash.update((item.name.len() as u64).to_le_bytes());
            hash.update(&item.name);
            hash.update(item.label.to_le_bytes());
            match &item.piece {
                Piece::File(path) => file(path, &mut hash),
                Piece::Range { content, offset, length } => {
                    [*content as u64, *offset, *length].iter().for_each(|n| hash.update(n.to_le_bytes()));
                }
                Piece::Bad(reason) => hash.update(reason),
            }
        }
        hash
    }
}

/// A sample listed by the reader of one file format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleEntry {
    /// The name within the file; may be empty.
    pub name: String,
    /// Its class; 0 if only its content specifies it.
    pub label: u32,
    /// Offset and length, or what is wrong with it.
    pub place: Result<(u64, u64), String>,
}

impl SampleEntry {
    /// A broken sample.
    fn bad(name: impl Into<String>, reason: impl Into<String>) -> SampleEntry {
        SampleEntry { name: name.into(), label: 0, place: Err(reason.into()) }
    }
}
