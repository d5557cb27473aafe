//! Manages the groups in which a rank's GPU sums with others by NCCL.

use std::ops::Range;
use std::sync::Arc;

use lockstep_exec::device::{DeviceError, GroupId};
use lockstep_topology::Dtype;

use super::streams::{StreamRole, Streams};
use crate::driver::{Communicator, Context, Event};

/// The last operation started in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// None, or one that is over.
    Rest,
    /// Joining.
    Join,
    /// A sum that NCCL has not enqueued yet.
    Give,
    /// A sum that is enqueued on the stream.
    Sum,
    /// Leaving.
    Leave,
}

/// A rank's membership in a group.
struct Group {
    number: usize,
    communicator: Communicator,
    step: Step,
    /// Recorded after the last sum.
    summed: Event,
}

/// All groups of a rank.
#[derive(Default)]
pub(super) struct Groups(Vec<Group>);

impl Groups {
    pub(super) fn join(
        &mut self,
        number: usize,
        context: &Arc<Context>,
        (id, member, members): (&GroupId, u32, u32),
    ) -> Result<(), DeviceError> {
        let communicator = Communicator::begin(context, id, member, members)?;
        self.0.push(Group { number, communicator, step: Step::Join, summed: Event::new(context, false)? });
        Ok(())
    }

    fn of(&mut self, number: usize) -> Result<&mut Group, DeviceError> {
        let missing = || DeviceError::Refused { call: "a sum".to_owned(), reason: "its group has not met".to_owned() };
        self.0.iter_mut().find(|group| group.number == number).ok_or_else(missing)
    }

    /// Starts to sum a range of the buffer at `address`, after all submitted work.
    pub(super) fn sum(
        &mut self,
        number: usize,
        address: u64,
        range: &Range<usize>,
        streams: &mut Streams,
    ) -> Result<(), DeviceError> {
        streams.order(StreamRole::Sum, &[StreamRole::Compute, StreamRole::Average, StreamRole::In])?;
        let group = self.of(number)?;
        let (from, elements) = (address + Dtype::F32.bytes(range.start as u64), range.len() as u64);
        // SAFETY: the elements are this rank's, and by the program's order they are not otherwise accessed before the
        // sum is done.
        unsafe { group.communicator.sum(streams.give(StreamRole::Sum), from, elements) }?;
        group.step = Step::Give;
        Ok(())
    }

    pub(super) fn leave(&mut self, number: usize) -> Result<(), DeviceError> {
        let group = self.of(number)?;
        group.communicator.finish()?;
        group.step = Step::Leave;
        Ok(())
    }

    pub(super) fn is_ready(&mut self, number: usize, streams: &mut Streams) -> Result<bool, DeviceError> {
        let group = self.of(number)?;
        if !group.communicator.is_ready()? {
            return Ok(false);
        }
        if group.step == Step::Give {
            group.summed.record(streams.give(StreamRole::Sum))?;
            group.step = Step::Sum;
        }
        match group.step {
            Step::Sum if !group.summed.finished()? => return Ok(false),
            Step::Leave => {
                let at = self.0.iter().position(|group| group.number == number);
                return at.map_or(Ok(true), |at| self.0.swap_remove(at).communicator.close().map(|()| true));
            }
            _ => group.step = Step::Rest,
        }
        Ok(true)
    }

    /// Aborts all of them, to end what can never complete.
    pub(super) fn abandon(&mut self) {
        self.0.clear();
    }
}
