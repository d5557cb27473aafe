//! Holds the state of a micro-batch in flight on a GPU: its arena, and what kernels keep for it.
//!
//! A rank has one, whose arena learners of the GPU use in turn; a pipeline stage has several, each with a fixed arena,
//! so that the commands of its passes are the same in every step.

use lockstep_exec::device::{Blueprint, DeviceError};

use super::calls::Share;
use super::chains::chains;
use super::gpus::{Gpu, Lent};
use super::streams::{StreamRole, Streams};
use super::{Chain, Rank};
use crate::Activation;
use crate::driver::{Fill, GpuMemory};
use crate::layers::TensorForm;

/// One micro-batch in flight.
pub(super) struct InFlight<A> {
    pub(super) chains: Vec<Chain<A>>,
    /// What kernels keep between passes.
    pub(super) kept: GpuMemory,
    /// Its arena, while it has one.
    pub(super) arena: Option<Lent>,
    preferred: Option<usize>,
}

impl<A: Activation> InFlight<A> {
    /// One without an arena, whose kernels keep `kept` bytes.
    pub(super) fn new(gpu: &Gpu, of: &Blueprint<'_>, form: TensorForm, kept: u64) -> Result<InFlight<A>, DeviceError> {
        let kept = GpuMemory::new(&gpu.context, "what kernels keep", kept, Fill::Poison)?;
        let (chains, _) = chains(of, form, Share::all(of), kept.address())?;
        Ok(InFlight { chains, kept, arena: None, preferred: None })
    }

    /// Takes an arena of `bytes` bytes, filled with NaN if `poison`.
    pub(super) fn take(
        &mut self,
        gpu: &Gpu,
        streams: &mut Streams,
        bytes: u64,
        poison: bool,
    ) -> Result<(), DeviceError> {
        let lent = gpu.lend(bytes, self.preferred)?;
        let stream = streams.give(StreamRole::Compute);
        stream.wait(&lent.free)?;
        if poison {
            // SAFETY: it is this rank's from here on, after the work of its previous user.
            unsafe { stream.fill(lent.memory.address(), 0xff, lent.memory.bytes()) }?;
        }
        self.preferred = Some(lent.number);
        self.arena = Some(lent);
        Ok(())
    }
}

impl<A: Activation> Rank<A> {
    /// The current micro-batch.
    pub(super) fn at_hand(&self) -> &InFlight<A> {
        &self.in_flight[self.at]
    }

    /// Switches to another micro-batch.
    pub(super) fn turn(&mut self, to: usize) {
        // The deferred launch belongs to the previous one.
        self.gather();
        self.at = to;
        self.samples.turn(to);
    }

    /// The address of the current micro-batch's arena, taken if there is none.
    pub(super) fn arena(&mut self) -> Result<u64, DeviceError> {
        if self.at_hand().arena.is_none() {
            self.flush()?;
            let bytes = self.arena_bytes();
            self.in_flight[self.at].take(&self.gpu, &mut self.streams, bytes, self.poison)?;
        }
        Ok(self.at_hand().arena.as_ref().map_or(0, |lent| lent.memory.address()))
    }

    /// Bytes of an arena.
    pub(super) fn arena_bytes(&self) -> u64 {
        self.arena_bytes
    }

    /// Returns the arena where other learners may take it.
    pub(super) fn give_back(&mut self) {
        if self.in_flight.len() > 1 {
            return;
        }
        let Some(lent) = self.in_flight[self.at].arena.take() else { return };
        // If this fails the device is lost, as the next call reports.
        let behind = self.flush().and_then(|()| lent.free.record(self.streams.get(StreamRole::Compute)));
        if behind.is_ok() {
            self.gpu.take_back(lent);
        }
    }
}
