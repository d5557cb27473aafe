//! Caches proved schedules, so that programs with common schedules prove them once.

use std::sync::{Arc, Mutex, PoisonError};

use lockstep_topology::{Algorithm, Collective, Group};

/// What decides a schedule: collective, algorithm, members, elements, elements of a lane, and whether it is rounded up.
pub(super) type Key = (Collective, Algorithm, Group, u64, u64, bool);

/// Schedules that were proved to compute their collectives; clones share them.
///
/// ```
/// use std::sync::Arc;
/// use lockstep_models::{Job, random_model};
/// let job = Job::new(Arc::new(random_model(7, false)), 4, 2);
/// let program = job.program()?; // proves its ring
/// assert_eq!(Job { batch_per_rank: 3, ..job }.program()?.global_batch(), 12); // exchanges the same
/// # Ok::<(), lockstep_topology::InputError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Proofs(Arc<Mutex<Vec<Key>>>);

impl Proofs {
    /// Runs `prove` unless it has succeeded for `key` before.
    ///
    /// # Errors
    /// The error of `prove`.
    pub(super) fn once<E>(&self, key: Key, prove: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(&key) {
            return Ok(());
        }
        prove()?;
        known().push(key);
        Ok(())
    }
}
