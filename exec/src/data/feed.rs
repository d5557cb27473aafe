//! A rank's feed: the batches that it will load next are made while it computes on this one (Kumar et al. 2018, §4.1; Koliousis et
//! al. 2019, §4.5).
//!
//! What is made ahead is a guess at what will be loaded. A batch that was not expected is made when it is asked for, so a guess
//! decides when a batch is there and never what is in it.

use std::collections::VecDeque;
use std::sync::Arc;

use lockstep_topology::InputError;

use super::Dataset;
use super::decoders::{Batch, Decoders, Recipe};
use crate::arena::Arena;

/// Batches that are made ahead: one that is ready while the next is being made.
const AHEAD: usize = 2;

/// Batches on their way to a rank.
#[derive(Default)]
pub(crate) struct Feed {
    ahead: VecDeque<Arc<Batch>>,
    /// Memory of batches that were taken.
    free: Vec<Arc<Arena>>,
}

impl Feed {
    /// Whether batches of `data` are made by threads.
    pub(crate) fn makes(data: &Dataset) -> bool {
        data.recipe(&[], 0, 0).is_some()
    }

    /// As [`Dataset::draw`], waiting for what was made ahead.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn draw(
        &mut self,
        data: &Dataset,
        indices: &[u32],
        (seed, place): (u64, u64),
        images: &mut [f32],
        labels: &mut [u32],
    ) -> Result<(), InputError> {
        let Some((recipe, decoders)) = data.recipe(indices, seed, place) else {
            return data.draw(indices, seed, place, images, labels);
        };
        let batch = match self.ahead.iter().position(|batch| batch.recipe == recipe) {
            Some(at) => self.ahead.remove(at).unwrap_or_else(|| unreachable!("just found")),
            None => decoders.ask(recipe, self.free.pop(), true)?,
        };
        batch.copy_to(images)?;
        data.label(indices, labels);
        self.free.push(batch.memory.clone());
        self.free.truncate(AHEAD);
        Ok(())
    }

    /// Has batches of `data` made ahead, given by their samples and the place of the first, the nearest first; others are dropped.
    ///
    /// # Errors
    /// Threads that the system does not give.
    pub(crate) fn expect(
        &mut self,
        data: &Dataset,
        seed: u64,
        next: impl Iterator<Item = (Vec<u32>, u64)>,
    ) -> Result<(), InputError> {
        let wanted: Vec<(Recipe, &Decoders)> =
            next.take(AHEAD).filter_map(|(indices, place)| data.recipe(&indices, seed, place)).collect();
        self.ahead.retain(|batch| {
            let keeps = wanted.iter().any(|(recipe, _)| batch.recipe == *recipe);
            if !keeps {
                batch.cancel();
            }
            keeps
        });
        for (recipe, decoders) in wanted {
            if self.ahead.iter().all(|batch| batch.recipe != recipe) {
                self.ahead.push_back(decoders.ask(recipe, self.free.pop(), false)?);
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
