//! Prepares a rank's next batches while it computes on the current one (Kumar et al. 2018, §4.1; Koliousis et al. 2019,
//! §4.5).
//!
//! Prefetching guesses what will be loaded. A batch that was not expected is made when it is requested, so a guess
//! affects when a batch is ready and never its contents.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lockstep_data::{Dataset, Recipe};
use lockstep_models::{READ_AHEAD, Role, TransformAt};

use super::batch::{Batch, MadeTimes};
use super::batch_memory::{Allocate, BatchMemory};
use super::decoders::Decoders;
use super::ring::{Prepared, Ring};
use crate::error::ExecError;
use crate::number::numbers_mut;

/// The most batches that a device copies from at a time.
const LENT: usize = 2;

/// A batch that a rank loads.
pub(crate) struct Loading {
    pub(crate) batch: Arc<Batch>,
    /// Whether its memory is the rank's own, and not a ring's.
    is_own: bool,
}

/// A rank's batches in preparation.
pub(crate) struct Feed {
    ahead: VecDeque<Arc<Batch>>,
    /// The batch that is loaded next, where learners prepare batches for each other: its memory is the ring's.
    of_ring: Option<Arc<Batch>>,
    /// Memory of batches already taken, for reuse.
    free: Vec<Arc<BatchMemory>>,
    /// The threads that make its batches.
    decoders: Arc<Decoders>,
    transform_at: TransformAt,
    /// Whether the device transforms the samples of batches that are decoded from now on.
    on_device: Arc<AtomicBool>,
}

impl Feed {
    /// The feed of a rank whose batches `decoders` make and whose samples are transformed there.
    pub(crate) fn new(decoders: &Arc<Decoders>, transform_at: TransformAt) -> Feed {
        let decoders = decoders.clone();
        let on_device = Arc::new(AtomicBool::new(transform_at == TransformAt::Device));
        Feed { ahead: VecDeque::new(), of_ring: None, free: Vec::new(), decoders, transform_at, on_device }
    }

    /// The threads that make its batches.
    pub(crate) fn decoders(&self) -> Arc<Decoders> {
        self.decoders.clone()
    }

    /// Notes that the device has waited for threads.
    pub(crate) fn fell_behind(&self) {
        if self.transform_at == TransformAt::WhenLate {
            self.on_device.store(true, Ordering::Relaxed);
        }
    }

    /// Number of batches prepared ahead.
    pub(crate) const AHEAD: usize = READ_AHEAD as usize;

    /// Batches prepared ahead in a program that reads `ahead` of its loads.
    pub(crate) fn room(ahead: u32) -> usize {
        Feed::AHEAD.min(ahead as usize)
    }

    /// Whether threads make the batches of `data` that `role` loads: those that it has tasks for, and files of pictures always.
    pub(crate) fn makes(data: &Dataset, role: &Role) -> bool {
        data.form().is_picture() || role.batches_ahead().is_some()
    }

    /// As [`Dataset::draw`], waiting for a batch prepared ahead.
    ///
    /// # Errors
    /// As there, and those of `allocate`.
    pub(crate) fn draw(
        &mut self,
        data: &Dataset,
        indices: &[u32],
        (seed, place): (u64, u64),
        allocate: Allocate<'_>,
        (samples, labels): (&mut [u8], &mut [u32]),
    ) -> Result<(), ExecError> {
        let Some(loading) = self.begin(data, indices, (seed, place), allocate)? else {
            return Ok(data.draw(indices, seed, place, samples, labels)?);
        };
        match loading.batch.ready()? {
            Some(pictures) => {
                let images = samples.chunks_exact_mut(data.sample().bytes() as usize).enumerate();
                images.for_each(|(number, image)| pictures.make(number, numbers_mut(image)));
            }
            None => loading.batch.copy_to(samples),
        }
        data.copy_labels(indices, labels);
        self.end(loading);
        Ok(())
    }

    /// The batch of samples that a rank loads, which threads have prepared or are about to; `None` where the rank draws
    /// them itself. Followed by [`Feed::end`] when it is loaded.
    ///
    /// # Errors
    /// The system refuses threads, or memory.
    pub(crate) fn begin(
        &mut self,
        data: &Dataset,
        indices: &[u32],
        (seed, place): (u64, u64),
        allocate: Allocate<'_>,
    ) -> Result<Option<Loading>, ExecError> {
        let recipe = data.recipe(indices, seed, place);
        if let Some(batch) = self.of_ring.take_if(|batch| batch.recipe == recipe) {
            return Ok(Some(Loading { batch, is_own: false }));
        }
        let batch = match self.ahead.iter().position(|batch| batch.recipe == recipe) {
            Some(at) => self.ahead.remove(at).unwrap_or_else(|| unreachable!("just found")),
            None if data.form().is_picture() => {
                let memory = BatchMemory::of(&mut self.free, recipe.bytes(), allocate)?;
                self.decoders.ask(data, recipe, memory, true, &self.on_device)?
            }
            None => return Ok(None),
        };
        Ok(Some(Loading { batch, is_own: true }))
    }

    /// The batch is loaded: its memory is free once the device has copied it.
    pub(crate) fn end(&mut self, Loading { batch, is_own }: Loading) {
        if is_own {
            self.free.push(batch.memory.clone());
            self.free.truncate(Feed::AHEAD + LENT);
        }
    }

    /// Takes the batch that is loaded next from a ring; false before there is a place for it.
    pub(crate) fn take(&mut self, ring: &Ring, batch: Prepared) -> bool {
        self.of_ring = ring.batch(batch);
        self.of_ring.is_some()
    }

    /// Waits, at most until `deadline`, until the batch that is loaded next is ready; returns when that was, if it is.
    ///
    /// # Errors
    /// The system refuses threads.
    pub(crate) fn wait(
        &mut self,
        data: &Dataset,
        indices: &[u32],
        (seed, place): (u64, u64),
        allocate: Allocate<'_>,
        deadline: Instant,
    ) -> Result<Option<MadeTimes>, ExecError> {
        let recipe = data.recipe(indices, seed, place);
        let batch = match self.of_ring.iter().chain(&self.ahead).find(|batch| batch.recipe == recipe) {
            Some(batch) => batch.clone(),
            None => {
                let memory = BatchMemory::of(&mut self.free, recipe.bytes(), allocate)?;
                let batch = self.decoders.ask(data, recipe, memory, true, &self.on_device)?;
                self.ahead.push_front(batch.clone());
                batch
            }
        };
        Ok(batch.wait(Some(deadline)))
    }

    /// Starts to prepare batches of `data`, given by their samples and the place of the first, the next one first;
    /// drops others.
    ///
    /// # Errors
    /// The system refuses threads.
    pub(crate) fn expect(
        &mut self,
        data: &Dataset,
        seed: u64,
        allocate: Allocate<'_>,
        next: impl Iterator<Item = (Vec<u32>, u64)>,
    ) -> Result<(), ExecError> {
        let wanted: Vec<Recipe> =
            next.take(Feed::AHEAD).map(|(indices, place)| data.recipe(&indices, seed, place)).collect();
        self.ahead.retain(|batch| {
            let keeps = wanted.iter().any(|recipe| batch.recipe == *recipe);
            if !keeps {
                batch.cancel();
            }
            keeps
        });
        for recipe in wanted {
            if self.ahead.iter().all(|batch| batch.recipe != recipe) {
                let memory = BatchMemory::of(&mut self.free, recipe.bytes(), allocate)?;
                self.ahead.push_back(self.decoders.ask(data, recipe, memory, false, &self.on_device)?);
            }
        }
        Ok(())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.ahead.iter().for_each(|batch| batch.cancel());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use lockstep_data::generate::{Like, generate};
    use lockstep_data::{Packing, SetPart, Source, pack};

    use super::*;
    use crate::device::DeviceError;
    use crate::number::bytes_of_mut;

    /// Allocates memory for batches on the CPU.
    pub(in super::super) fn ordinary(bytes: usize) -> Result<BatchMemory, DeviceError> {
        Ok(BatchMemory::of_pages(bytes))
    }

    /// Packs eight pictures.
    pub(in super::super) fn pictures(of: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("lockstep-feed-{of}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        generate((Like::Imagenet, 2), (8, 1), &folder.join("in"), 2, |_| true).unwrap();
        let packing =
            Packing { out: folder.join("out.pack"), short_side: 40, threads: 2, skip_bad: false, shuffle_seed: None };
        pack(&Source::open(&folder.join("in"), SetPart::Train).unwrap(), &packing, |_| true).unwrap();
        folder
    }

    /// Batches are the same wherever they are transformed, also where threads fall behind in the middle.
    #[test]
    fn the_device_and_threads_give_equal_samples() {
        let folder = pictures("device");
        let model = lockstep_readers::load_model("resnet-32").unwrap();
        let name = format!("{0}+{0}", folder.join("out.pack").display());
        for how in ["none", "scale,flip", "patch,scale,crop=3,flip"] {
            let data = Dataset::load_augmented(&name, &model, how.parse().unwrap()).unwrap();
            let (data, _) = Dataset::decoded_by(data, Some(2));
            for at in [TransformAt::Host, TransformAt::Device, TransformAt::WhenLate] {
                let mut feed = Feed::new(&Arc::new(Decoders::new()), at);
                for place in 0..6u64 {
                    if place == 3 {
                        feed.fell_behind();
                    }
                    let on_device = at == TransformAt::Device || at == TransformAt::WhenLate && place >= 3;
                    let (mut images, mut own) = (vec![0.0; 2 * 3 * 32 * 32], vec![1.0; 2 * 3 * 32 * 32]);
                    let (mut labels, mut of_own) = ([8; 2], [9; 2]);
                    let indices = [place as u32, 7];
                    let loading = feed.begin(&data, &indices, (5, place), &mut ordinary).unwrap().unwrap();
                    assert_eq!(loading.batch.ready().unwrap().is_some(), on_device, "{at} {place}");
                    feed.ahead.push_back(loading.batch);
                    let made = (bytes_of_mut(&mut images), &mut labels[..]);
                    feed.draw(&data, &indices, (5, place), &mut ordinary, made).unwrap();
                    data.draw(&indices, 5, place, &mut own, &mut of_own).unwrap();
                    assert_eq!((&images, labels), (&own, of_own), "{how}, {at}, {place}");
                }
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn expected_batches_are_made_once_and_unexpected_ones_on_demand() {
        let folder = pictures("ahead");
        let model = lockstep_readers::load_model("resnet-32").unwrap();
        let name = format!("{0}+{0}", folder.join("out.pack").display());
        let data = Dataset::load_augmented(&name, &model, "scale,flip".parse().unwrap()).unwrap();
        let (data, _) = Dataset::decoded_by(data, Some(3));
        let elements = 3 * 32 * 32;
        let mut feed = Feed::new(&Arc::new(Decoders::new()), TransformAt::Host);
        let drawn = |feed: &mut Feed, indices: &[u32], place: u64| {
            let (mut images, mut labels) = (vec![0.0; indices.len() * elements], vec![9; indices.len()]);
            let (mut own, mut of_own) = (images.clone(), labels.clone());
            feed.draw(&data, indices, (5, place), &mut ordinary, (bytes_of_mut(&mut images), &mut labels[..])).unwrap();
            data.draw(indices, 5, place, &mut own, &mut of_own).unwrap();
            assert_eq!((images, labels), (own, of_own));
        };
        drawn(&mut feed, &[0, 7], 0);
        let next = [(vec![3, 1], 2), (vec![4, 4], 4), (vec![5, 6], 6)];
        feed.expect(&data, 5, &mut ordinary, next.clone().into_iter()).unwrap();
        assert_eq!(feed.ahead.len(), Feed::AHEAD);
        drawn(&mut feed, &[3, 1], 2);
        assert_eq!(feed.ahead.len(), Feed::AHEAD - 1, "it was there");
        drawn(&mut feed, &[6, 5], 6);
        assert_eq!(feed.ahead.len(), Feed::AHEAD - 1, "and this one was not");
        feed.expect(&data, 5, &mut ordinary, next[1..].iter().cloned()).unwrap();
        let expected: Vec<Recipe> = next[1..].iter().map(|(indices, place)| data.recipe(indices, 5, *place)).collect();
        assert!(feed.ahead.iter().map(|batch| &batch.recipe).eq(&expected));
        let pages = |batch: &Arc<Batch>| batch.memory.arena().address() % 4096;
        assert!(feed.ahead.iter().all(|batch| pages(batch) == 0), "memory of whole pages");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
