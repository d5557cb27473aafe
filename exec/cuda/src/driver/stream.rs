//! Streams and events: what is in order on a device, and what waits for what.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags, cuCtxGetStreamPriorityRange, cuEventCreate,
    cuEventDestroy_v2, cuEventElapsedTime_v2, cuEventQuery, cuEventRecord, cuEventSynchronize,
    cuStreamCreateWithPriority, cuStreamDestroy_v2, cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
};
use lockstep_exec::device::DeviceError;

use super::context::Context;
use super::status::Status;

/// Which streams' blocks go first where several have some ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// As most.
    #[default]
    Usual,
    /// Before the others: what many wait for, as a collective.
    High,
}

/// Work in order. It does not wait for the default stream.
#[derive(Debug)]
pub struct Stream {
    context: Arc<Context>,
    raw: CUstream,
}

// SAFETY: the driver's calls on a stream may come from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; what several threads give is in the order in which the driver takes it.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream of the context's device.
    ///
    /// # Errors
    /// The device is lost, or has no more of them.
    pub fn new(context: &Arc<Context>, priority: Priority) -> Result<Stream, DeviceError> {
        let raw = context.within(|| {
            let (mut least, mut greatest, mut raw) = (0, 0, std::ptr::null_mut());
            // SAFETY: both numbers outlive the call.
            unsafe { cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }.of("cuCtxGetStreamPriorityRange")?;
            let priority = if priority == Priority::High { greatest } else { least };
            let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the address outlives the call.
            unsafe { cuStreamCreateWithPriority(&mut raw, flags, priority) }.of("cuStreamCreateWithPriority")?;
            Ok(raw)
        })?;
        Ok(Stream { context: Arc::clone(context), raw })
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What follows here begins when what came before `event`'s last record is done; at once, if it never was recorded.
    ///
    /// # Errors
    /// The device is lost.
    pub fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        // SAFETY: both are alive.
        unsafe { cuStreamWaitEvent(self.raw, event.raw, 0) }.of("cuStreamWaitEvent")
    }

    /// Whether everything given so far is done.
    ///
    /// # Errors
    /// The device is lost: something given earlier failed.
    pub fn finished(&self) -> Result<bool, DeviceError> {
        // SAFETY: the stream is alive.
        ready(unsafe { cuStreamQuery(self.raw) }, "cuStreamQuery")
    }

    /// Waits until everything given so far is done.
    ///
    /// # Errors
    /// The device is lost: something given earlier failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream is alive.
        unsafe { cuStreamSynchronize(self.raw) }.of("cuStreamSynchronize")
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: nobody else has it. The driver ends what is still on it first; a lost device has nothing to give back.
        let _ = self.context.within(|| unsafe { cuStreamDestroy_v2(raw) }.of("cuStreamDestroy"));
    }
}

/// A place in a stream's work.
#[derive(Debug)]
pub struct Event {
    context: Arc<Context>,
    raw: CUevent,
}

// SAFETY: the driver's calls on an event may come from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event; only a `timed` one can be asked for what lies between it and another, and the others cost less.
    ///
    /// # Errors
    /// The device is lost.
    pub fn new(context: &Arc<Context>, timed: bool) -> Result<Event, DeviceError> {
        let flags = if timed { CUevent_flags::CU_EVENT_DEFAULT } else { CUevent_flags::CU_EVENT_DISABLE_TIMING };
        let raw = context.within(|| {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the address outlives the call.
            unsafe { cuEventCreate(&mut raw, flags as u32) }.of("cuEventCreate")?;
            Ok(raw)
        })?;
        Ok(Event { context: Arc::clone(context), raw })
    }

    /// Puts it behind everything that `stream` has been given; where it was before does not count any more.
    ///
    /// # Errors
    /// The device is lost.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both are alive.
        unsafe { cuEventRecord(self.raw, stream.raw) }.of("cuEventRecord")
    }

    /// Whether what came before it is done; so it is where it was never recorded.
    ///
    /// # Errors
    /// The device is lost.
    pub fn finished(&self) -> Result<bool, DeviceError> {
        // SAFETY: the event is alive.
        ready(unsafe { cuEventQuery(self.raw) }, "cuEventQuery")
    }

    /// Waits until what came before it is done.
    ///
    /// # Errors
    /// The device is lost.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        // SAFETY: the event is alive.
        unsafe { cuEventSynchronize(self.raw) }.of("cuEventSynchronize")
    }

    /// Seconds from `earlier` to it, to half a microsecond.
    ///
    /// # Errors
    /// One of them is not timed, was not recorded or is not done yet; the device is lost.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64, DeviceError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive, and the number outlives the call.
        unsafe { cuEventElapsedTime_v2(&mut milliseconds, earlier.raw, self.raw) }.of("cuEventElapsedTime")?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let raw = self.raw;
        // SAFETY: nobody else has it; what waits for it still does. A lost device has nothing to give back.
        let _ = self.context.within(|| unsafe { cuEventDestroy_v2(raw) }.of("cuEventDestroy"));
    }
}

fn ready(code: CUresult, call: &str) -> Result<bool, DeviceError> {
    match code {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        code => code.of(call).map(|()| true),
    }
}
