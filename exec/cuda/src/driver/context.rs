//! A GPU that is open: cudarc's primary context, which every rank of the process on that GPU shares, and what it lacks: peers, a
//! context that is left as it was, and errors that name the library that is missing.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::result::ctx::set_current;
use cudarc::driver::sys::{
    CUcontext, CUresult, cuCtxEnablePeerAccess, cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuDeviceCanAccessPeer,
};
use lockstep_exec::device::DeviceError;

use super::status::Status;
use crate::libraries::Places;
use crate::probe::{Gpu, probe};

/// A GPU whose libraries are loaded and whose primary context is held until the last user is gone.
#[derive(Debug)]
pub struct Context {
    cuda: Arc<CudaContext>,
    gpu: Gpu,
    places: Places,
}

impl Context {
    /// Opens the GPU with the number `ordinal` for the calling thread; others that use it must [`Context::bind`] it.
    ///
    /// # Errors
    /// A library is missing, with every place it was looked for at; there is no such GPU, or it does not start.
    pub fn open(places: &Places, ordinal: u32) -> Result<Arc<Context>, DeviceError> {
        let machine = probe(places).map_err(|reason| DeviceError::Unavailable(reason.to_string()))?;
        let Some(gpu) = machine.gpus.get(ordinal as usize) else {
            let count = machine.gpus.len();
            return Err(DeviceError::Unavailable(format!("there is no GPU {ordinal}: this machine has {count}")));
        };
        let cuda = CudaContext::new(ordinal as usize).of("cuDevicePrimaryCtxRetain")?;
        // SAFETY: it is for cudarc's slices, of which there are none here.
        unsafe { cuda.disable_event_tracking() };
        let context = Context { cuda, gpu: gpu.clone(), places: places.clone() };
        context.bind()?;
        Ok(Arc::new(context))
    }

    /// Makes it what the calling thread's calls are for. Each rank is a thread, and needs it once.
    ///
    /// # Errors
    /// The device is lost.
    pub fn bind(&self) -> Result<(), DeviceError> {
        // cudarc leaves alone what has the same address, which may be that of a context that is gone.
        // SAFETY: the context is held until `self` is gone.
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

    /// Its free bytes and all its bytes.
    ///
    /// # Errors
    /// The device is lost.
    pub fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let (free, total) = self.cuda.mem_get_info().of("cuMemGetInfo")?;
        Ok((free as u64, total as u64))
    }

    /// Whether this GPU can write into `other`'s memory without passing the host; if so it may from now on. A GPU reaches
    /// itself.
    ///
    /// # Errors
    /// The driver refuses what it said it could.
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
            // SAFETY: both contexts are held.
            match unsafe { cuCtxEnablePeerAccess(other.raw(), 0) } {
                CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
                code => code.of("cuCtxEnablePeerAccess").map(|()| true),
            }
        })
    }

    /// Does `what` with this context current, and leaves the thread's own as it was: what is dropped may be another GPU's.
    pub(super) fn within<T>(&self, what: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        // SAFETY: the context is held until `self` is gone.
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

    pub(super) fn places(&self) -> &Places {
        &self.places
    }
}
