//! Who follows a run from outside: hears of its steps and its end, says when its state is kept, and breaks it for a test.

use lockstep_topology::InputError;

use crate::error::ExecError;
use crate::fault::InjectedFault;
use crate::flight::Flight;
use crate::snapshot::{Order, Snapshot};

/// Follows a run. Its methods are called on any thread; what is not implemented does nothing.
pub trait Observer: Sync {
    /// `rank`, of this process, has taken a micro-batch.
    fn loaded(&self, _rank: u32) {}

    /// Rank 0 has done the run's step `step` with this mean local loss.
    fn stepped(&self, _step: u32, _loss: f64) {}

    /// Whether the state may be kept on the way; the same in all processes.
    fn saves(&self) -> bool {
        false
    }

    /// Asked on rank 0 when a step begins, with how many steps will be done since training began when it is over.
    fn order(&self, _steps: u64) -> Order {
        Order::GoOn
    }

    /// Takes the state after a step, on rank 0; the run waits for it.
    ///
    /// # Errors
    /// The run ends with it.
    fn keep(&self, _snapshot: Snapshot) -> Result<(), InputError> {
        Ok(())
    }

    /// Whether the flight records are wanted now; asked several times a second.
    fn asks(&self) -> bool {
        false
    }

    /// Takes the records of the ranks of this process, when they are asked for and when the job is stuck.
    fn record(&self, _flights: &[Flight]) {}

    /// Hears once why the job is given up, before its end.
    fn stalled(&self, _error: &ExecError) {}

    /// Hears that ranks of a job that was given up do not end: only the end of the process helps.
    fn stuck(&self, error: &ExecError) {
        eprintln!("{error}");
    }

    /// What is to go wrong, where that is what is tested.
    fn fault(&self) -> Option<InjectedFault> {
        None
    }
}

impl Observer for () {}

/// Calls a function with the rank whenever one has taken a micro-batch.
pub struct OnLoad<F>(pub F);

impl<F: Fn(u32) + Sync> Observer for OnLoad<F> {
    fn loaded(&self, rank: u32) {
        (self.0)(rank);
    }
}
