//! Wraps streams and events: the order of work on a device, and dependencies between streams.

use std::sync::Arc;

use cudarc::driver::result::{event, stream};
use cudarc::driver::sys::{CUevent_flags, CUstream};
use cudarc::driver::{CudaEvent, CudaStream};
use lockstep_exec::device::DeviceError;

use super::context::Context;
use super::status::Status;

/// The scheduling priority of a stream's blocks where several streams have some ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// The default.
    #[default]
    Usual,
    /// Before the others: for work that many wait for, such as a collective.
    High,
}

/// Ordered work. It does not wait for the default stream.
#[derive(Debug)]
pub struct GpuStream {
    context: Arc<Context>,
    cuda: Arc<CudaStream>,
}

impl GpuStream {
    /// A stream of the context's device.
    ///
    /// # Errors
    /// The device is lost, or has no streams left.
    pub fn new(context: &Arc<Context>, priority: Priority) -> Result<GpuStream, DeviceError> {
        let cuda = context.within(|| {
            let (least, greatest) = stream::get_priority_range().of("cuCtxGetStreamPriorityRange")?;
            let priority = if priority == Priority::High { greatest } else { least };
            context.cuda().new_stream_with_priority(priority).of("cuStreamCreateWithPriority")
        })?;
        Ok(GpuStream { context: Arc::clone(context), cuda })
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Makes later work here wait for the work before `event`'s last record; no wait if it was never recorded.
    ///
    /// # Errors
    /// The device is lost.
    pub fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        self.cuda.wait(&event.cuda).of("cuStreamWaitEvent")
    }

    /// Waits until all submitted work is done.
    ///
    /// # Errors
    /// The device is lost: earlier work failed.
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

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event {
    cuda: CudaEvent,
}

impl Event {
    /// An event; only a `timed` one can measure times between events, and the others cost less.
    ///
    /// # Errors
    /// The device is lost.
    pub fn new(context: &Arc<Context>, timed: bool) -> Result<Event, DeviceError> {
        let flags = if timed { CUevent_flags::CU_EVENT_DEFAULT } else { CUevent_flags::CU_EVENT_DISABLE_TIMING };
        context.cuda().new_event(Some(flags)).of("cuEventCreate").map(|cuda| Event { cuda })
    }

    /// Moves it to after all work submitted to `stream`; its earlier record no longer counts.
    ///
    /// # Errors
    /// The device is lost.
    pub fn record(&self, stream: &GpuStream) -> Result<(), DeviceError> {
        self.cuda.record(&stream.cuda).of("cuEventRecord")
    }

    /// Whether the work before it is done; true if it was never recorded.
    ///
    /// # Errors
    /// The device is lost.
    pub fn finished(&self) -> Result<bool, DeviceError> {
        self.cuda.try_is_complete().of("cuEventQuery")
    }

    /// Waits until the work before it is done.
    ///
    /// # Errors
    /// The device is lost.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.cuda.synchronize().of("cuEventSynchronize")
    }

    /// Seconds from `earlier` to it, to half a microsecond.
    ///
    /// # Errors
    /// One of them is not timed, not recorded or not done yet; the device is lost.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64, DeviceError> {
        // cudarc's own function waits for both first.
        // SAFETY: both events are alive.
        let milliseconds = unsafe { event::elapsed(earlier.cuda.cu_event(), self.cuda.cu_event()) };
        let milliseconds = milliseconds.of("cuEventElapsedTime")?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}
