//! Finds out whether the MPI library accepts addresses of GPU memory instead of host memory ("CUDA-aware").
//!
//! Open MPI, MPICH and their derivatives each have a function that reports it. It is looked up in the running program,
//! so that any library may be linked; a library without such a function counts as not CUDA-aware.

use std::ffi::c_int;

use libloading::os::unix::Library;

use super::super::TransportError;

/// Overrides the library's answer: 1, or 0.
const SAYS: &str = "LOCKSTEP_CUDA_AWARE_MPI";

/// MPICH's number for CUDA among kinds of GPUs.
const CUDA: c_int = 0;

/// What this process's library reports, or the environment variable in its place; with `speaks`, prints a note where
/// they differ.
///
/// # Errors
/// The environment variable is neither 1 nor 0.
pub(super) fn is_aware(speaks: bool) -> Result<bool, TransportError> {
    let Some(said) = std::env::var_os(SAYS) else { return Ok(library_is()) };
    match said.to_str() {
        Some("0") => Ok(false),
        Some("1") => {
            if speaks && !library_is() {
                eprintln!(
                    "lockstep: {SAYS}=1: GPU addresses are passed to an MPI library that does not report support for them"
                );
            }
            Ok(true)
        }
        _ => {
            let said = said.to_string_lossy();
            Err(TransportError::Unsupported(format!("{SAYS}={said}: write 1 or 0, or leave it to the MPI library")))
        }
    }
}

/// Whether the library reports support; MPI must be initialised.
fn library_is() -> bool {
    let program = Library::this();
    // SAFETY: the functions have these types in `mpi-ext.h` of Open MPI and `mpi_proto.h` of MPICH.
    unsafe {
        if let Ok(query) = program.get::<unsafe extern "C" fn() -> c_int>(b"MPIX_Query_cuda_support\0") {
            return query() == 1;
        }
        let query = program.get::<unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(b"MPIX_GPU_query_support\0");
        query.is_ok_and(|query| {
            let mut is_supported = 0;
            query(CUDA, &mut is_supported) == 0 && is_supported != 0
        })
    }
}
