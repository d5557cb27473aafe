//! Opens a GPU: cudarc's primary context, shared by every rank of the process on that GPU, with additions that cudarc
//! lacks: peer access, restoring the thread's context, and errors that name a missing library.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::result::ctx::set_current;
use cudarc::driver::sys::{
    CUcontext, CUresult, cuCtxEnablePeerAccess, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuDeviceCanAccessPeer,
};
use lockstep_exec::device::DeviceError;

use super::status::Status;
use crate::libraries::LibraryFolders;
use crate::probe::{Gpu, probe};

/// A GPU whose libraries are loaded and whose primary context is retained until the last user drops it.
#[derive(Debug)]
pub struct Context {
    cuda: Arc<CudaContext>,
    gpu: Gpu,
    places: LibraryFolders,
}

impl Context {
    /// Opens GPU number `ordinal` for the calling thread; other threads that use it must call [`Context::bind`].
    ///
    /// # Errors
    /// A library is missing (with every place searched); there is no such GPU, or it does not start.
    pub fn open(places: &LibraryFolders, ordinal: u32) -> Result<Arc<Context>, DeviceError> {
        let machine = probe(places).map_err(|reason| DeviceError::Unavailable(reason.to_string()))?;
        let Some(gpu) = machine.gpus.get(ordinal as usize) else {
            let count = machine.gpus.len();
            return Err(DeviceError::Unavailable(format!("there is no GPU {ordinal}: this machine has {count}")));
        };
        let cuda = CudaContext::new(ordinal as usize).of("cuDevicePrimaryCtxRetain")?;
        // SAFETY: it concerns cudarc's slices, of which there are none here.
        unsafe { cuda.disable_event_tracking() };
        let context = Context { cuda, gpu: gpu.clone(), places: places.clone() };
        context.bind()?;
        Ok(Arc::new(context))
    }

    /// Makes it the context of the calling thread. Each rank is a thread and calls this once.
    ///
    /// # Errors
    /// The device is lost.
    pub fn bind(&self) -> Result<(), DeviceError> {
        // cudarc skips a context with the same address, which may be that of a destroyed one.
        // SAFETY: the context is retained until `self` is dropped.
        unsafe { set_current(self.raw()) }.of("cuCtxSetCurrent")
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Its number on this machine.
    pub fn ordinal(&self) -> u32 {
        self.cuda.ordinal() as u32
    }

    /// Its architecture, as 90 for `sm_90`.
    pub fn architecture(&self) -> i32 {
        let (major, minor) = self.gpu.capability;
        10 * major + minor
    }

    /// Free and total bytes of its memory.
    ///
    /// # Errors
    /// The device is lost.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let (free, total) = self.cuda.mem_get_info().of("cuMemGetInfo")?;
        Ok((free as u64, total as u64))
    }

    /// Whether this GPU can access `other`'s memory directly; enables that if so. A GPU can always access itself.
    ///
    /// # Errors
    /// The driver refuses peer access that it reported as possible.
    pub fn reach(&self, other: &Context) -> Result<bool, DeviceError> {
        if self.raw() == other.raw() {
            return Ok(true);
        }
        let mut can = 0;
        // SAFETY: both devices are open; the number outlives the call.
        unsafe { cuDeviceCanAccessPeer(&mut can, self.cuda.cu_device(), other.cuda.cu_device()) }
            .of("cuDeviceCanAccessPeer")?;
        if can == 0 {
            return Ok(false);
        }
        self.within(|| {
            // SAFETY: both contexts are retained.
            match unsafe { cuCtxEnablePeerAccess(other.raw(), 0) } {
                CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
                code => code.of("cuCtxEnablePeerAccess").map(|()| true),
            }
        })
    }

    /// Runs `what` with this context current, then restores the thread's own: a dropped object may belong to another
    /// GPU.
    pub(super) fn within<T>(&self, what: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        // SAFETY: the context is retained until `self` is dropped.
        unsafe { cuCtxPushCurrent_v2(self.raw()) }.of("cuCtxPushCurrent")?;
        let answer = what();
        let mut popped = std::ptr::null_mut();
        // SAFETY: it was pushed above; the address outlives the call.
        unsafe { cuCtxPopCurrent_v2(&mut popped) }.of("cuCtxPopCurrent")?;
        answer
    }

    pub(super) fn raw(&self) -> CUcontext {
        self.cuda.cu_ctx()
    }

    pub(super) fn cuda(&self) -> &Arc<CudaContext> {
        &self.cuda
    }

    pub(super) fn places(&self) -> &LibraryFolders {
        &self.places
    }
}
