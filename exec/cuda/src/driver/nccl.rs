//! Sums among GPUs by NCCL, with one communicator for each group of ranks.
//!
//! No call blocks: communicators are non-blocking, so an operation may continue after its call returns, and
//! [`Communicator::is_ready`] reports when it is over. A waiting caller can check the clock and give up. cudarc's safe
//! communicators block inside calls.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::nccl::sys::{
    ncclAllReduce, ncclComm_t, ncclCommAbort, ncclCommDestroy, ncclCommFinalize, ncclCommGetAsyncError,
    ncclCommInitRankConfig, ncclDataType_t, ncclGetErrorString, ncclGetUniqueId, ncclRedOp_t, ncclResult_t,
    ncclUniqueId,
};
use lockstep_exec::device::{DeviceError, GroupId};

use super::context::Context;
use super::status::refused_or_lost;
use super::stream::GpuStream;

/// `ncclConfig_t` as of NCCL 2.14, whose fields all later versions know; their additional fields then have defaults.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    /// Explicit padding: later versions have a field here, which this value leaves undefined in their sense.
    rest: c_int,
}

const CONFIG: Config =
    Config { size: size_of::<Config>(), magic: 0xcafe_beef, version: 21_400, blocking: 0, rest: c_int::MIN };

/// A rank's membership in a group of GPUs; aborted when dropped, whatever it is doing.
#[derive(Debug)]
pub struct Communicator {
    context: Arc<Context>,
    raw: ncclComm_t,
}

// SAFETY: NCCL's calls on a communicator may come from any thread, one at a time.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Creates the identifier of a new group, by which its members find each other.
    ///
    /// # Errors
    /// NCCL finds no network to the other members.
    pub fn id(context: &Context) -> Result<GroupId, DeviceError> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: the id outlives the call.
        context.within(|| done(unsafe { ncclGetUniqueId(&mut id) }, "ncclGetUniqueId"))?;
        Ok(GroupId(id.internal.map(|byte| byte as u8)))
    }

    /// Starts to join a group as number `member` of `members`; ready when all have joined.
    ///
    /// # Errors
    /// NCCL refuses: its message, and for two ranks on one GPU the cure.
    pub fn begin(context: &Arc<Context>, id: &GroupId, member: u32, members: u32) -> Result<Communicator, DeviceError> {
        let mut raw = std::ptr::null_mut();
        let id = ncclUniqueId { internal: id.0.map(|byte| byte as std::ffi::c_char) };
        let mut config = CONFIG;
        let config = (&raw mut config).cast();
        context.within(|| {
            // SAFETY: the address and the configuration outlive the call.
            let code = unsafe { ncclCommInitRankConfig(&mut raw, members as c_int, id, member as c_int, config) };
            done(code, "ncclCommInitRankConfig")
        })?;
        Ok(Communicator { context: Arc::clone(context), raw })
    }

    /// Whether the last operation is over: all members have joined, or the sum has been enqueued on its stream.
    ///
    /// # Errors
    /// A failure since, here or on another member's GPU.
    pub fn is_ready(&self) -> Result<bool, DeviceError> {
        let mut code = ncclResult_t::ncclSuccess;
        self.context.within(|| {
            // SAFETY: the communicator is alive, and the status outlives the call.
            done(unsafe { ncclCommGetAsyncError(self.raw, &mut code) }, "ncclCommGetAsyncError")?;
            done(code, "a collective of NCCL")
        })?;
        Ok(code != ncclResult_t::ncclInProgress)
    }

    /// Sums `elements` fp32 numbers at `address` over the members, in stream order; each member gets the sum in place.
    /// The sum is enqueued on the stream once the communicator is ready.
    ///
    /// # Errors
    /// NCCL refuses, or the device is lost.
    ///
    /// # Safety
    /// There are that many elements, and they are not otherwise accessed until the sum is done.
    pub unsafe fn sum(&self, stream: &GpuStream, address: u64, elements: u64) -> Result<(), DeviceError> {
        let to = address as *mut c_void;
        let (kind, sum) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        self.context.within(|| {
            // SAFETY: as the caller promises; communicator and stream are alive.
            let code = unsafe {
                ncclAllReduce(to.cast_const(), to, elements as usize, kind, sum, self.raw, stream.raw().cast())
            };
            done(code, "ncclAllReduce")
        })
    }

    /// Starts to leave the group; ready when all members have done so.
    ///
    /// # Errors
    /// NCCL errors.
    pub fn finish(&self) -> Result<(), DeviceError> {
        // SAFETY: the communicator is alive.
        self.context.within(|| done(unsafe { ncclCommFinalize(self.raw) }, "ncclCommFinalize"))
    }

    /// Frees the communicator, once it has left the group.
    ///
    /// # Errors
    /// NCCL errors.
    pub fn close(mut self) -> Result<(), DeviceError> {
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        // SAFETY: it has no other owner.
        self.context.within(|| done(unsafe { ncclCommDestroy(raw) }, "ncclCommDestroy"))
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let raw = self.raw;
            // SAFETY: it has no other owner. Pending operations are aborted, so that their stream continues.
            let _ = self.context.within(|| done(unsafe { ncclCommAbort(raw) }, "ncclCommAbort"));
        }
    }
}

/// A call that continues asynchronously has not failed.
fn done(code: ncclResult_t, call: &str) -> Result<(), DeviceError> {
    if matches!(code, ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress) {
        return Ok(());
    }
    // SAFETY: NCCL returns a static text for each of its codes.
    let text = unsafe { CStr::from_ptr(ncclGetErrorString(code)) }.to_string_lossy();
    let cure = if code == ncclResult_t::ncclInvalidUsage {
        "; each rank needs its own GPU: use fewer ranks, or an algorithm of lockstep's own, such as ring"
    } else {
        "; NCCL_DEBUG=WARN lets it say more"
    };
    Err(refused_or_lost(call, false, format!("{code:?} ({text}){cure}")))
}
