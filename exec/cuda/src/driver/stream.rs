//! Streams and events: what is in order on a device, and what waits for what.

use std::sync::Arc;

use cudarc::driver::result::{event, stream};
use cudarc::driver::sys::{CUevent_flags, CUstream};
use cudarc::driver::{CudaEvent, CudaStream};
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
    cuda: Arc<CudaStream>,
}

impl Stream {
    /// A stream of the context's device.
    ///
    /// # Errors
    /// The device is lost, or has no more of them.
    pub fn new(context: &Arc<Context>, priority: Priority) -> Result<Stream, DeviceError> {
        let cuda = context.within(|| {
            let (least, greatest) = stream::get_priority_range().of("cuCtxGetStreamPriorityRange")?;
            let priority = if priority == Priority::High { greatest } else { least };
            context.cuda().new_stream_with_priority(priority).of("cuStreamCreateWithPriority")
        })?;
        Ok(Stream { context: Arc::clone(context), cuda })
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
        self.cuda.wait(&event.cuda).of("cuStreamWaitEvent")
    }

    /// Waits until everything given so far is done.
    ///
    /// # Errors
    /// The device is lost: something given earlier failed.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.cuda.synchronize().of("cuStreamSynchronize")
    }

    pub(super) fn raw(&self) -> CUstream {
        self.cuda.cu_stream()
    }

    pub(super) fn cuda(&self) -> &Arc<CudaStream> {
        &self.cuda
    }
}

/// A place in a stream's work.
#[derive(Debug)]
pub struct Event {
    cuda: CudaEvent,
}

impl Event {
    /// An event; only a `timed` one can be asked for what lies between it and another, and the others cost less.
    ///
    /// # Errors
    /// The device is lost.
    pub fn new(context: &Arc<Context>, timed: bool) -> Result<Event, DeviceError> {
        let flags = if timed { CUevent_flags::CU_EVENT_DEFAULT } else { CUevent_flags::CU_EVENT_DISABLE_TIMING };
        context.cuda().new_event(Some(flags)).of("cuEventCreate").map(|cuda| Event { cuda })
    }

    /// Puts it behind everything that `stream` has been given; where it was before does not count any more.
    ///
    /// # Errors
    /// The device is lost.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.cuda.record(&stream.cuda).of("cuEventRecord")
    }

    /// Whether what came before it is done; so it is where it was never recorded.
    ///
    /// # Errors
    /// The device is lost.
    pub fn finished(&self) -> Result<bool, DeviceError> {
        self.cuda.try_is_complete().of("cuEventQuery")
    }

    /// Waits until what came before it is done.
    ///
    /// # Errors
    /// The device is lost.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.cuda.synchronize().of("cuEventSynchronize")
    }

    /// Seconds from `earlier` to it, to half a microsecond.
    ///
    /// # Errors
    /// One of them is not timed, was not recorded or is not done yet; the device is lost.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64, DeviceError> {
        // cudarc's own way waits for both first.
        // SAFETY: both events are alive.
        let milliseconds = unsafe { event::elapsed(earlier.cuda.cu_event(), self.cuda.cu_event()) };
        let milliseconds = milliseconds.of("cuEventElapsedTime")?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}
