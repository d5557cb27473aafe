//! `Batch`: a batch that threads make, by work items that any of them may take.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use lockstep_data::{Decoded, Recipe, Untransformed};
use lockstep_models::SampleForm;
use lockstep_topology::InputError;

use super::batch_memory::BatchMemory;

/// Bytes of the samples that a thread takes at a time: many times what taking them costs. A JPEG file is that much
/// work by itself.
const TAKEN: usize = 256 << 10;

/// A batch in progress: all samples are read, then all are decoded: made of what was read. Values in memory are not
/// read.
pub(crate) struct Batch {
    pub(super) recipe: Recipe,
    pub(super) memory: Arc<BatchMemory>,
    /// Samples that a thread takes at a time.
    each: usize,
    /// The next work item: the first half of them read, the others decode.
    next: AtomicUsize,
    progress: Mutex<Progress>,
    moved: Condvar,
    asked: Instant,
    /// Whether the rank's device transforms samples, and whether it does so for this batch: decided when the first
    /// sample is decoded.
    on_device: Arc<AtomicBool>,
    untransformed: OnceLock<bool>,
    /// The decoded samples, if it does.
    pictures: Vec<OnceLock<Decoded>>,
}

/// Progress of a batch.
#[derive(Default)]
struct Progress {
    /// Number of samples read, and decoded.
    done: [usize; 2],
    /// When the first sample was started and the last one finished, for reading and decoding.
    times: [Option<(Instant, Instant)>; 2],
    /// The error of the failed sample with the lowest number.
    error: Option<(usize, InputError)>,
    /// Whether it is no longer wanted, so that some samples may never be read.
    cancelled: bool,
}

/// When a batch was requested, read and decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeTimes {
    pub(crate) asked: Instant,
    /// Start and end.
    pub(crate) read: (Instant, Instant),
    pub(crate) decoded: (Instant, Instant),
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("samples", &self.recipe.indices()).finish_non_exhaustive()
    }
}

/// Locks a mutex, poisoned or not: what it guards is consistent after every statement.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Batch {
    /// A batch to be made in `memory`; `on_device` says whether the rank's device transforms its samples.
    pub(super) fn new(recipe: Recipe, memory: Arc<BatchMemory>, on_device: &Arc<AtomicBool>) -> Batch {
        let (all, form, sample) = (recipe.indices().len(), recipe.form(), recipe.sample_bytes());
        let each = if form.is_picture() { 1 } else { (TAKEN / sample.max(1)).clamp(1, all.max(1)) };
        // Values need not be read.
        let read = if form == SampleForm::Values { all } else { 0 };
        let pictures = (0..all).map(|_| OnceLock::new()).collect();
        Batch {
            recipe,
            memory,
            each,
            next: AtomicUsize::new(read.div_ceil(each)),
            progress: Mutex::new(Progress { done: [read, 0], ..Progress::default() }),
            moved: Condvar::new(),
            asked: Instant::now(),
            on_device: on_device.clone(),
            untransformed: OnceLock::new(),
            pictures,
        }
    }

    /// Whether one thread makes all of it.
    pub(super) fn is_small(&self) -> bool {
        self.items() <= 1
    }

    /// Work items of reading, and as many of decoding.
    fn items(&self) -> usize {
        self.recipe.indices().len().div_ceil(self.each)
    }

    /// Reads or decodes the next samples; false if none are left. One thread makes a small batch alone: handing it on
    /// would take longer.
    pub(super) fn advance(&self) -> bool {
        let all = 2 * self.items();
        let next =
            if all <= 2 { self.next.swap(all, Ordering::Relaxed) } else { self.next.fetch_add(1, Ordering::Relaxed) };
        let end = if all <= 2 { all } else { all.min(next + 1) };
        (next..end).for_each(|item| self.work_on(item));
        next < all
    }

    /// Reads or decodes the samples of a work item.
    fn work_on(&self, item: usize) {
        let (all, items) = (self.recipe.indices().len(), self.items());
        let (phase, first) = (item / items, item % items * self.each);
        let numbers = first..all.min(first + self.each);
        if phase == 1 {
            let reading = |progress: &mut Progress| progress.done[0] < all && !progress.cancelled;
            drop(self.moved.wait_while(lock(&self.progress), reading));
        }
        let begun = Instant::now();
        if item == 0 {
            self.recipe.prefetch();
        }
        let failed = numbers.clone().find_map(|number| Some((number, self.make(phase, number).err()?)));
        let mut progress = lock(&self.progress);
        let now = Instant::now();
        let times = progress.times[phase].get_or_insert((begun, now));
        *times = (times.0.min(begun), now);
        progress.done[phase] += numbers.len();
        // Threads end in any order; the error that is reported is the same.
        if let Some((number, error)) = failed
            && progress.error.as_ref().is_none_or(|(first, _)| number < *first)
        {
            progress.error = Some((number, error));
        }
        if progress.done[phase] == all {
            self.moved.notify_all();
        }
    }

    /// Reads a sample in the first phase, decodes it in the second.
    fn make(&self, phase: usize, number: usize) -> Result<(), InputError> {
        let sample = self.recipe.indices()[number];
        let work = || if phase == 0 { self.recipe.read(number) } else { self.decode(number) };
        let made = catch_unwind(AssertUnwindSafe(work));
        made.unwrap_or_else(|_| {
            let message = "ended the decoder: the file is damaged in a way that it does not know, or the decoder is";
            Err(InputError::new("data", format!("sample {sample}"), message))
        })
    }

    fn decode(&self, number: usize) -> Result<(), InputError> {
        let on_device = || self.recipe.form().is_picture() && self.on_device.load(Ordering::Relaxed);
        if *self.untransformed.get_or_init(on_device)
            && let Some(decoded) = self.recipe.decoded(number)?
        {
            assert!(self.pictures[number].set(decoded).is_ok(), "each number is taken once");
            return Ok(());
        }
        let bytes = self.recipe.sample_bytes();
        // SAFETY: each number is taken once, and a rank that waits for the batch reads it when all are done.
        let sample = unsafe { self.memory.arena().slice_mut(number * bytes..(number + 1) * bytes) };
        self.recipe.make(number, sample)
    }

    /// Waits until all samples are ready, at most until `deadline`; returns when they were made, if they are.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Option<MadeTimes> {
        let all = self.recipe.indices().len();
        let mut progress = lock(&self.progress);
        while progress.done[1] < all {
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            // Without a deadline a year is used, which clocks can add.
            let waited = self.moved.wait_timeout(progress, left.min(Duration::from_secs(1 << 25)));
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let [read, decoded] = progress.times.map(|times| times.unwrap_or((self.asked, self.asked)));
        Some(MadeTimes { asked: self.asked, read, decoded })
    }

    /// Waits until all samples are ready. Returns those that the device has yet to transform; `None` where threads
    /// have done so, and [`Batch::copy_to`] copies them.
    ///
    /// # Errors
    /// The first sample that failed.
    pub(crate) fn ready(&self) -> Result<Option<Untransformed<'_>>, InputError> {
        self.wait(None);
        if let Some((_, error)) = lock(&self.progress).error.take() {
            return Err(error);
        }
        if self.untransformed.get() != Some(&true) {
            return Ok(None);
        }
        let samples = self.pictures.iter().map(|decoded| decoded.get().expect("all are decoded")).collect();
        Ok(Some(self.recipe.untransformed(samples)))
    }

    /// Copies the bytes of the samples, which are ready and transformed, to `samples`.
    pub(crate) fn copy_to(&self, samples: &mut [u8]) {
        // SAFETY: all samples are done, and no thread writes after that.
        samples.copy_from_slice(unsafe { self.memory.arena().slice(0..self.recipe.bytes()) });
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> &Arc<BatchMemory> {
        &self.memory
    }

    /// Cancels the batch.
    pub(super) fn cancel(&self) {
        self.next.store(2 * self.items(), Ordering::Relaxed);
        lock(&self.progress).cancelled = true;
        self.moved.notify_all();
    }
}
