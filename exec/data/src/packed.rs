//! Reads a packed file: mapped into memory, so that a batch takes samples' bytes without a copy.

use std::fs::File;
use std::path::Path;

use lockstep_topology::InputError;
use memmap2::Mmap;

use crate::format::{BLOB, Entry, Header};
use crate::picture;

/// A packed set whose index has been checked.
#[derive(Debug)]
pub struct Packed {
    place: String,
    map: Mmap,
    header: Header,
    entries: Vec<Entry>,
}

/// The file at `path`, mapped; it must not be empty.
pub(crate) fn map(path: &Path) -> Result<Mmap, InputError> {
    let error = |message: String| InputError::new(path.display().to_string(), "", message);
    let unreadable = |failure: std::io::Error| error(format!("cannot be read: {failure}"));
    let file = File::open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() || found.len() == 0 {
        return Err(error("is empty or no file: name another".to_owned()));
    }
    // SAFETY: the map is only read. A file that others cut or change meanwhile breaks the promise that its bytes stay as they are;
    // inputs are declared (docs/data.md) to stay unchanged while they are read, as executables must.
    unsafe { Mmap::map(&file) }.map_err(unreadable)
}

impl Packed {
    /// The set at `path`; of the samples nothing is read yet.
    ///
    /// # Errors
    /// No such file, or one that is cut, damaged in header or index, or something else.
    pub fn open(path: &Path) -> Result<Packed, InputError> {
        let place = path.display().to_string();
        let map = map(path)?;
        let (header, entries) = read(&map).map_err(|message| InputError::new(&place, "", message))?;
        Ok(Packed { place, map, header, entries })
    }

    /// What its header says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// An entry for each sample.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The bytes of a sample, as they are kept.
    ///
    /// # Panics
    /// Where there is no such sample.
    pub fn bytes(&self, sample: usize) -> &[u8] {
        let entry = &self.entries[sample];
        &self.map[entry.offset as usize..][..entry.length as usize]
    }

    /// The bytes of a sample, held to their checksum.
    ///
    /// # Errors
    /// Changed bytes, with the sample and where it lies.
    ///
    /// # Panics
    /// Where there is no such sample.
    pub fn checked(&self, sample: usize) -> Result<&[u8], InputError> {
        let (entry, bytes) = (&self.entries[sample], self.bytes(sample));
        if crc32fast::hash(bytes) == entry.checksum {
            return Ok(bytes);
        }
        let (from, to) = (entry.offset, entry.offset + u64::from(entry.length) - 1);
        let message = format!("bytes {from} to {to} do not have their checksum: the file is damaged, pack it anew");
        Err(InputError::new(&self.place, format!("sample {sample}"), message))
    }

    /// RGB (or grey) pixels of a sample that is kept as JPEG, `[height, width, channels]`, with width, height and channels.
    ///
    /// # Errors
    /// Changed bytes, or no JPEG.
    pub fn pixels(&self, sample: usize) -> Result<picture::Picture, InputError> {
        let bytes = self.checked(sample)?;
        let error = |message| InputError::new(&self.place, format!("sample {sample}"), message);
        picture::decode(bytes).map_err(error)
    }

    /// Whether bytes between header, samples and index are as they were written: zeros behind the header, no gaps.
    pub fn is_dense(&self) -> bool {
        let mut at = BLOB;
        let follows = self.entries.iter().all(|entry| {
            let follows = entry.offset == at;
            at = entry.offset + u64::from(entry.length);
            follows
        });
        follows && at == self.header.index && self.map[64..BLOB as usize].iter().all(|byte| *byte == 0)
    }
}

/// Header and entries of the bytes of a whole file.
pub(crate) fn read(bytes: &[u8]) -> Result<(Header, Vec<Entry>), String> {
    let header = Header::decode(bytes, bytes.len() as u64)?;
    let entries = header.entries(&bytes[header.index as usize..])?;
    Ok((header, entries))
}
