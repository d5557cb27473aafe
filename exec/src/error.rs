//! Defines the errors that end a run early.

use std::fmt;

use lockstep_topology::InputError;

use crate::device_error::DeviceError;
use crate::transport::TransportError;

/// A failure of a run; every rank stops on the first one.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecError {
    /// The user's request cannot be run.
    Input(InputError),
    /// A rank or its messages failed.
    Transport(TransportError),
    /// A device refused or is lost.
    Device(DeviceError),
    /// A rank panicked.
    Panic {
        /// The rank.
        rank: u32,
        /// The panic's message.
        message: String,
    },
    /// A loss that is not finite.
    Diverged {
        /// The rank with these samples.
        rank: u32,
        /// The step, counted from 0.
        step: u64,
        /// NaN or infinite.
        loss: f64,
        /// The first layers whose output is not finite; `None` where the parameters are not finite any more, so they
        /// cannot be found.
        layers: Option<String>,
    },
    /// Another process has failed and reports why.
    Elsewhere,
    /// No progress within the stall limit.
    Stall {
        /// The rank that reported it.
        rank: u32,
        /// For how long, in seconds.
        seconds: f64,
        /// The collective, the missing ranks, what each rank of the process does, and the cause; one line each.
        report: String,
    },
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExecError::Input(error) => error.fmt(f),
            ExecError::Transport(error) => error.fmt(f),
            ExecError::Device(error) => error.fmt(f),
            ExecError::Panic { rank, message } => write!(f, "rank {rank} panicked: {message}"),
            ExecError::Diverged { rank, step, loss, layers } => {
                write!(f, "training has diverged: in step {step} the loss on rank {rank} is {loss}, and ")?;
                match layers {
                    Some(layers) => write!(f, "the first output that is not finite is that of `{layers}`")?,
                    None => {
                        f.write_str("the next step has spoilt the parameters, and which layer did is not known")?;
                    }
                }
                f.write_str(": use a lower learning rate or a longer warm-up, or look at the data")
            }
            ExecError::Elsewhere => f.write_str("another process failed, and reports the cause"),
            ExecError::Stall { rank, seconds, report } => {
                write!(f, "the run has stalled: nothing has moved on rank {rank} for {seconds:.1} s\n{report}")
            }
        }
    }
}

impl std::error::Error for ExecError {}

impl From<InputError> for ExecError {
    fn from(error: InputError) -> ExecError {
        ExecError::Input(error)
    }
}

impl From<DeviceError> for ExecError {
    fn from(error: DeviceError) -> ExecError {
        ExecError::Device(error)
    }
}

impl From<TransportError> for ExecError {
    fn from(error: TransportError) -> ExecError {
        ExecError::Transport(error)
    }
}
