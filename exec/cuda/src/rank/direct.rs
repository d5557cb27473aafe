//! Times messages directly into a GPU's memory, as in a run: from the host's call until the host sees completion.

use std::time::Instant;

use lockstep_exec::device::{DeviceError, Devices};
use lockstep_exec::transport::{Combine, Port};
use lockstep_topology::Dtype;

use super::gpus::Gpu;
use super::{GpuPort, Gpus};
use crate::driver::{Fill, GpuMemory};

/// Times of such messages, in seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Direct {
    /// Of one element, for each repetition.
    pub small: Vec<f64>,
    /// Per byte of a large message that is copied, for each repetition.
    pub copy: Vec<f64>,
    /// The same for a message that is added.
    pub sum: Vec<f64>,
}

impl Gpus {
    /// Times messages of `bytes` bytes from the next GPU, `repetitions` times after one warm-up. `None` where a run
    /// would not send them: there is no other GPU, or some cannot access each other.
    ///
    /// # Errors
    /// Too little memory on a GPU, or a lost GPU.
    pub fn direct(&self, ordinal: u32, bytes: u64, repetitions: u32) -> Result<Option<Direct>, DeviceError> {
        if self.count() < 2 || !self.reach(&mut (0..self.count() as u32))? {
            return Ok(None);
        }
        let [here, there] = [ordinal, ordinal + 1].map(|rank| self.of(rank));
        let memory = |gpu: &Gpu, what| GpuMemory::new(&gpu.context, what, bytes.max(Dtype::F32.bytes(1)), Fill::Zeros);
        let (to, from) = (memory(here, "the target of messages")?, memory(there, "the source of messages")?);
        let [port, sender] = [here, there].map(|gpu| GpuPort::new(&gpu.modules, &gpu.taken));
        let (port, sender) = (port?, sender?);
        let take = |elements: u64, how: Combine| -> Result<f64, DeviceError> {
            let begun = Instant::now();
            // SAFETY: both have that many elements and no other user; the GPUs can access each other.
            unsafe { port.take(to.address(), (&sender, from.address()), (elements as usize, Dtype::F32), how) }?;
            Ok(begun.elapsed().as_secs_f64())
        };
        let elements = bytes.div_ceil(Dtype::F32.bytes(1)).max(1);
        let mut found = Direct::default();
        for repetition in 0..=repetitions {
            let small = take(1, Combine::Copy)?;
            let rate = |seconds: f64| seconds / Dtype::F32.bytes(elements) as f64;
            let (copy, sum) = (rate(take(elements, Combine::Copy)?), rate(take(elements, Combine::Sum)?));
            if repetition > 0 {
                found.small.push(small);
                found.copy.push(copy);
                found.sum.push(sum);
            }
        }
        Ok(Some(found))
    }
}
