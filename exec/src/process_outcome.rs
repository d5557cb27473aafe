//! Collects what a process's ranks share beside results: the first non-transport failure, and rank 0's model.

use std::sync::Mutex;

use crate::error::ExecError;
use crate::replica::Replica;
use crate::transport::TransportError;
use crate::watch::Guard;

/// z and, unless it has not moved yet, z_prev.
pub(crate) type AverageModel = (Vec<f32>, Option<Vec<f32>>);

/// What rank 0 ends with: its replica, its average model with the previous one, and the buffers declared as state.
pub(crate) type RankZero = (Replica, Option<AverageModel>, Vec<Vec<f32>>);

/// What the ranks of a process report beside their results.
#[derive(Default)]
pub(crate) struct ProcessOutcome {
    /// The first failure of a rank of this process that is not a transport error.
    error: Mutex<Option<ExecError>>,
    /// What rank 0 ends with.
    pub replica: Mutex<Option<RankZero>>,
}

impl ProcessOutcome {
    /// Records the first failure that is a rank's own; transport errors of other ranks only follow from it.
    pub(crate) fn note<T>(&self, result: Result<T, ExecError>) -> Result<T, ExecError> {
        result.inspect_err(|error| {
            if let (Ok(mut slot), false) = (self.error.lock(), matches!(error, ExecError::Transport(_))) {
                slot.get_or_insert(error.clone());
            }
        })
    }

    /// The error that ended the run, with what its rank was doing.
    pub(crate) fn cause(&self, error: TransportError, guard: &Guard<'_>) -> ExecError {
        let own = self.error.lock().ok().and_then(|mut slot| slot.take());
        own.unwrap_or_else(|| match error {
            TransportError::Aborted { rank, cause } => {
                let cause = format!("{cause} ({})", guard.place(rank.0));
                ExecError::Transport(TransportError::Aborted { rank, cause })
            }
            other => ExecError::Transport(other),
        })
    }
}
