//! NCCL: sums among GPUs by NVIDIA's own library, with one communicator for each group of ranks.
//!
//! No call waits here: communicators are not blocking, so a call may go on after it has returned, and [`Communicator::settled`]
//! says when it is over. So whoever waits can look at the clock meanwhile and give up. cudarc's safe communicators wait inside of calls.

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
use super::stream::Stream;

/// `ncclConfig_t` as it was in NCCL 2.14, whose fields all later versions know; what they have beside is as usual then.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    /// Bytes that the compiler would leave open: later versions have a field here, which so is undefined in their sense.
    rest: c_int,
}

const CONFIG: Config =
    Config { size: size_of::<Config>(), magic: 0xcafe_beef, version: 21_400, blocking: 0, rest: c_int::MIN };

/// A rank's end of a group of GPUs; given up when dropped, whatever it does.
#[derive(Debug)]
pub struct Communicator {
    context: Arc<Context>,
    raw: ncclComm_t,
}

// SAFETY: NCCL's calls on a communicator may come from any thread, one at a time.
unsafe impl Send for Communicator {}

impl Communicator {
    /// What the members of a group, which is new, know each other by.
    ///
    /// # Errors
    /// NCCL does not find a way to the other members.
    pub fn id(context: &Context) -> Result<GroupId, DeviceError> {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: the id outlives the call.
        context.within(|| done(unsafe { ncclGetUniqueId(&mut id) }, "ncclGetUniqueId"))?;
        Ok(GroupId(id.internal.map(|byte| byte as u8)))
    }

    /// Begins to meet the others as number `member` of `members`; settled when all are there.
    ///
    /// # Errors
    /// NCCL refuses: its word for it, and for two ranks on one GPU the cure.
    pub fn begin(context: &Arc<Context>, id: &GroupId, member: u32, members: u32) -> Result<Communicator, DeviceError> {
        let mut raw = std::ptr::null_mut();
        let id = ncclUniqueId { internal: id.0.map(|byte| byte as std::ffi::c_char) };
        let mut config = CONFIG;
        let config = (&raw mut config).cast();
        context.within(|| {
            // SAFETY: the address and the settings outlive the call.
            let code = unsafe { ncclCommInitRankConfig(&mut raw, members as c_int, id, member as c_int, config) };
            done(code, "ncclCommInitRankConfig")
        })?;
        Ok(Communicator { context: Arc::clone(context), raw })
    }

    /// Whether the call that was made last is over: all members are there, or the sum has been given to its stream.
    ///
    /// # Errors
    /// What failed since, here or on another member's GPU.
    pub fn settled(&self) -> Result<bool, DeviceError> {
        let mut code = ncclResult_t::ncclSuccess;
        self.context.within(|| {
            // SAFETY: the communicator is alive, and the answer outlives the call.
            done(unsafe { ncclCommGetAsyncError(self.raw, &mut code) }, "ncclCommGetAsyncError")?;
            done(code, "a collective of NCCL")
        })?;
        Ok(code != ncclResult_t::ncclInProgress)
    }

    /// Adds up `elements` fp32 numbers at `address` over the members, in the stream's order; each gets the sum there. It is in the
    /// stream when the communicator is settled.
    ///
    /// # Errors
    /// NCCL refuses, or the device is lost.
    ///
    /// # Safety
    /// As many elements are there, and nobody else touches them until the stream has come to it.
    pub unsafe fn sum(&self, stream: &Stream, address: u64, elements: u64) -> Result<(), DeviceError> {
        let to = address as *mut c_void;
        let (kind, sum) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
        self.context.within(|| {
            // SAFETY: as the caller says; communicator and stream are alive.
            let code = unsafe {
                ncclAllReduce(to.cast_const(), to, elements as usize, kind, sum, self.raw, stream.raw().cast())
            };
            done(code, "ncclAllReduce")
        })
    }

    /// Begins to take leave of the others; settled when all have come so far.
    ///
    /// # Errors
    /// NCCL's.
    pub fn finish(&self) -> Result<(), DeviceError> {
        // SAFETY: the communicator is alive.
        self.context.within(|| done(unsafe { ncclCommFinalize(self.raw) }, "ncclCommFinalize"))
    }

    /// Gives back what it has, once leave is taken.
    ///
    /// # Errors
    /// NCCL's.
    pub fn close(mut self) -> Result<(), DeviceError> {
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        // SAFETY: nobody else has it, and nobody will.
        self.context.within(|| done(unsafe { ncclCommDestroy(raw) }, "ncclCommDestroy"))
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            let raw = self.raw;
            // SAFETY: nobody else has it. What is on its way ends, done or not, so that its stream goes on.
            let _ = self.context.within(|| done(unsafe { ncclCommAbort(raw) }, "ncclCommAbort"));
        }
    }
}

/// A call that goes on behind its caller's back has not failed.
fn done(code: ncclResult_t, call: &str) -> Result<(), DeviceError> {
    if matches!(code, ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress) {
        return Ok(());
    }
    // SAFETY: NCCL gives a text that stays, for each of its codes.
    let text = unsafe { CStr::from_ptr(ncclGetErrorString(code)) }.to_string_lossy();
    let cure = if code == ncclResult_t::ncclInvalidUsage {
        "; each rank needs a GPU of its own: take fewer ranks, or an algorithm of lockstep's own, such as ring"
    } else {
        "; NCCL_DEBUG=WARN lets it say more"
    };
    Err(refused_or_lost(call, false, format!("{code:?} ({text}){cure}")))
}
