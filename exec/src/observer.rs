//! Defines the observer of a run: it is notified of steps and of the end, decides when the state is saved, and injects
//! faults for tests.

use lockstep_topology::InputError;

use crate::error::ExecError;
use crate::fault::InjectedFault;
use crate::flight::Flight;
use crate::snapshot::{Order, Snapshot};

/// Observes a run. Its methods may be called on any thread; the default of each does nothing.
pub trait Observer: Sync {
    /// `rank`, of this process, has loaded a micro-batch.
    fn loaded(&self, _rank: u32) {}

    /// Rank 0 has completed the run's step `step` with this mean local loss.
    fn stepped(&self, _step: u32, _loss: f64) {}

    /// Whether the state may be saved during the run; the same in all processes.
    fn saves(&self) -> bool {
        false
    }

    /// Called on rank 0 when a step begins; `steps` is the number of steps since training began, this one included.
    fn order(&self, _steps: u64) -> Order {
        Order::Continue
    }

    /// Saves the state after a step, on rank 0; the run waits for it.
    ///
    /// # Errors
    /// An error ends the run.
    fn keep(&self, _snapshot: Snapshot<'_>) -> Result<(), InputError> {
        Ok(())
    }

    /// Whether the flight records are wanted now; polled several times a second.
    fn asks(&self) -> bool {
        false
    }

    /// Receives the records of the ranks of this process, when they were asked for and when the job stalls.
    fn record(&self, _flights: &[Flight]) {}

    /// Called once with the reason when the job is given up, before it ends.
    fn stalled(&self, _error: &ExecError) {}

    /// Called when ranks of a job that was given up do not end; the process must be ended.
    fn stuck(&self, error: &ExecError) {
        eprintln!("{error}");
    }

    /// The fault to inject, in tests.
    fn fault(&self) -> Option<InjectedFault> {
        None
    }
}

impl Observer for () {}

/// An observer that calls a function with the rank whenever a rank has loaded a micro-batch.
pub struct OnLoad<F>(pub F);

impl<F: Fn(u32) + Sync> Observer for OnLoad<F> {
    fn loaded(&self, rank: u32) {
        (self.0)(rank);
    }
}
