//! Implements a rank's marks and iterations on its GPU's clock.

use lockstep_exec::device::{Clock, DeviceError, IterationResults, Mark};

use super::Rank;
use super::streams::StreamRole;
use crate::Activation;
use crate::driver::{Fill, GpuMemory};

/// Bytes of a fill that delays a device: more than its caches hold, so that one fill takes tens of microseconds.
const BALLAST: u64 = 64 << 20;

impl<A: Activation> Clock for Rank<A> {
    fn is_asynchronous(&self) -> bool {
        true
    }

    fn delay(&mut self, times: u32) -> Result<(), DeviceError> {
        self.flush()?;
        let memory = match self.ballast.take() {
            Some(memory) => memory,
            None => GpuMemory::new(&self.gpu.context, "what delays a device", BALLAST, Fill::Poison)?,
        };
        let (address, bytes) = (memory.address(), memory.bytes());
        self.ballast = Some(memory);
        let stream = self.streams.give(StreamRole::Compute);
        for _ in 0..times {
            // SAFETY: the memory is this rank's, and no kernel reads it.
            unsafe { stream.fill(address, 0, bytes) }?;
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<Mark, DeviceError> {
        // The deferred launch belongs to the next chain, marked or not: times are those of a step without marks.
        self.give_gathered()?;
        self.outstanding.mark(&mut self.streams)
    }

    fn end_iteration(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        self.outstanding.end_iteration(&mut self.streams)
    }

    fn finished_iteration(&mut self) -> Result<Option<IterationResults>, DeviceError> {
        self.gpu.context.bind()?;
        self.outstanding.finished_iteration()
    }
}
