//! Converts the statuses of libraries' calls to device errors.

use std::ffi::{CStr, c_char};

use cudarc::cublaslt::sys::{self as lt, cublasStatus_t as Cublas};
use cudarc::cudnn::sys::{self as dnn, cudnnStatus_t as Cudnn};
use cudarc::driver::result::{DriverError, mem_get_info};
use cudarc::driver::sys::CUresult;
use lockstep_exec::device::DeviceError;

/// The driver's status of a call.
pub(super) trait Status {
    /// The result of a call.
    type Value;

    /// The result, if the call succeeded.
    ///
    /// # Errors
    /// The device is out of memory or lost, or the driver refuses `call`.
    fn of(self, call: &str) -> Result<Self::Value, DeviceError>;
}

impl Status for CUresult {
    type Value = ();

    fn of(self, call: &str) -> Result<(), DeviceError> {
        self.result().of(call)
    }
}

impl<T> Status for Result<T, DriverError> {
    type Value = T;

    fn of(self, call: &str) -> Result<T, DeviceError> {
        self.map_err(|DriverError(code)| match code {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => full(&untold(call), 0),
            lost if is_lost(lost) => DeviceError::Lost { call: call.to_owned(), reason: words(lost) },
            other => DeviceError::Refused { call: call.to_owned(), reason: words(other) },
        })
    }
}

/// The statuses of a library, as the bindings declare them.
pub(super) trait Library {
    /// Converts the status `code` of `call`.
    ///
    /// # Errors
    /// It is not success.
    fn check(code: u32, call: &str) -> Result<(), DeviceError>;
}

impl Library for Cudnn {
    fn check(code: u32, call: &str) -> Result<(), DeviceError> {
        if code == Cudnn::CUDNN_STATUS_SUCCESS as u32 {
            return Ok(());
        }
        if code == Cudnn::CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED as u32 {
            return Err(full(&untold(call), 0));
        }
        // SAFETY: a call has been made, so the library is loaded.
        let name = unsafe { dnn::culib().get::<NameOf>(b"cudnnGetErrorString\0").ok().map(|name| *name) };
        // All statuses that begin with 5 are kinds of this.
        let failed = code / 1000 == Cudnn::CUDNN_STATUS_EXECUTION_FAILED as u32 / 1000;
        Err(refused_or_lost(call, failed, named(code, name)))
    }
}

impl Library for Cublas {
    fn check(code: u32, call: &str) -> Result<(), DeviceError> {
        if code == Cublas::CUBLAS_STATUS_SUCCESS as u32 {
            return Ok(());
        }
        if code == Cublas::CUBLAS_STATUS_ALLOC_FAILED as u32 {
            return Err(full(&untold(call), 0));
        }
        // SAFETY: a call has been made, so the library is loaded.
        let name = unsafe { lt::culib().get::<NameOf>(b"cublasLtGetStatusName\0").ok().map(|name| *name) };
        let failed = code == Cublas::CUBLAS_STATUS_EXECUTION_FAILED as u32;
        Err(refused_or_lost(call, failed, named(code, name)))
    }
}

/// The libraries' functions that name statuses.
type NameOf = unsafe extern "C" fn(u32) -> *const c_char;

/// A status's name in its library, and its number, in case the library does not know it.
fn named(code: u32, name: Option<NameOf>) -> String {
    // SAFETY: such a function accepts any number.
    let text = name.map_or(std::ptr::null(), |name| unsafe { name(code) });
    if text.is_null() {
        return format!("status {code}");
    }
    // SAFETY: the library's names are static texts.
    format!("{} ({code})", unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// The error for full memory: `what` asked for `asked` bytes.
pub(super) fn full(what: &str, asked: u64) -> DeviceError {
    // A full device still reports its free memory; a lost one does not.
    let (free, total) = free_and_total_bytes().unwrap_or((0, 0));
    DeviceError::OutOfMemory { what: what.to_owned(), asked, free, total }
}

/// Free and total bytes of the current context's device.
pub(super) fn free_and_total_bytes() -> Result<(u64, u64), CUresult> {
    match mem_get_info() {
        Ok((free, total)) => Ok((free as u64, total as u64)),
        Err(DriverError(code)) => Err(code),
    }
}

pub(super) fn refused(call: &str, reason: String) -> DeviceError {
    DeviceError::Refused { call: call.to_owned(), reason }
}

fn untold(call: &str) -> String {
    format!("{call} (it does not say how much)")
}

/// A library on top of the driver knows less than the driver, which repeats why a device was lost.
pub(super) fn refused_or_lost(call: &str, failed: bool, reason: String) -> DeviceError {
    let call = call.to_owned();
    match free_and_total_bytes() {
        Err(code) if is_lost(code) => DeviceError::Lost { call, reason: format!("{reason}, {}", words(code)) },
        _ if failed => DeviceError::Lost { call, reason },
        _ => DeviceError::Refused { call, reason },
    }
}

/// Whether a context with this error is unusable from now on.
fn is_lost(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUresult::CUDA_ERROR_MPS_RPC_FAILURE
            | CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

/// The code's name, and the driver's description.
fn words(code: CUresult) -> String {
    match DriverError(code).error_string() {
        Ok(meaning) => format!("{code:?} ({})", meaning.to_string_lossy()),
        Err(_) => format!("{code:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that leaves the context usable is a refusal: the run may free memory or choose another way.
    #[test]
    fn only_errors_that_end_a_context_lose_the_device() {
        for code in [CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, CUresult::CUDA_ERROR_ECC_UNCORRECTABLE] {
            assert!(is_lost(code), "{code:?}");
        }
        for code in [
            CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            CUresult::CUDA_ERROR_INVALID_VALUE,
            CUresult::CUDA_ERROR_NOT_READY,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        ] {
            assert!(!is_lost(code), "{code:?}");
        }
    }
}
