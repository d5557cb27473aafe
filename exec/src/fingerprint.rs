//! Computes SHA-256 over fp32 tensors, so that equality of two runs is equality of two strings.

use sha2::{Digest, Sha256};

/// A running SHA-256 over the little-endian bytes of elements.
#[derive(Clone)]
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(crate) fn new() -> Fingerprint {
        Fingerprint(Sha256::new())
    }

    /// The fingerprint of these elements alone.
    pub(crate) fn of(values: &[f32]) -> Fingerprint {
        let mut fingerprint = Fingerprint::new();
        fingerprint.add(values);
        fingerprint
    }

    pub(crate) fn add(&mut self, values: &[f32]) {
        let mut bytes = [0; 4096];
        for block in values.chunks(bytes.len() / 4) {
            for (place, value) in bytes.chunks_exact_mut(4).zip(block) {
                place.copy_from_slice(&value.to_le_bytes());
            }
            self.0.update(&bytes[..block.len() * 4]);
        }
    }

    /// The 256 bits as words.
    pub(crate) fn words(self) -> [u64; 4] {
        let digest = self.0.finalize();
        let word = |i: usize| u64::from_be_bytes(std::array::from_fn(|byte| digest[8 * i + byte]));
        [word(0), word(1), word(2), word(3)]
    }
}

/// In hexadecimal, as `sha256sum` prints it.
pub(crate) fn hex(words: [u64; 4]) -> String {
    words.iter().map(|word| format!("{word:016x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        assert_eq!(
            hex(Fingerprint::new().words()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // of nothing
        );
        // printf '\0\0\200\077' | sha256sum
        let mut one = Fingerprint::new();
        one.add(&[1.0]);
        assert_eq!(hex(one.words()), "e00e5eb9444182f352323374ef4e08ebcb784725fdd4fd612d7730540b3e0c8c");
    }
}
