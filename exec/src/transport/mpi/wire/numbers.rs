//! Gathers a number from every process, at once or while some of them sleep.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use ::mpi::ffi;

use super::Wire;

/// Interval between polls of a process that waits for another's work.
const NAP: Duration = Duration::from_millis(2);

impl Wire {
    /// Gathers `mine` from each process, in order of process. Every process calls it.
    pub(in crate::transport::mpi) fn gather(&self, mine: u32) -> Vec<u32> {
        let mut all = vec![0u32; self.processes as usize];
        // SAFETY: one number out, one in for each process.
        unsafe {
            let (out, into) = (ptr::from_ref(&mine).cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
            ffi::MPI_Allgather(out, 1, ffi::RSMPI_UINT32_T, into, 1, ffi::RSMPI_UINT32_T, self.comm);
        }
        all
    }

    /// As [`Wire::gather`], but a process that waits sleeps, so that it takes no core from others.
    pub(in crate::transport::mpi) fn gather_asleep(&self, mine: u32) -> Vec<u32> {
        let mut all = vec![0u32; self.processes as usize];
        let mut done: c_int = 0;
        // SAFETY: one number out, one in for each process; both live until the request is done, which is awaited here.
        unsafe {
            let (out, into) = (ptr::from_ref(&mine).cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
            let (number, mut request) = (ffi::RSMPI_UINT32_T, ffi::RSMPI_REQUEST_NULL);
            ffi::MPI_Iallgather(out, 1, number, into, 1, number, self.comm, &mut request);
            let mut status = std::mem::zeroed();
            ffi::MPI_Test(&mut request, &mut done, &mut status);
            while done == 0 {
                std::thread::sleep(NAP);
                ffi::MPI_Test(&mut request, &mut done, &mut status);
            }
        }
        all
    }
}
