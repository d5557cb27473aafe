//! Converts a run's error to the failure of its command: its exit code, and where and when it was found.

use lockstep_exec::ExecError;
use lockstep_report::Failure;

use crate::host::HostInfo;

/// The failure of a command whose run ended with `error`.
pub fn run_failure(error: impl Into<ExecError>) -> Failure {
    match error.into() {
        ExecError::Input(error) => Failure::Input(error),
        error @ ExecError::Diverged { step, .. } => Failure::Diverged { step, message: located(&error) },
        ExecError::Elsewhere => Failure::Elsewhere,
        stall @ ExecError::Stall { .. } => Failure::Stalled(located(&stall)),
        other => Failure::Run(located(&other)),
    }
}

/// A run's error with where and when it was found.
pub fn located(error: &ExecError) -> String {
    let host = HostInfo::find();
    format!("{error} (found on {}, {})", host.name, host.date)
}
