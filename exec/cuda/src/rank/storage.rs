//! Accesses a rank's buffers by content, and the arenas of its micro-batches.

use std::ops::Range;

use lockstep_exec::device::{DeviceError, Storage, TensorAddress, Values};
use lockstep_models::Buffer;
use lockstep_topology::Dtype;

use super::Rank;
use super::numbers::{activations, floats};
use super::streams::StreamRole;
use crate::{Activation, ViewMut};

impl<A: Activation> Storage for Rank<A> {
    fn read(&mut self, values: Values) -> Result<Vec<f32>, DeviceError> {
        self.quiesce()?;
        let all = self.values(values).all().view();
        Ok(floats(&self.fetch(all)?))
    }

    fn write(&mut self, values: Values, content: &[f32]) -> Result<(), DeviceError> {
        self.quiesce()?;
        let content: Vec<u8> = content.iter().flat_map(|value| value.to_le_bytes()).collect();
        let held = self.values(values);
        self.streams.get(StreamRole::Compute).write(held.memory(), 0, &content)?;
        Ok(())
    }

    fn write_bytes(&mut self, buffer: Buffer, content: &[u8]) -> Result<(), DeviceError> {
        self.quiesce()?;
        let held = self.held(buffer);
        self.streams.get(StreamRole::Compute).write(held.memory(), 0, content)?;
        Ok(())
    }

    fn assign(&mut self, to: Buffer, from: Buffer) -> Result<(), DeviceError> {
        self.quiesce()?;
        let (to, from) = (self.held(to).all(), self.held(from).all());
        let bytes = Dtype::F32.bytes(to.elements().min(from.elements()));
        // SAFETY: both are this rank's, with at least that many bytes, and are two buffers.
        unsafe { self.streams.give(StreamRole::Compute).copy(to.address(), from.address(), bytes) }
    }

    fn tensor(&mut self, place: &TensorAddress) -> Result<Vec<f32>, DeviceError> {
        let view = self.view(place, ViewMut::new(0, 0))?.view();
        Ok(activations(&self.fetch(view)?, A::SCALAR))
    }

    fn forget(&mut self, ranges: &[Range<usize>]) -> Result<(), DeviceError> {
        if !self.poison || self.at_hand().arena.is_none() {
            return Ok(());
        }
        if ranges.iter().all(Range::is_empty) {
            return Ok(());
        }
        self.flush()?;
        let (arena, stream) = (self.arena()?, self.streams.give(StreamRole::Compute));
        for range in ranges {
            // SAFETY: the ranges are the plan's, within the arena, and no kernel reads them any more.
            unsafe { stream.fill(arena + range.start as u64, 0xff, range.len() as u64) }?;
        }
        Ok(())
    }

    fn turn_to_context(&mut self, context: usize) -> Result<(), DeviceError> {
        self.turn(context);
        Ok(())
    }

    fn release(&mut self) {
        self.give_back();
    }

    fn scratch_bytes(&mut self) -> (usize, usize) {
        let executor = self.graphs.executor();
        let kept: u64 = self.in_flight.iter().map(|of| of.kept.bytes()).sum();
        let scratch = self.scratch.bytes() + kept + executor.workspace_bytes();
        (self.arena_bytes() as usize, scratch as usize)
    }
}
