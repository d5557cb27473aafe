//! Defines the errors of a device.

use std::fmt;

use lockstep_topology::{Bytes, ErrorPlace, InputError};

/// An error of a device. The CPU returns none.
#[derive(Debug, Clone, PartialEq)]
pub enum DeviceError {
    /// Its memory is too small for an allocation.
    OutOfMemory {
        /// What the memory was for.
        what: String,
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes that were free.
        free: u64,
        /// Bytes that the device has.
        total: u64,
    },
    /// It no longer responds, or has executed something invalid: none of its results can be trusted.
    Lost {
        /// The call that reported it.
        call: String,
        /// The library's message.
        reason: String,
    },
    /// A library refuses a call.
    Refused {
        /// The call.
        call: String,
        /// The library's message.
        reason: String,
    },
    /// A kernel's source does not compile.
    Compiler(String),
    /// There is no such device, or a library is missing.
    Unavailable(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::OutOfMemory { what, asked, free, total } => write!(
                f,
                "the device is out of memory: {what} takes {}, and {} of its {} are free",
                Bytes(*asked),
                Bytes(*free),
                Bytes(*total)
            ),
            DeviceError::Lost { call, reason } => write!(
                f,
                "the device is lost: {call} says {reason}; look at `nvidia-smi` and the system's log, then resume from the last \
                 checkpoint with `{}`",
                ErrorPlace::Flag("resume")
            ),
            DeviceError::Refused { call, reason } => write!(f, "the device refuses {call}: {reason}"),
            DeviceError::Compiler(message) | DeviceError::Unavailable(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for DeviceError {}

impl From<DeviceError> for InputError {
    fn from(error: DeviceError) -> InputError {
        InputError::new("device", "", error.to_string())
    }
}
