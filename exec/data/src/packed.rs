//! Reads packed files, mapped into memory, so that a batch uses samples' bytes without a copy.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lockstep_topology::InputError;
use memmap2::{Advice, Mmap};

use crate::format::{BLOB, Encoding, Header, IndexEntry};
use crate::normalisation::Normalisation;
use crate::{picture, png_picture};

/// A packed set whose index has been checked.
#[derive(Debug)]
pub struct Packed {
    place: String,
    file: File,
    map: Mmap,
    header: Header,
    entries: Vec<IndexEntry>,
    normalisation: Option<Normalisation>,
    /// Where the zeros of the first page begin.
    zeros: usize,
}

/// Maps the file at `path`, which must not be empty.
pub(crate) fn map(path: &Path) -> Result<Mmap, InputError> {
    opened(path).map(|(_, map)| map)
}

/// The file at `path`, and its bytes.
fn opened(path: &Path) -> Result<(File, Mmap), InputError> {
    let error = |message: String| InputError::new(path.display().to_string(), "", message);
    let unreadable = |failure: std::io::Error| error(format!("cannot be read: {failure}"));
    // Opening a pipe would wait for its writer.
    let found = path.metadata().map_err(unreadable)?;
    if !found.is_file() || found.len() == 0 {
        return Err(error("is empty or no file: name another".to_owned()));
    }
    let file = File::open(path).map_err(unreadable)?;
    // SAFETY: the map is only read. The file must not be truncated or changed while it is mapped; inputs are documented
    // (docs/data.md) to stay unchanged while they are read, as executables must.
    let map = unsafe { Mmap::map(&file) }.map_err(unreadable)?;
    Ok((file, map))
}

/// Mean and deviation of each channel of the arrays in `blob`.
pub(crate) fn figures_of(header: &Header, blob: &[u8]) -> Option<Normalisation> {
    let Encoding::Raw(shape) = header.encoding else { return None };
    let pixels = shape.places() as usize;
    Some(Normalisation::of(shape.features() as usize, pixels, || blob.chunks_exact(shape.elements() as usize)))
}

impl Packed {
    /// Opens the set at `path`, without reading samples.
    ///
    /// # Errors
    /// No such file, or one that is truncated, damaged in header or index, or of another kind.
    pub fn open(path: &Path) -> Result<Packed, InputError> {
        let place = path.display().to_string();
        let (file, map) = opened(path)?;
        let damaged = |message| InputError::new(&place, "", message);
        let (header, entries) = read(&map).map_err(damaged)?;
        let (normalisation, zeros) = header.normalisation(&map).map_err(damaged)?;
        Ok(Packed { place, file, map, header, entries, normalisation, zeros })
    }

    /// The file, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Mean and deviation of each channel over all samples, if they are arrays.
    pub fn normalisation(&self) -> Option<&Normalisation> {
        self.normalisation.as_ref()
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// An entry for each sample.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Of up to `most` samples, evenly spaced, how many are PNG files, and how many were looked at.
    pub fn pngs(&self, most: usize) -> (usize, usize) {
        let all = self.entries.len();
        let seen = most.min(all);
        let is_png = |at: &usize| self.bytes(at * all / seen).starts_with(png_picture::MAGIC);
        ((0..seen).filter(is_png).count(), seen)
    }

    /// A sample's stored bytes.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn bytes(&self, sample: usize) -> &[u8] {
        let entry = &self.entries[sample];
        &self.map[entry.offset as usize..][..entry.length as usize]
    }

    /// Asks the system to read a sample from storage, without waiting: many reads in flight keep a disk busy.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn prefetch(&self, sample: usize) {
        let entry = &self.entries[sample];
        // A system that ignores the advice reads the sample on access.
        let _ = self.map.advise_range(Advice::WillNeed, entry.offset as usize, entry.length as usize);
    }

    /// A sample's bytes, verified against their checksum.
    ///
    /// # Errors
    /// Changed bytes, with the sample and its location.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn checked(&self, sample: usize) -> Result<&[u8], InputError> {
        let bytes = self.bytes(sample);
        self.check(sample, bytes).map(|()| bytes)
    }

    /// Reads a sample into `bytes`, of its length, bypassing the map, so that it does not occupy memory twice.
    ///
    /// # Errors
    /// An unreadable file, or changed bytes.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn read(&self, sample: usize, bytes: &mut [u8]) -> Result<(), InputError> {
        self.file.read_exact_at(bytes, self.entries[sample].offset).map_err(|failure| {
            InputError::new(&self.place, format!("sample {sample}"), format!("cannot be read: {failure}"))
        })?;
        self.check(sample, bytes)
    }

    /// Verifies a sample's bytes against its checksum.
    fn check(&self, sample: usize, bytes: &[u8]) -> Result<(), InputError> {
        let entry = &self.entries[sample];
        if crc32fast::hash(bytes) == entry.checksum {
            return Ok(());
        }
        let (from, to) = (entry.offset, entry.offset + u64::from(entry.length) - 1);
        let message = format!("bytes {from} to {to} do not have their checksum: the file is damaged, pack it again");
        Err(InputError::new(&self.place, format!("sample {sample}"), message))
    }

    /// The pixels of a JPEG sample, RGB or grey, `[height, width, channels]`, with width, height and channels.
    ///
    /// # Errors
    /// Changed bytes, or not a JPEG.
    pub fn pixels(&self, sample: usize) -> Result<crate::pixels::Picture, InputError> {
        let bytes = self.checked(sample)?;
        let error = |message| InputError::new(&self.place, format!("sample {sample}"), message);
        picture::decode(bytes).map_err(error)
    }

    /// Whether the bytes between header, samples and index are as written: zeros after the header, no gaps.
    pub fn is_dense(&self) -> bool {
        let mut at = BLOB;
        let follows = self.entries.iter().all(|entry| {
            let follows = entry.offset == at;
            at = entry.offset + u64::from(entry.length);
            follows
        });
        follows && at == self.header.index && self.map[self.zeros..BLOB as usize].iter().all(|byte| *byte == 0)
    }
}

/// Reads header and entries from the bytes of a whole file.
pub(crate) fn read(bytes: &[u8]) -> Result<(Header, Vec<IndexEntry>), String> {
    let header = Header::decode(bytes, bytes.len() as u64)?;
    let entries = header.entries(&bytes[header.index as usize..])?;
    Ok((header, entries))
}
