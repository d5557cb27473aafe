//! Holds the batches that the learners of a process prepare for whichever of them is free (Koliousis et al. 2019, §4.3
//! and §4.5).
//!
//! Each learner has some places. Threads fill them in the order in which batches are claimed, and a batch is in a place
//! of the learner that [`Pools`] names. The place is free once the batch is loaded, by whichever learner claimed it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockstep_data::Dataset;
use lockstep_models::{Pools, TransformAt};

use super::batch::{Batch, MadeTimes};
use super::batch_memory::{Allocate, BatchMemory};
use super::decoders::Decoders;
use crate::error::ExecError;

/// The learner that prepares a batch, and how many it has prepared before since the run began.
pub(crate) type Prepared = (u32, u64);

/// The batches of the learners of a process.
pub(crate) struct Ring {
    pools: Pools,
    /// Places of each learner.
    room: u64,
    seed: u64,
    /// The threads that make them.
    decoders: Arc<Decoders>,
    transform_at: TransformAt,
    /// Whether devices transform the samples of batches that are decoded from now on.
    on_device: Arc<AtomicBool>,
    /// By learner of the process.
    places: Mutex<BTreeMap<u32, LearnerSlots>>,
}

/// The places of a learner.
#[derive(Default)]
struct LearnerSlots {
    /// How many batches it has requested, and how many of these are loaded.
    requested: u64,
    loaded: u64,
    /// Those that are not loaded, by number.
    held: BTreeMap<u64, Arc<Batch>>,
    /// Memory of places that are free.
    free: Vec<Arc<BatchMemory>>,
    /// When those that are loaded were made.
    made: BTreeMap<u64, MadeTimes>,
}

impl Ring {
    /// A ring with `room` places for each of the `learners` of this process.
    pub(crate) fn new(
        pools: Pools,
        learners: impl Iterator<Item = u32>,
        room: usize,
        seed: u64,
        (decoders, transform_at): (&Arc<Decoders>, TransformAt),
    ) -> Ring {
        let on_device = Arc::new(AtomicBool::new(transform_at == TransformAt::Device));
        let places = learners.map(|learner| (learner, LearnerSlots::default())).collect();
        Ring {
            pools,
            room: room as u64,
            seed,
            decoders: decoders.clone(),
            transform_at,
            on_device,
            places: Mutex::new(places),
        }
    }

    /// The pools whose batches it holds.
    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u32, LearnerSlots>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a device has waited for threads.
    pub(crate) fn fell_behind(&self) {
        if self.transform_at == TransformAt::WhenLate {
            self.on_device.store(true, Ordering::Relaxed);
        }
    }

    /// Requests batches of `data` for all free places, in the order in which they are claimed. `samples` gives those of
    /// a micro-batch of an iteration and the place of the first; `None` after the last iteration.
    ///
    /// # Errors
    /// The system refuses threads, the device memory.
    pub(crate) fn fill(
        &self,
        data: &Dataset,
        allocate: Allocate<'_>,
        samples: impl Fn((u32, u32)) -> Option<(Vec<u32>, u64)>,
    ) -> Result<(), ExecError> {
        let mut places = self.places();
        loop {
            let has_room = |of: &LearnerSlots| of.requested < of.loaded + self.room;
            let next = places.iter_mut().filter(|(_, of)| has_room(of)).min_by_key(|(rank, of)| (of.requested, **rank));
            let Some((rank, of)) = next else { return Ok(()) };
            let Some((indices, place)) = samples(self.pools.prepared(*rank, of.requested)) else { return Ok(()) };
            let recipe = data.recipe(&indices, self.seed, place);
            let memory = BatchMemory::of(&mut of.free, recipe.bytes(), allocate)?;
            let batch = self.decoders.ask(data, recipe, memory, false, &self.on_device)?;
            of.held.insert(of.requested, batch);
            of.requested += 1;
        }
    }

    /// A batch that is not loaded; `None` before there is a place for it.
    pub(super) fn batch(&self, (preparer, number): Prepared) -> Option<Arc<Batch>> {
        self.places().get(&preparer)?.held.get(&number).cloned()
    }

    /// Frees the place of a batch, which is loaded.
    pub(crate) fn free(&self, (preparer, number): Prepared) {
        let mut places = self.places();
        let Some(of) = places.get_mut(&preparer) else { return };
        let Some(batch) = of.held.remove(&number) else { return };
        of.loaded += 1;
        of.made.extend(batch.wait(None).map(|times| (number, times)));
        of.free.push(batch.memory.clone());
    }

    /// When the batches that `learner` prepared were made, by number, of those that are loaded.
    pub(crate) fn made(&self, learner: u32) -> BTreeMap<u64, MadeTimes> {
        self.places().get_mut(&learner).map(|of| std::mem::take(&mut of.made)).unwrap_or_default()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.places().values().flat_map(|of| of.held.values()).for_each(|batch| batch.cancel());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::feed::tests::{ordinary, pictures};
    use super::super::{Feed, Ring};
    use super::*;
    use crate::number::bytes_of_mut;

    /// Two learners with a place each: batches 0 and 1 are held; when 1 is loaded, its preparer begins batch 3; batch 2
    /// waits for the load of batch 0. Batches are the same as without a ring.
    #[test]
    fn a_place_is_free_when_its_batch_is_loaded() {
        let folder = pictures("ring");
        let model = lockstep_readers::load_model("resnet-32").unwrap();
        let name = format!("{0}+{0}", folder.join("out.pack").display());
        let data = Dataset::load_augmented(&name, &model, "scale,flip".parse().unwrap()).unwrap();
        let (data, _) = Dataset::decoded_by(data, Some(2));
        // Two batches a learner and iteration, two iterations.
        let decoders = Arc::new(Decoders::new());
        let ring = Ring::new(Pools::new(2, 2, |_| 0), 0..2, 1, 5, (&decoders, TransformAt::Host));
        let samples = |(iteration, batch): (u32, u32)| {
            let number = 4 * iteration + batch;
            (iteration < 2).then(|| (vec![number, 7 - number], u64::from(2 * number)))
        };
        let held = || -> Vec<Prepared> {
            let of = |rank: u32| (0..9).map(move |number| (rank, number));
            of(0).chain(of(1)).filter(|batch| ring.batch(*batch).is_some()).collect()
        };
        let mut feeds = [Feed::new(&decoders, TransformAt::Host), Feed::new(&decoders, TransformAt::Host)];
        let mut load = |learner: usize, batch: (u32, u32)| {
            let (indices, place) = samples(batch).unwrap();
            let prepared = ring.pools().preparer(batch.0, batch.1);
            assert!(feeds[learner].take(&ring, prepared));
            let waited = feeds[learner].wait(
                &data,
                &indices,
                (5, place),
                &mut ordinary,
                Instant::now() + std::time::Duration::MAX / 4,
            );
            assert!(waited.unwrap().is_some());
            let elements = 3 * 32 * 32;
            let (mut images, mut labels) = (vec![0.0; 2 * elements], vec![9; 2]);
            let (mut own, mut of_own) = (images.clone(), labels.clone());
            let made = (bytes_of_mut(&mut images), &mut labels[..]);
            feeds[learner].draw(&data, &indices, (5, place), &mut ordinary, made).unwrap();
            data.draw(&indices, 5, place, &mut own, &mut of_own).unwrap();
            assert_eq!((images, labels), (own, of_own), "{batch:?}");
            ring.free(prepared);
            ring.fill(&data, &mut ordinary, samples).unwrap();
        };
        ring.fill(&data, &mut ordinary, samples).unwrap();
        assert_eq!(held(), [(0, 0), (1, 0)]);
        load(0, (0, 1));
        assert_eq!(held(), [(0, 0), (1, 1)]);
        load(1, (0, 0));
        assert_eq!(held(), [(0, 1), (1, 1)]);
        for batch in [(0, 3), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)] {
            load(batch.1 as usize % 2, batch);
        }
        assert_eq!(held(), [], "nothing is prepared after the last iteration");
        for learner in 0..2 {
            let made = ring.made(learner);
            assert!(made.keys().copied().eq(0..4), "each has prepared four");
            assert!(made.values().all(|times| times.asked <= times.read.0 && times.read.0 <= times.decoded.1));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
