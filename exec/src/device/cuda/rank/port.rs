//! Where messages reach a GPU's own memory: copies and sums by the receiver's GPU, straight out of the sender's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::driver::{Context, Modules, Priority, Stream};
use super::super::table::{AddInto, Launch};
use super::super::{View, ViewMut};
use super::ELEMENT;
use crate::device::DeviceError;
use crate::transport::Combine;

/// A rank's.
#[derive(Debug)]
pub(crate) struct Port {
    stream: Stream,
    modules: Arc<Modules>,
    /// Messages that have come to it.
    taken: Arc<AtomicU64>,
}

impl Port {
    pub(super) fn new(modules: &Arc<Modules>, taken: &Arc<AtomicU64>) -> Result<Port, DeviceError> {
        let stream = Stream::new(modules.context(), Priority::High)?;
        Ok(Port { stream, modules: Arc::clone(modules), taken: Arc::clone(taken) })
    }

    fn context(&self) -> &Context {
        self.stream.context()
    }

    /// Makes its GPU the one that libraries on this thread take addresses to be of.
    ///
    /// # Errors
    /// The GPU is lost.
    #[cfg(feature = "mpi")]
    pub(crate) fn bind(&self) -> Result<(), DeviceError> {
        self.context().bind()
    }

    /// Notes a message to this GPU's memory.
    pub(crate) fn count(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Copies `elements` numbers at `from` on the sender's GPU to `to` on this one, or adds them there, as the host would: each sum is
    /// rounded once. Returns when it is done, some microseconds later, so that the sender's memory is free again.
    ///
    /// # Errors
    /// A device is lost.
    ///
    /// # Safety
    /// As many are at both places, those at `from` are not written meanwhile, and nobody else touches those at `to`; this GPU reaches
    /// the sender's ([`Context::reach`]).
    pub(crate) unsafe fn take(
        &self,
        to: u64,
        (sender, from): (&Port, u64),
        elements: usize,
        how: Combine,
    ) -> Result<(), DeviceError> {
        self.context().bind()?;
        let elements = elements as u64;
        match how {
            Combine::Copy if to == from => return Ok(()),
            // SAFETY: as the caller says.
            Combine::Copy => unsafe { self.stream.fetch(to, sender.context(), from, elements * ELEMENT) }?,
            Combine::Sum if elements == 0 => return Ok(()),
            Combine::Sum => {
                let (a, b) = (ViewMut::new(to, elements), View::new(from, elements));
                // SAFETY: as the caller says.
                unsafe { self.modules.launch(&self.stream, &AddInto { a, b, elements }.call()) }?;
            }
        }
        self.stream.synchronize()
    }
}
