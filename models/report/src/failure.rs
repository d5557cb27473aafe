//! Defines `Failure`: why a command ended without its result, with its exit code for scripts.

use std::fmt;
use std::process::ExitCode;

use lockstep_topology::InputError;

/// The exit code after an interrupt: 128 + SIGINT.
pub const INTERRUPTED: i32 = 130;
/// The exit code of a run in which nothing moved for the stall limit.
pub const STALLED: i32 = 3;

/// Why a command failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// The user's input makes no sense: exit code 2.
    Input(InputError),
    /// The input was fine, the run was not (a rank panicked, a program that deadlocks): exit code 1.
    Run(String),
    /// A loss that is no number: exit code 1.
    Diverged {
        /// In which step, counted from 0.
        step: u64,
        /// The message.
        message: String,
    },
    /// Another process of the job has failed and reports why: exit code 0, since with any other `mpirun` would end that
    /// process before it has reported.
    Elsewhere,
    /// Nothing moved for the stall limit: exit code 3.
    Stalled(String),
    /// A command that was run for the user ended with this code, which is passed on.
    Ended {
        /// Never 0.
        code: u8,
        /// The message.
        message: String,
    },
    /// The user has interrupted the run, whose state is kept: exit code 130.
    Interrupted(String),
}

impl Failure {
    /// 2 for bad input, 1 for a run that failed, 0 where another process reports the failure, 3 for one that stalled,
    /// its own code for a command that was run, 130 for one that was interrupted.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Elsewhere => 0,
            Failure::Input(_) => 2,
            Failure::Run(_) | Failure::Diverged { .. } => 1,
            Failure::Stalled(_) => STALLED as u8,
            Failure::Ended { code, .. } => *code,
            Failure::Interrupted(_) => INTERRUPTED as u8,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(error) => error.fmt(f),
            Failure::Run(message)
            | Failure::Diverged { message, .. }
            | Failure::Stalled(message)
            | Failure::Ended { message, .. }
            | Failure::Interrupted(message) => f.write_str(message),
            Failure::Elsewhere => f.write_str("another process of the job has failed"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Failure {
        Failure::Input(error)
    }
}
