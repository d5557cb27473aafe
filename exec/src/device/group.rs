//! Groups of devices that add up by themselves, without messages: what a group is known by, and that there is none.

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
pub(super) fn none() -> DeviceError {
    DeviceError::Refused { call: "library:nccl".to_owned(), reason: "it adds up on NVIDIA's GPUs alone".to_owned() }
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
