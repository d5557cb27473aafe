//! Defines groups of devices that reduce by themselves, without messages.

use std::ops::Range;

use lockstep_models::Buffer;

use super::DeviceError;

/// The identifier by which the members of a group find each other, as in NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(pub [u8; GroupId::BYTES]);

impl GroupId {
    /// Its bytes.
    pub(crate) const BYTES: usize = 128;

    /// The identifier from a message of its bytes.
    pub(crate) fn of(message: &[u8]) -> GroupId {
        let mut bytes = [0; GroupId::BYTES];
        bytes.copy_from_slice(message);
        GroupId(bytes)
    }
}

/// The error of devices without such groups.
fn none() -> DeviceError {
    DeviceError::Refused { call: "library:nccl".to_owned(), reason: "it sums on NVIDIA's GPUs alone".to_owned() }
}

/// Sums by a library of the devices. The defaults are those of a device whose sums are messages.
pub trait Groups {
    /// Creates a group; its identifier is sent to the other members.
    ///
    /// # Errors
    /// Device errors, or the device has no such groups.
    fn new_group(&mut self) -> Result<GroupId, DeviceError> {
        Err(none())
    }

    /// Starts to join a group of `members` as number `member`; it becomes the rank's group `group`.
    ///
    /// # Errors
    /// As [`Groups::new_group`].
    fn join(&mut self, _group: usize, _id: &GroupId, _member: u32, _members: u32) -> Result<(), DeviceError> {
        Err(none())
    }

    /// Starts to sum a range of a buffer over the members of a group, after all work submitted so far. Work submitted
    /// once the group is ready sees the sum. Members must start sums in the same order.
    ///
    /// # Errors
    /// As [`Groups::new_group`].
    fn sum(&mut self, _group: usize, _buffer: Buffer, _range: Range<usize>) -> Result<(), DeviceError> {
        Err(none())
    }

    /// Starts to leave a group.
    ///
    /// # Errors
    /// As [`Groups::new_group`].
    fn leave(&mut self, _group: usize) -> Result<(), DeviceError> {
        Err(none())
    }

    /// Whether the operation started last in a group is done.
    ///
    /// # Errors
    /// A failure meanwhile, here or on another member.
    fn is_ready(&mut self, _group: usize) -> Result<bool, DeviceError> {
        Err(none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_bytes() {
        let id = GroupId(std::array::from_fn(|at| {
            [0x01, 0x00, 0xa0, 0x7f, 0xff, 0x00, 0x80, 0xff][at % 8] ^ (at / 64) as u8
        }));
        assert_eq!(GroupId::of(&id.0), id);
    }
}
