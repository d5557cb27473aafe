//! Records the progress of a pack, so that a killed one resumes: the partial file beside the output, and a journal of
//! its entries.
//!
//! A record is its length, its bytes and their CRC-32. The first one identifies the pack; each later one is a sample's
//! entry, or the reason why one was skipped. Records are written after their samples are on storage, so the partial
//! file has everything in the journal; samples after its last intact record are done again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::format::{BLOB, ENTRY, IndexEntry};

/// Most bytes of a record.
const MOST: usize = 1 << 16;

/// The result of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Packed(IndexEntry),
    Skipped(String),
}

/// The files of a pack in progress.
pub(crate) struct Journal {
    blob: File,
    blob_path: PathBuf,
    journal: File,
    journal_path: PathBuf,
    /// Records whose samples are not yet on storage.
    pending: Vec<u8>,
}

/// `path` with `ending` appended to its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn framed(payload: &[u8], into: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(MOST)];
    into.extend((payload.len() as u32).to_le_bytes());
    into.extend(payload);
    into.extend(crc32fast::hash(payload).to_le_bytes());
}

/// The intact records at the beginning of `bytes`, with the end of each.
fn records(bytes: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let mut at = 0;
    std::iter::from_fn(move || {
        let length = number(at)? as usize;
        let payload = bytes.get(at + 4..at + 4 + length.min(MOST))?;
        let sound = length <= MOST && number(at + 4 + length)? == crc32fast::hash(payload);
        at += 8 + length;
        sound.then_some((payload, at))
    })
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        match self {
            Record::Packed(entry) => [&[0], &entry.encode()[..]].concat(),
            Record::Skipped(reason) => [&[1], reason.as_bytes()].concat(),
        }
    }

    fn decode(payload: &[u8]) -> Option<Record> {
        match payload.split_first()? {
            (0, entry) if entry.len() == ENTRY => Some(Record::Packed(IndexEntry::decode(entry))),
            (1, reason) => Some(Record::Skipped(String::from_utf8_lossy(reason).into_owned())),
            _ => None,
        }
    }
}

impl Journal {
    /// Opens the files beside `out`, with the content that belongs to the pack `identity`; files of another pack are
    /// discarded.
    ///
    /// # Errors
    /// Files that cannot be written, or are being written by another process.
    pub(crate) fn open(out: &Path, identity: &[u8]) -> io::Result<(Journal, Vec<Record>)> {
        let (blob_path, journal_path) = (beside(out, ".part"), beside(out, ".journal"));
        let open = |path: &Path| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let (mut blob, mut journal) = (open(&blob_path)?, open(&journal_path)?);
        if journal.try_lock().is_err() {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process packs to it"));
        }
        let mut bytes = Vec::new();
        journal.read_to_end(&mut bytes)?;
        let length = blob.metadata()?.len();
        let (mut done, mut end, mut at) = (Vec::new(), 0, BLOB);
        let mut found = records(&bytes);
        if let Some((first, after)) = found.next()
            && first == identity
        {
            end = after;
            for (payload, after) in found {
                let Some(record) = Record::decode(payload) else { break };
                if let Record::Packed(entry) = &record {
                    let next = at + u64::from(entry.length);
                    if entry.offset != at || next > length {
                        break;
                    }
                    at = next;
                }
                done.push(record);
                end = after;
            }
        }
        let mut pending = Vec::new();
        if end == 0 {
            framed(identity, &mut pending);
        }
        blob.set_len(at)?;
        blob.seek(SeekFrom::Start(at))?;
        journal.set_len(end as u64)?;
        journal.seek(SeekFrom::Start(end as u64))?;
        Ok((Journal { blob, blob_path, journal, journal_path, pending }, done))
    }

    /// Appends a record, and the bytes of the sample, if it is one.
    pub(crate) fn add(&mut self, record: &Record, bytes: &[u8]) -> io::Result<()> {
        framed(&record.encode(), &mut self.pending);
        self.blob.write_all(bytes)
    }

    /// Writes all additions to storage.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.blob.sync_data()?;
        self.journal.write_all(&std::mem::take(&mut self.pending))?;
        self.journal.sync_data()
    }

    /// The part of the file that is on storage.
    ///
    /// # Errors
    /// An unreadable file.
    pub(crate) fn blob(&self) -> Result<memmap2::Mmap, lockstep_topology::InputError> {
        crate::packed::map(&self.blob_path)
    }

    /// Completes the file with its index and header and renames it, atomically.
    pub(crate) fn finish(mut self, out: &Path, header: &[u8], index: &[u8]) -> io::Result<()> {
        self.blob.write_all(index)?;
        self.blob.seek(SeekFrom::Start(0))?;
        self.blob.write_all(header)?;
        self.blob.sync_all()?;
        std::fs::rename(&self.blob_path, out)?;
        let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
        std::fs::remove_file(&self.journal_path)
    }

    /// Removes both files of a pack that cannot succeed.
    pub(crate) fn discard(self) {
        let _ = std::fs::remove_file(&self.blob_path);
        let _ = std::fs::remove_file(&self.journal_path);
    }
}
