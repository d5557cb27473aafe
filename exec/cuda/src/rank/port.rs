//! Receives messages in a GPU's memory: the receiver's GPU copies or sums directly from the sender's.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_exec::device::DeviceError;
use lockstep_exec::transport::{Combine, Port};
use lockstep_topology::Dtype;

use crate::driver::{Context, GpuStream, Modules, Priority};
use crate::kernel::KernelLaunch;
use crate::table::AddInto;
use crate::{View, ViewMut};

/// A rank's endpoint.
#[derive(Debug)]
pub(super) struct GpuPort {
    stream: GpuStream,
    modules: Arc<Modules>,
    /// Messages received.
    taken: Arc<AtomicU64>,
}

impl GpuPort {
    pub(super) fn new(modules: &Arc<Modules>, taken: &Arc<AtomicU64>) -> Result<GpuPort, DeviceError> {
        let stream = GpuStream::new(modules.context(), Priority::High)?;
        Ok(GpuPort { stream, modules: Arc::clone(modules), taken: Arc::clone(taken) })
    }

    fn context(&self) -> &Context {
        self.stream.context()
    }
}

impl Port for GpuPort {
    fn bind(&self) -> Result<(), DeviceError> {
        self.context().bind()
    }

    fn count(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes some microseconds.
    unsafe fn take(
        &self,
        to: u64,
        (sender, from): (&dyn Port, u64),
        (elements, dtype): (usize, Dtype),
        how: Combine,
    ) -> Result<(), DeviceError> {
        let Some(sender) = (sender as &dyn Any).downcast_ref::<GpuPort>() else {
            let reason = "its sender's memory is on a device of another kind".to_owned();
            return Err(DeviceError::Refused { call: "a message".to_owned(), reason });
        };
        self.context().bind()?;
        let elements = elements as u64;
        match how {
            Combine::Copy if to == from => return Ok(()),
            // SAFETY: as the caller promises.
            Combine::Copy => unsafe { self.stream.fetch(to, sender.context(), from, dtype.bytes(elements)) }?,
            Combine::Sum if elements == 0 => return Ok(()),
            Combine::Sum if dtype != Dtype::F32 => {
                let reason = format!("GPUs add messages of fp32, not of {dtype}");
                return Err(DeviceError::Refused { call: "a message".to_owned(), reason });
            }
            Combine::Sum => {
                let (a, b) = (ViewMut::new(to, elements), View::new(from, elements));
                // SAFETY: as the caller promises.
                unsafe { self.modules.launch(&self.stream, &AddInto { a, b, elements }.call()) }?;
            }
        }
        self.stream.synchronize()
    }
}
