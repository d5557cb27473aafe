//! Simulates the ring of batches that the learners of a process prepare for whichever of them is free (Koliousis et al.
//! 2019, §4.3 and §4.5).
//!
//! Each learner has room for some batches. What it prepares is another's as soon as that one has claimed it, and its
//! place is free once that one has loaded it.

use lockstep_models::Driver;
use lockstep_topology::InputError;

use super::Engine;
use crate::fluid::Fluid;
use crate::plan::Plan;

/// What learners prepare for each other.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Room for batches of a rank.
    room: u64,
    /// By rank: how many batches it has prepared, and how many of these have been loaded.
    uploaded: Vec<u64>,
    loaded: Vec<u64>,
    /// By rank: who prepares the batch that it claimed last, and which of that rank's it is.
    claimed: Vec<Option<(u32, u64)>>,
    /// Ranks with a place that has become free.
    freed: Vec<u32>,
}

impl Ring {
    /// The ring of ranks that claim batches first come, first served, and read ahead.
    pub(super) fn new(plan: &Plan, driver: &Driver) -> Option<Ring> {
        let ranks: usize = plan.roles.iter().map(|role| role.ranks.len()).sum();
        let room = plan.roles.iter().map(|role| role.reads_ahead).max().filter(|room| *room > 0)?;
        driver.pools()?;
        let (none, claimed) = (vec![0; ranks], vec![None; ranks]);
        Some(Ring { room: u64::from(room), uploaded: none.clone(), loaded: none, claimed, freed: Vec::new() })
    }

    /// `rank` has claimed the batch that is number `batch.1` of those that `batch.0` prepares.
    pub(super) fn take(&mut self, rank: u32, batch: (u32, u64)) {
        self.claimed[rank as usize] = Some(batch);
    }

    /// Who prepares the batch that `rank` has claimed and not loaded.
    pub(super) fn preparer(&self, rank: u32) -> Option<u32> {
        self.claimed[rank as usize].map(|(preparer, _)| preparer)
    }

    /// Whether the batch that `rank` has claimed is uploaded, if it has one.
    pub(super) fn has(&self, rank: u32) -> bool {
        self.claimed[rank as usize].is_none_or(|(preparer, number)| number < self.uploaded[preparer as usize])
    }

    /// Whether `rank` has room for its batch with this number.
    pub(super) fn has_room(&self, rank: u32, number: u64) -> bool {
        number < self.loaded[rank as usize] + self.room
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// Notes that `rank` has completed `task`: an upload that another rank may wait for, or a load that frees a place.
    pub(super) fn hand_on(&mut self, rank: u32, task: u32) {
        let (Some(ring), Some(pools)) = (&mut self.ring, self.driver.pools()) else { return };
        let role = &self.plan.roles[self.ranks[rank as usize].role as usize];
        if role.tasks[task as usize].uploaded_by.is_some() {
            if let Some((preparer, _)) = ring.claimed[rank as usize].take() {
                ring.loaded[preparer as usize] += 1;
                ring.freed.push(preparer);
            }
        } else if role.input.last().is_some_and(|stream| stream.iter().any(|slot| slot.task == task)) {
            ring.uploaded[rank as usize] += 1;
            let waiting: Vec<u32> = pools.ranks(pools.of(rank)).to_vec();
            waiting.into_iter().for_each(|other| self.touch(2 * other));
        }
    }

    /// Begins the reads for which places have become free.
    pub(super) fn start_freed(&mut self) -> Result<(), InputError> {
        while let Some(rank) = self.ring.as_mut().and_then(|ring| ring.freed.pop()) {
            self.start_input(rank)?;
        }
        Ok(())
    }
}
