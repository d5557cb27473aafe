//! Stages ranges of a rank's buffers for messages and for groups that sum by NCCL.

use std::ops::Range;

use lockstep_exec::Arena;
use lockstep_exec::device::{Arrival, DeviceError, GroupId, Groups, Staging};
use lockstep_exec::transport::RegionMut;
use lockstep_models::Buffer;
use lockstep_topology::Dtype;

use super::Rank;
use super::streams::StreamRole;
use crate::Activation;
use crate::driver::{Communicator, Fill, GpuMemory};

impl<A: Activation> Staging for Rank<A> {
    fn host(&mut self, buffer: Buffer) -> Result<&Arena, DeviceError> {
        self.held_mut(buffer).host()
    }

    fn copy_to_host(&mut self, buffer: Buffer, range: Range<usize>) -> Result<Option<Arrival>, DeviceError> {
        self.flush()?;
        self.streams.order(StreamRole::Out, &[StreamRole::Compute, StreamRole::Average, StreamRole::In])?;
        let event = self.event()?;
        let (device, host, bytes) = self.held_mut(buffer).both(&range)?;
        let stream = self.streams.give(StreamRole::Out);
        // SAFETY: both are this rank's, with that many bytes; messages read the host's after the event has passed.
        unsafe { stream.download(host, device, bytes) }?;
        self.register_copy(event).map(Some)
    }

    fn fence(&mut self) -> Result<Option<Arrival>, DeviceError> {
        self.flush()?;
        self.streams.order(StreamRole::Out, &[StreamRole::Compute, StreamRole::Average, StreamRole::In])?;
        let event = self.event()?;
        self.register_copy(event).map(Some)
    }

    fn region(&self, buffer: Buffer, range: Range<usize>) -> Option<RegionMut> {
        let held = self.held(buffer);
        let view = held.view_mut(&range);
        // SAFETY: the memory and the port are this rank's, whose device outlives its endpoint.
        Some(unsafe { RegionMut::on(self.port(), view.address(), range.len(), held.dtype()) })
    }

    fn receive_buffer(&mut self, elements: usize) -> Result<RegionMut, DeviceError> {
        let bytes = Dtype::F32.bytes(elements as u64);
        let memory = GpuMemory::new(&self.gpu.context, "parts of sums that arrive", bytes, Fill::Poison)?;
        let address = memory.address();
        self.receive_buffers.push(memory);
        // SAFETY: as above, and no other pointer to it exists.
        Ok(unsafe { RegionMut::on(self.port(), address, elements, Dtype::F32) })
    }

    fn arrived(&mut self, arrival: Arrival) -> Result<bool, DeviceError> {
        self.gpu.context.bind()?;
        let Some(index) = self.leaving.iter().position(|(number, _)| *number == arrival.0) else { return Ok(true) };
        if !self.leaving[index].1.finished()? {
            return Ok(false);
        }
        let (_, event) = self.leaving.swap_remove(index);
        self.spare.push(event);
        Ok(true)
    }

    fn copy_to_device(&mut self, buffer: Buffer, range: Range<usize>) -> Result<(), DeviceError> {
        self.gpu.context.bind()?;
        let (device, host, bytes) = self.held_mut(buffer).both(&range)?;
        let stream = self.streams.give(StreamRole::In);
        // SAFETY: as above; the next exchange of the range begins with a copy that comes after this one.
        unsafe { stream.upload(device, host, bytes) }
    }
}

impl<A: Activation> Groups for Rank<A> {
    fn new_group(&mut self) -> Result<GroupId, DeviceError> {
        Communicator::id(&self.gpu.context)
    }

    fn join(&mut self, group: usize, id: &GroupId, member: u32, members: u32) -> Result<(), DeviceError> {
        self.groups.join(group, &self.gpu.context, (id, member, members))
    }

    fn sum(&mut self, group: usize, buffer: Buffer, range: Range<usize>) -> Result<(), DeviceError> {
        self.flush()?;
        let address = self.held(buffer).memory().address();
        self.groups.sum(group, address, &range, &mut self.streams)
    }

    fn leave(&mut self, group: usize) -> Result<(), DeviceError> {
        self.groups.leave(group)
    }

    fn is_ready(&mut self, group: usize) -> Result<bool, DeviceError> {
        self.gpu.context.bind()?;
        self.groups.is_ready(group, &mut self.streams)
    }
}
