//! Times the input pipeline on this host: decoding a sample of a packed set on a core, and reading its file from
//! storage and from the page cache.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use lockstep_data::Dataset;
use lockstep_exec::available_memory;
use lockstep_models::profile::{DecodeEntry, Profile, StorageEntry};
use lockstep_models::{SampleForm, StoredSamples, median};
use lockstep_report::failure::Failure;
use lockstep_topology::InputError;
use rustix::fs::{Advice, fadvise};

use super::bench::at_once;
use super::{TRIALS, interval};
use crate::quiet::Quiet;

/// Samples to decode, spread over the set, and how often. Their number is a batch's, so that caches hold no more of
/// them than in training.
const SAMPLES: usize = 64;
const PASSES: usize = 4;
/// fp32 bytes of the samples that are drawn, where they are not JPEG files: more than the caches of a core hold.
const DRAWN: usize = 16 << 20;
/// Most bytes of the file to read, and the bytes of a sequential and of a random read.
const READ: u64 = 64 << 20;
const SEQUENTIAL: u64 = 1 << 20;
const RANDOM: u64 = 128 << 10;
/// Random reads in flight at once, as for a batch.
const TOGETHER: u64 = 32;

/// Adds to `profile` the missing input figures of `data`, whose batches threads prepare; returns whether any were
/// missing.
///
/// # Errors
/// Damaged samples, or a file that cannot be read.
pub fn add_input(
    profile: &mut Profile,
    data: &Dataset,
    quiet: &mut Quiet,
    mut note: impl FnMut(&str),
) -> Result<bool, Failure> {
    let StoredSamples { form, bytes, pixels } = data.stored();
    let (elements, is_picture) = (data.shape().elements(), form.is_picture());
    let augment = DecodeEntry::augment(form, data.augmentation());
    let known = |entry: &DecodeEntry| {
        (entry.form, &entry.augment) == (form, &augment)
            && (entry.bytes, entry.pixels, entry.elements) == (bytes, pixels, elements)
    };
    profile.decode.retain(|entry| !known(entry) || entry.transform.is_some() || !is_picture);
    let (decodes, stores) =
        (!profile.decode.iter().any(known), profile.storage.is_none() && form != SampleForm::Values);
    if decodes {
        note(if is_picture { "decoding samples" } else { "preparing samples" });
        let [alone, together, transformed] = quiet.measure(TRIALS, || passes(data, profile.cores as usize))?.0;
        let slowdown = (median(together) / median(alone.clone())).max(1.0);
        let (seconds, transform) = (interval(alone), is_picture.then(|| interval(transformed)));
        profile.decode.push(DecodeEntry { form, augment, bytes, pixels, elements, seconds, transform, slowdown });
    }
    if stores && let Some(path) = data.file() {
        note("reading from storage");
        let failed =
            |error: io::Error| InputError::new(path.display().to_string(), "", format!("cannot be read: {error}"));
        profile.storage = Some(storage(path).map_err(failed)?);
    }
    Ok(decodes || stores)
}

/// Seconds per sample in each pass, on one thread alone and on each of `cores` at once, and of transforming alone: of no
/// pictures for samples that are no files of pictures.
fn passes(data: &Dataset, cores: usize) -> Result<[Vec<f64>; 3], InputError> {
    let each = 4 * data.shape().elements() as usize;
    // A batch's samples are decoded from the caches of the storage; arrays and values come from memory.
    let drawn = if data.form().is_picture() { SAMPLES } else { SAMPLES.max(DRAWN / each.max(1)) };
    let samples = drawn.min(data.len());
    // Each far from the one before, as in a random order: a prime stride, coprime to most numbers of samples.
    let apart = |number: usize| (number as u64 * 7919 % samples as u64) as usize;
    let indices: Vec<u32> = (0..samples).map(|number| (apart(number) * data.len() / samples) as u32).collect();
    let elements = data.shape().elements() as usize;
    let pass = |place: u64| -> Result<f64, InputError> {
        let (mut images, mut label) = (vec![1.0; samples.min(SAMPLES) * elements], [0]);
        let begun = Instant::now();
        for (place, batch) in (place..).step_by(SAMPLES).zip(indices.chunks(SAMPLES)) {
            for ((place, index), image) in (place..).zip(batch).zip(images.chunks_exact_mut(elements)) {
                data.draw(&[*index], 1, place, image, &mut label)?;
            }
        }
        Ok(begun.elapsed().as_secs_f64() / samples as f64)
    };
    let all = |first: u64| {
        (0..PASSES as u64).map(|number| pass(first + number * samples as u64)).collect::<Result<Vec<f64>, _>>()
    };
    // The first pass brings the file into memory.
    pass(0)?;
    let alone = all(0)?;
    let pictures = data.pictures(&indices)?;
    let transform = |place: u64| {
        let mut images = vec![1.0; samples * elements];
        let begun = Instant::now();
        for ((place, picture), image) in (place..).zip(&pictures).zip(images.chunks_exact_mut(elements)) {
            data.transform(picture, (1, place), image);
        }
        begun.elapsed().as_secs_f64() / samples as f64
    };
    let transformed = (0..PASSES as u64).map(|number| transform(number * samples as u64)).collect();
    let together: Result<Vec<Vec<f64>>, InputError> =
        at_once((0..cores.max(1) as u64).collect(), all).into_iter().collect();
    Ok([alone, together?.concat(), transformed])
}

/// Bytes per second of reading a file: cold where the system can drop its page cache, else as it is.
fn storage(path: &Path) -> io::Result<StorageEntry> {
    let file = File::open(path)?;
    let length = file.metadata()?.len().max(1);
    let read = |block: u64, order: &dyn Fn(u64, u64) -> u64| -> io::Result<f64> {
        let blocks = (length.min(READ) / block).max(1);
        let mut bytes = vec![0; block.min(length) as usize];
        let begun = Instant::now();
        let length = bytes.len() as u64;
        for first in (0..blocks).step_by(TOGETHER as usize) {
            let next = || (first..blocks.min(first + TOGETHER)).map(|number| order(number, blocks) * length);
            // The system reads ahead of sequential reads by itself.
            if block == RANDOM {
                next().try_for_each(|at| fadvise(&file, at, NonZero::new(length), Advice::WillNeed))?;
            }
            next().try_for_each(|at| file.read_exact_at(&mut bytes, at))?;
        }
        Ok((blocks * bytes.len() as u64) as f64 / begun.elapsed().as_secs_f64().max(1e-9))
    };
    let drops = || fadvise(&file, 0, None, Advice::DontNeed).map_err(io::Error::from);
    let in_order: &dyn Fn(u64, u64) -> u64 = &|number, _| number;
    // A prime stride, coprime to most numbers of blocks: each block is far from the one before, and none is read twice.
    let at_random: &dyn Fn(u64, u64) -> u64 = &|number, blocks| number * 7919 % blocks;
    let mut rates: [Vec<f64>; 3] = Default::default();
    for _ in 0..TRIALS {
        drops()?;
        rates[0].push(read(SEQUENTIAL, in_order)?);
        drops()?;
        rates[1].push(read(RANDOM, at_random)?);
        read(SEQUENTIAL, in_order)?;
        rates[2].push(read(SEQUENTIAL, in_order)?);
    }
    let [sequential, random, cached] = rates.map(interval);
    Ok(StorageEntry { sequential, random, cached, page_cache: available_memory().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_is_read_in_every_way() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [1usize, 5000, 3 << 20] {
            let path = folder.path().join("file");
            std::fs::write(&path, vec![7; bytes]).expect("a file");
            let found = storage(&path).expect("rates");
            assert!([found.sequential, found.random, found.cached].iter().all(|rate| rate.value > 0.0), "{found:?}");
        }
        assert!(storage(&folder.path().join("none")).is_err());
    }
}
