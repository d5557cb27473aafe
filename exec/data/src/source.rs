//! Lists the samples of a set to be packed, each with its location, before any is read.
//!
//! What cannot be listed as a sample (a truncated shard, an image without a label) is an item too, with the reason, so
//! that refusing and skipping follow one rule.

pub mod cifar;
mod folder;
pub mod lmdb;
pub mod shards;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use lockstep_models::Shape;
use lockstep_topology::{Bytes, InputError, read_bytes};
use memmap2::Mmap;
use sha2::{Digest, Sha256};

use crate::format::MOST_SAMPLE_BYTES;
use crate::{datum, idx, packed};

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
    /// Opens the set at `path`: a folder of class folders with JPEG files, a tar shard or a folder of them, a folder of
    /// IDX files, of CIFAR's binaries, or with Caffe's `data.mdb`.
    ///
    /// # Errors
    /// A path that is none of these, or files that cannot be listed.
    pub fn open(path: &Path, part: SetPart) -> Result<Source, InputError> {
        let place = path.display().to_string();
        let error = |message: String| InputError::new(&place, "", message);
        if path.is_file() {
            return match path.extension().is_some_and(|extension| extension == "tar") {
                true => Source::of_shards(place, vec![path.to_owned()]),
                false => Err(error("is not a tar shard (.tar); give one, or a folder".to_owned())),
            };
        }
        let names = folder::names(path).map_err(|failure| error(format!("cannot be listed: {failure}")))?;
        let ending = |ending: &str| -> Vec<PathBuf> {
            names.iter().filter(|name| name.ends_with(ending)).map(|name| path.join(name)).collect()
        };
        let source = if names.iter().any(|name| name.contains("-idx") || name.contains(".idx")) {
            Source::of_idx(place.clone(), path, part)
        } else if names.iter().any(|name| name == "data.mdb") {
            Source::of_lmdb(place.clone(), path.join("data.mdb"))
        } else if !ending(".bin").is_empty() {
            Source::of_cifar(place.clone(), path, &names, part)
        } else if !ending(".tar").is_empty() {
            Source::of_shards(place.clone(), ending(".tar"))
        } else {
            folder::list(path, &names).map_err(|failure| error(format!("cannot be listed: {failure}"))).map(
                |(items, classes)| Source {
                    place: place.clone(),
                    kind: Kind::Jpeg,
                    contents: Vec::new(),
                    items,
                    classes: Some(classes),
                },
            )
        }?;
        if source.items.is_empty() {
            let message = "has no samples: give a folder of class folders with JPEG files, tar shards (.tar), IDX files, \
                           CIFAR's binaries (.bin) or Caffe's data.mdb";
            return Err(error(message.to_owned()));
        }
        Ok(source)
    }

    /// Converts a content's list of samples to items.
    fn range(content: usize, found: Vec<SampleEntry>) -> impl Iterator<Item = Item> {
        found.into_iter().map(move |found| Item {
            name: found.name,
            label: found.label,
            piece: found.place.map_or_else(Piece::Bad, |(offset, length)| Piece::Range { content, offset, length }),
        })
    }

    fn of_shards(place: String, paths: Vec<PathBuf>) -> Result<Source, InputError> {
        let (mut contents, mut items) = (Vec::new(), Vec::new());
        for path in paths {
            let map = packed::map(&path)?;
            items.extend(Source::range(contents.len(), shards::list(&map)));
            contents.push((path, Content::Mapped(map)));
        }
        Ok(Source { place, kind: Kind::Jpeg, contents, items, classes: None })
    }

    fn of_idx(place: String, path: &Path, part: SetPart) -> Result<Source, InputError> {
        let prefix = if part == SetPart::Train { "train" } else { "t10k" };
        let set = idx::part(path, prefix)?;
        let length = set.shape.elements();
        let item = |(number, label): (u64, &u32)| Item {
            name: String::new(),
            label: *label,
            piece: Piece::Range { content: 0, offset: number * length, length },
        };
        let items = (0..).zip(&set.labels).map(item).collect();
        let contents = vec![(PathBuf::from(set.place), Content::Owned(set.images))];
        Ok(Source { place, kind: Kind::Raw(set.shape), contents, items, classes: None })
    }

    fn of_cifar(place: String, path: &Path, names: &[String], part: SetPart) -> Result<Source, InputError> {
        let files = cifar::files(names, part);
        let (mut contents, mut items, mut classes) = (Vec::new(), Vec::new(), None);
        for (name, form) in files {
            let path = path.join(name);
            let map = packed::map(&path)?;
            items.extend(Source::range(contents.len(), cifar::list(&map, form)));
            contents.push((path, Content::Mapped(map)));
            classes = Some(form.classes());
        }
        Ok(Source { place, kind: Kind::Raw(cifar::SHAPE), contents, items, classes })
    }

    fn of_lmdb(place: String, path: PathBuf) -> Result<Source, InputError> {
        let map = packed::map(&path)?;
        let found = lmdb::list(&map).map_err(|message| InputError::new(path.display().to_string(), "", message))?;
        let items: Vec<Item> = Source::range(0, found).collect();
        let mut source = Source {
            place,
            kind: Kind::Datum(None),
            contents: vec![(path, Content::Mapped(map))],
            items,
            classes: None,
        };
        // All samples must be like the first readable one.
        let shape = (0..source.len()).find_map(|number| source.bytes(number).ok().and_then(|b| datum::read(&b).ok()));
        source.kind = Kind::Datum(shape.and_then(|sample| sample.shape));
        Ok(source)
    }

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
        matches!(self.kind, Kind::Raw(_))
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
            return Err(format!("is {}, others are {}: all must be alike", as_text(sample.shape), as_text(shape)));
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
