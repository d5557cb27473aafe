//! `SimError`: states why there is no prediction: invalid input, or a deadlock of ranks.

use std::fmt;

use lockstep_topology::InputError;

use crate::deadlock::{self, Waiting};

/// Why there is no prediction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimError {
    /// Invalid input.
    Input(InputError),
    /// Ranks wait for each other forever: all that wait, by rank.
    Deadlock(Vec<Waiting>),
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Input(error) => error.fmt(f),
            SimError::Deadlock(waiting) => deadlock::describe(waiting, f),
        }
    }
}

impl std::error::Error for SimError {}

impl From<InputError> for SimError {
    fn from(error: InputError) -> SimError {
        SimError::Input(error)
    }
}
