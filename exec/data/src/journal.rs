//! Records the progress of a pack, so that a killed one resumes: the partial file beside the output, and a journal of
//! its entries.
//!
//! A record is its length, its bytes and their CRC-32. The first one identifies the pack; each later one is a sample's
//! entry, or the reason why one was skipped. Records are written after their samples are on storage, so the partial
//! file has everything in the journal. Neither file is trusted: what follows the last intact record whose sample has
//! its checksum is done again, and files that no pack has written are refused and left as they are.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockstep_topology::RECORD;

use crate::format::{BLOB, ENTRY, IndexEntry, MAGIC, MOST_SAMPLE_BYTES, checksum};

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

/// The samples of a partial file, read in order.
struct Samples {
    file: BufReader<File>,
    at: u64,
    bytes: Vec<u8>,
}

impl Samples {
    fn at_first(blob: &File) -> io::Result<Samples> {
        let mut file = BufReader::with_capacity(1 << 20, blob.try_clone()?);
        file.seek(SeekFrom::Start(BLOB))?;
        Ok(Samples { file, at: BLOB, bytes: Vec::new() })
    }

    /// Whether the next sample is the one of the record, with its checksum; skipped ones have none.
    fn have(&mut self, record: &Record) -> io::Result<bool> {
        let Record::Packed(entry) = record else { return Ok(true) };
        let length = u64::from(entry.length);
        if entry.offset != self.at || !(1..=MOST_SAMPLE_BYTES).contains(&length) {
            return Ok(false);
        }
        self.bytes.clear();
        self.file.by_ref().take(length).read_to_end(&mut self.bytes)?;
        self.at += length;
        Ok(self.bytes.len() as u64 == length && checksum(&self.bytes) == entry.checksum)
    }
}

/// Opens the file of a pack in progress, which is created if it is missing. Links are refused: what they lead to would
/// be overwritten.
fn own_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let refused = |what: &str| {
        let message = format!("{} {what}, not the file of an interrupted pack: remove it", path.display());
        Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
    };
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => options.create_new(true).open(path),
        Err(error) => Err(error),
        Ok(found) if !found.is_file() => refused("is a link, a folder or a device"),
        Ok(found) if found.nlink() > 1 => refused("has another name too"),
        Ok(found) => {
            let file = options.open(path)?;
            let opened = file.metadata()?;
            // It was replaced in between.
            if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
                return refused("is being replaced");
            }
            Ok(file)
        }
    }
}

/// Checks that a partial file, whose journal does not say what it is, begins as one of a pack does: with a page of
/// zeros, or with a header. The error says whether it is this file that no pack has written, or its journal.
fn check_begin(blob: &mut File, journal: &[u8]) -> Result<(), bool> {
    let mut page = Vec::new();
    let read = blob.rewind().and_then(|()| blob.take(BLOB).read_to_end(&mut page));
    match read {
        Ok(0) if journal.is_empty() => Ok(()),
        Ok(0) => Err(false),
        Ok(_) if page.starts_with(&MAGIC) || page.iter().all(|byte| *byte == 0) => Ok(()),
        _ => Err(true),
    }
}

impl Journal {
    /// Opens the files beside `out`, with the records of the pack `identity` of `items` items, and whether some are
    /// discarded because they or their samples are damaged. Files of another pack are overwritten.
    ///
    /// # Errors
    /// Files that cannot be written, are being written by another process, or are not of a pack.
    pub(crate) fn open(out: &Path, identity: &[u8], items: usize) -> io::Result<(Journal, Vec<Record>, bool)> {
        let (blob_path, journal_path) = (beside(out, ".part"), beside(out, ".journal"));
        let is_new = blob_path.symlink_metadata().is_err();
        let (mut blob, mut journal) = (own_file(&blob_path)?, own_file(&journal_path)?);
        if journal.try_lock().is_err() {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process packs to it"));
        }
        let mut bytes = Vec::new();
        (&journal).take(RECORD.0).read_to_end(&mut bytes)?;
        let mut found = records(&bytes);
        let first = found.next();
        // The first record of a pack of something else is as long and intact.
        if first.is_none_or(|(first, _)| first.len() != identity.len())
            && let Err(foreign) = check_begin(&mut blob, &bytes)
        {
            if is_new {
                std::fs::remove_file(&blob_path)?;
            }
            let [foreign, other] = if foreign { [&blob_path, &journal_path] } else { [&journal_path, &blob_path] };
            let (foreign, other) = (foreign.display(), other.display());
            let message = format!("{foreign} is not of an interrupted pack, or damaged: remove it and {other}");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let (mut done, mut end, mut at) = (Vec::new(), 0, BLOB);
        if let Some((_, after)) = first.filter(|(first, _)| *first == identity) {
            end = after;
            let mut samples = Samples::at_first(&blob)?;
            for (payload, after) in found.take(items) {
                let Some(record) = Record::decode(payload) else { break };
                if !samples.have(&record)? {
                    break;
                }
                (end, at) = (after, samples.at);
                done.push(record);
            }
        }
        let damaged = if end > 0 { end < bytes.len() } else { bytes.is_empty() && blob.metadata()?.len() > BLOB };
        // The header is written last; an interrupted pack may have begun with it.
        blob.set_len(at)?;
        blob.rewind()?;
        blob.write_all(&[0; BLOB as usize])?;
        blob.seek(SeekFrom::Start(at))?;
        journal.set_len(end as u64)?;
        journal.seek(SeekFrom::Start(end as u64))?;
        let mut pending = Vec::new();
        if end == 0 {
            framed(identity, &mut pending);
        }
        Ok((Journal { blob, blob_path, journal, journal_path, pending }, done, damaged))
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
