//! Groups of devices that add up by themselves, without messages.

use std::ops::Range;

use lockstep_models::Buffer;

use super::DeviceError;

/// What the members of a group know each other by, as NCCL has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(pub [u8; 128]);

impl GroupId {
    /// As a message: copying does not change what numbers are made of.
    pub(crate) fn words(&self) -> Vec<f32> {
        self.0.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// Elements of such a message.
    pub(crate) const WORDS: usize = 32;

    /// That of a message.
    pub(crate) fn of(words: &[f32]) -> GroupId {
        let mut bytes = [0; 128];
        bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
        GroupId(bytes)
    }
}

/// Said by devices whose sums are messages.
fn none() -> DeviceError {
    DeviceError::Refused { call: "library:nccl".to_owned(), reason: "it adds up on NVIDIA's GPUs alone".to_owned() }
}

/// Sums by a library of the devices; what is not implemented is that of a device whose sums are messages.
pub trait Groups {
    /// A new group of devices, whose other members are told what it is known by.
    ///
    /// # Errors
    /// The device's, or it knows none that add up by themselves.
    fn new_group(&mut self) -> Result<GroupId, DeviceError> {
        Err(none())
    }

    /// Begins to meet the others of a group of `members`, as number `member`; from now on it is the rank's group `group`.
    ///
    /// # Errors
    /// As [`Groups::new_group`].
    fn join(&mut self, _group: usize, _id: &GroupId, _member: u32, _members: u32) -> Result<(), DeviceError> {
        Err(none())
    }

    /// Begins to add up a range of a buffer over the members of a group, behind all that the device has been told so far. What it
    /// is told from the moment on when the group is ready sees the sum. Members do the same in the same order.
    ///
    /// # Errors
    /// As [`Groups::new_group`].
    fn sum(&mut self, _group: usize, _buffer: Buffer, _range: Range<usize>) -> Result<(), DeviceError> {
        Err(none())
    }

    /// Begins to take leave of a group.
    ///
    /// # Errors
    /// As [`Groups::new_group`].
    fn leave(&mut self, _group: usize) -> Result<(), DeviceError> {
        Err(none())
    }

    /// Whether what was begun last in a group is done.
    ///
    /// # Errors
    /// What has failed meanwhile, here or on another member.
    fn is_ready(&mut self, _group: usize) -> Result<bool, DeviceError> {
        Err(none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_as_a_message() {
        // Among them what would be a NaN that signals.
        let id = GroupId(std::array::from_fn(|at| {
            [0x01, 0x00, 0xa0, 0x7f, 0xff, 0x00, 0x80, 0xff][at % 8] ^ (at / 64) as u8
        }));
        assert_eq!(id.words().len(), GroupId::WORDS);
        assert_eq!(GroupId::of(&id.words()), id);
    }
}
