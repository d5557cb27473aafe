//! Packs a source into one file: threads read, decode, resize and encode; one writes in the order of the samples.
//!
//! Thread t of T processes items t, t + T, t + 2 T, …, and passes them on through its own short queue; the writer reads
//! the queues in turn. So the file is the same for any number of threads, and memory is bounded.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::mpsc;

use lockstep_topology::{ErrorPlace, InputError};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::Digest;

use crate::format::{BLOB, ENTRY, Encoding, Header, IndexEntry, MOST_CLASSES, MOST_SAMPLE_BYTES};
use crate::journal::{Journal, Record};
use crate::packed;
use crate::picture::{self, QUALITY};
use crate::png_picture;
use crate::source::Source;

/// Capacity of a thread's queue, in samples.
const QUEUE: usize = 16;
/// Samples, and bytes of samples, between writes to storage.
const SYNC: (usize, u64) = (1024, 16 << 20);

/// Options of a pack.
#[derive(Debug, Clone)]
pub struct Packing {
    /// The file.
    pub out: PathBuf,
    /// Short side in pixels to which JPEG files with a longer one are resized; 0: none is resized.
    pub short_side: u16,
    /// Threads that decode, at least 1.
    pub threads: usize,
    /// Whether broken samples are skipped and listed instead of refused.
    pub skip_bad: bool,
    /// The seed of the samples' order; `None`: the order of the source.
    pub shuffle_seed: Option<u64>,
}

/// A skipped sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Where it is.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The result of packing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The file's header.
    pub header: Header,
    /// Samples that are PNG files.
    pub pngs: u64,
    /// Samples that an earlier, interrupted pack had done.
    pub resumed: usize,
    /// Whether some that it had done were damaged, and were packed again.
    pub damaged: bool,
    /// Skipped samples, in the order of the samples.
    pub skipped: Vec<Skipped>,
}

/// A sample's bytes, ready to be written.
struct Ready<'a> {
    bytes: Cow<'a, [u8]>,
    label: u32,
    width: u16,
    height: u16,
}

/// Reads and prepares an item.
fn prepare(source: &Source, item: usize, short: u16) -> Result<Ready<'_>, String> {
    let sample = source.sample(item)?;
    if sample.bytes.len() as u64 > MOST_SAMPLE_BYTES || sample.bytes.is_empty() {
        return Err(format!("has {} bytes: 1 to {MOST_SAMPLE_BYTES} are allowed", sample.bytes.len()));
    }
    if sample.label >= MOST_CLASSES {
        return Err(format!("its label {} is too large: labels are below {MOST_CLASSES}", sample.label));
    }
    let size = |side: u32| u16::try_from(side).unwrap_or(u16::MAX);
    let (bytes, width, height) = match source.shape() {
        Some(shape) => {
            let (rows, columns) = shape.image().sides();
            (sample.bytes, size(columns), size(rows))
        }
        None => {
            let (kept, width, height) = picture::keep(&sample.bytes, short)?;
            (kept.map_or(sample.bytes, Cow::Owned), width, height)
        }
    };
    Ok(Ready { bytes, label: sample.label, width, height })
}

/// The items in the order in which they are packed (Fisher and Yates, a stream of ChaCha8).
fn order(items: usize, seed: Option<u64>) -> Vec<u32> {
    let mut order: Vec<u32> = (0..items as u32).collect();
    if let Some(seed) = seed {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for last in (1..items).rev() {
            order.swap(last, random.random_range(0..=last as u64) as usize);
        }
    }
    order
}

/// Packs `source` as `packing` says. `progress` is called with the number of samples done; if it returns false, the
/// pack ends with its progress kept, and the next call resumes there.
///
/// # Errors
/// A broken sample (unless skipped), no sample at all, an output that cannot be written, or `progress` that stops it.
pub fn pack(source: &Source, packing: &Packing, progress: impl FnMut(usize) -> bool) -> Result<Outcome, InputError> {
    let out = &packing.out;
    let unwritable = |failure: std::io::Error| {
        InputError::flag("out", out.display().to_string(), format!("cannot be written: {failure}; name another place"))
    };
    if u32::try_from(source.len()).is_err() {
        let message = format!("more than {} are too many for one file: pack parts of them", u32::MAX);
        return Err(InputError::new("SOURCE", format!("{} samples", source.len()), message));
    }
    let mut identity = source.identity();
    identity.update(format!("1 {} {QUALITY} {:?}", packing.short_side, packing.shuffle_seed));
    let (mut journal, mut done, damaged) =
        Journal::open(out, &identity.finalize(), source.len()).map_err(unwritable)?;
    let resumed = done.len();
    let order = order(source.len(), packing.shuffle_seed);
    for (record, item) in done.iter().zip(&order) {
        if let (Record::Skipped(reason), false) = (record, packing.skip_bad) {
            return Err(refused(source, *item, reason));
        }
    }
    let ended = write(source, packing, &order, (&mut journal, &mut done), progress);
    let kept = journal.sync().map_err(unwritable);
    ended.map_err(|stop| match stop {
        Stop::Bad(error) => error,
        Stop::Write(failure) => unwritable(failure),
        Stop::Asked => {
            let message = "the pack was interrupted: rerunning the command resumes it";
            InputError::flag("out", out.display().to_string(), message)
        }
    })?;
    kept?;

    let entries: Vec<&IndexEntry> =
        done.iter().filter_map(|record| if let Record::Packed(entry) = record { Some(entry) } else { None }).collect();
    let skipped = done.iter().zip(&order).filter_map(|(record, item)| match record {
        Record::Skipped(reason) => Some(Skipped { name: source.name(*item as usize), reason: reason.clone() }),
        Record::Packed(_) => None,
    });
    let skipped: Vec<Skipped> = skipped.collect();
    let Some(last) = entries.last() else {
        journal.discard();
        let reason = skipped.first().map_or("", |skipped| &skipped.reason);
        let message = format!("none of {} samples can be packed: the first {reason}", skipped.len());
        return Err(InputError::new("SOURCE", skipped.first().map_or("", |skipped| &skipped.name), message));
    };
    let mut index = Vec::with_capacity(entries.len() * ENTRY);
    entries.iter().for_each(|entry| index.extend(entry.encode()));
    let most = entries.iter().map(|entry| entry.label + 1).max().unwrap_or(0);
    let short_side = u32::from(packing.short_side);
    let jpeg = || Encoding::Jpeg { short_side, quality: if short_side == 0 { 0 } else { u32::from(QUALITY) } };
    let header = Header {
        encoding: source.shape().map_or_else(jpeg, Encoding::Raw),
        samples: entries.len() as u64,
        classes: source.classes().unwrap_or(0).max(most),
        index: last.offset + u64::from(last.length),
        index_checksum: crc32fast::hash(&index),
    };
    let (normalisation, pngs) = {
        let blob = journal.blob()?;
        let is_png = |entry: &&&IndexEntry| blob[entry.offset as usize..].starts_with(png_picture::MAGIC);
        let pngs = if source.shape().is_none() { entries.iter().filter(is_png).count() } else { 0 };
        (packed::figures_of(&header, &blob[BLOB as usize..header.index as usize]), pngs as u64)
    };
    journal.finish(out, &header.encode(normalisation.as_ref()), &index).map_err(unwritable)?;
    Ok(Outcome { header, pngs, resumed, damaged, skipped })
}

/// The error for a broken sample.
fn refused(source: &Source, item: u32, reason: &str) -> InputError {
    let message = format!("{reason}; fix it, or leave out what is broken with {}", ErrorPlace::Flag("skip_bad"));
    InputError::new(source.name(item as usize), "", message)
}

/// Why a pack ends early.
enum Stop {
    Bad(InputError),
    Write(std::io::Error),
    Asked,
}

/// Appends the remaining items of `order` to the journal.
fn write(
    source: &Source,
    packing: &Packing,
    order: &[u32],
    (journal, done): (&mut Journal, &mut Vec<Record>),
    mut progress: impl FnMut(usize) -> bool,
) -> Result<(), Stop> {
    let left = &order[done.len()..];
    let mut at = BLOB;
    for record in done.iter() {
        at += if let Record::Packed(entry) = record { u64::from(entry.length) } else { 0 };
    }
    let threads = packing.threads.clamp(1, left.len().max(1));
    std::thread::scope(|scope| {
        let mut queues = Vec::with_capacity(threads);
        for thread in 0..threads {
            let (send, receive) = mpsc::sync_channel(QUEUE);
            queues.push(receive);
            let work = move || {
                for item in left.iter().skip(thread).step_by(threads) {
                    // The writer has ended: no more items are needed.
                    if send.send(prepare(source, *item as usize, packing.short_side)).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("pack".to_owned()).spawn_scoped(scope, work).map_err(Stop::Write)?;
        }
        let (mut samples, mut bytes) = (0, 0);
        for (number, item) in left.iter().enumerate() {
            let Ok(ready) = queues[number % threads].recv() else { unreachable!("a thread hands over all its items") };
            let (record, data) = match ready {
                Ok(Ready { bytes, label, width, height }) => {
                    let (length, checksum) = (bytes.len() as u32, crc32fast::hash(&bytes));
                    (Record::Packed(IndexEntry { offset: at, length, label, checksum, width, height }), bytes)
                }
                Err(reason) if packing.skip_bad => (Record::Skipped(reason), Cow::Borrowed(&[][..])),
                Err(reason) => {
                    return Err(Stop::Bad(refused(source, *item, &reason)));
                }
            };
            journal.add(&record, &data).map_err(Stop::Write)?;
            at += data.len() as u64;
            done.push(record);
            (samples, bytes) = (samples + 1, bytes + data.len() as u64);
            if samples >= SYNC.0 || bytes >= SYNC.1 {
                journal.sync().map_err(Stop::Write)?;
                (samples, bytes) = (0, 0);
            }
            if !progress(done.len()) {
                return Err(Stop::Asked);
            }
        }
        Ok(())
    })
}
