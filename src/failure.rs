//! `Failure`: why a command ended without its result, and the exit code that says so to scripts.

use std::fmt;
use std::process::ExitCode;

use lockstep_exec::ExecError;
use lockstep_topology::InputError;

use crate::host::Host;
use crate::interrupt::INTERRUPTED;

/// The exit code of a run in which nothing moved for the stall limit.
pub const STALLED: i32 = 3;

/// Why a command failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// The user's input makes no sense: exit code 2.
    Input(InputError),
    /// The input was fine, the run was not (a rank panicked, a program that deadlocks): exit code 1.
    Run(String),
    /// Nothing moved for the stall limit: exit code 3.
    Stalled(String),
    /// The user has ended the run, and what it was is kept: exit code 130.
    Interrupted(String),
}

impl Failure {
    /// 2 for bad input, 1 for a run that failed, 3 for one that stalled, 130 for one that was interrupted.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Input(_) => 2,
            Failure::Run(_) => 1,
            Failure::Stalled(_) => STALLED as u8,
            Failure::Interrupted(_) => INTERRUPTED as u8,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(error) => error.fmt(f),
            Failure::Run(message) | Failure::Stalled(message) | Failure::Interrupted(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Failure {
        Failure::Input(error)
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Failure {
        match error {
            ExecError::Input(error) => Failure::Input(error),
            stall @ ExecError::Stall { .. } => Failure::Stalled(located(&stall)),
            other => Failure::Run(located(&other)),
        }
    }
}

/// A run's error with where and when it was found.
pub fn located(error: &ExecError) -> String {
    let host = Host::find();
    format!("{error} (found on {}, {})", host.name, host.date)
}
