//! What the ranks of a process leave in it beside their results: the first failure of their own, and rank 0's model.

use std::sync::Mutex;

use crate::error::ExecError;
use crate::replica::Replica;
use crate::transport::TransportError;
use crate::watch::Guard;

/// z and, unless it has just begun, z_prev.
pub(crate) type AverageModel = (Vec<f32>, Option<Vec<f32>>);

/// What the ranks of a process tell beside their results.
#[derive(Default)]
pub(crate) struct Found {
    /// The first failure that is a rank's own.
    error: Mutex<Option<ExecError>>,
    /// Rank 0's, in the end: its replica, and its average model with the one before.
    pub replica: Mutex<Option<(Replica, Option<AverageModel>)>>,
}

impl Found {
    /// Others' transport errors follow from the first rank's own failure, which is the one to report.
    pub(crate) fn note<T>(&self, result: Result<T, ExecError>) -> Result<T, ExecError> {
        result.inspect_err(|error| {
            if let (Ok(mut slot), false) = (self.error.lock(), matches!(error, ExecError::Transport(_))) {
                slot.get_or_insert(error.clone());
            }
        })
    }

    /// What ended the run, with what its rank was doing.
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
