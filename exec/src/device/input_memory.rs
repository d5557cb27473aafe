//! `InputMemory`: a CPU's memory for the samples of a micro-batch, in the format in which the data set gives them.

use lockstep_topology::Dtype;

use crate::number::{bytes_of, bytes_of_mut};

/// Samples of a micro-batch: values with which kernels compute, or integers that layers read.
#[derive(Default)]
pub(super) struct InputMemory {
    /// Aligned for numbers of any format that data sets give.
    words: Vec<f32>,
    bytes: usize,
    dtype: Dtype,
}

impl InputMemory {
    /// Zeros for `elements` numbers.
    pub(super) fn new(elements: usize, dtype: Dtype) -> InputMemory {
        let bytes = dtype.bytes(elements as u64) as usize;
        InputMemory { words: vec![0.0; bytes.div_ceil(size_of::<f32>())], bytes, dtype }
    }

    /// All of it, to be filled.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytes_of_mut(&mut self.words)[..self.bytes]
    }

    /// The samples as kernels of values take them; empty where they are integers.
    pub(super) fn values(&self) -> &[f32] {
        if self.dtype == Dtype::F32 { &self.words } else { &[] }
    }

    /// The same, writable.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        if self.dtype == Dtype::F32 { &mut self.words } else { &mut [] }
    }

    /// The bytes of the samples, and their format.
    pub(super) fn numbers(&self) -> (&[u8], Dtype) {
        (&bytes_of(&self.words)[..self.bytes], self.dtype)
    }

    /// The bytes of integers and their format; `None` where the samples are values.
    pub(super) fn integers(&self) -> Option<(&[u8], Dtype)> {
        self.dtype.is_integer().then(|| self.numbers())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::numbers_mut;

    /// Three tokens of two bytes are six bytes, and no values; three values are values, and no integers.
    #[test]
    fn samples_are_in_the_format_of_their_set() {
        let mut tokens = InputMemory::new(3, Dtype::U16);
        numbers_mut::<u16>(tokens.bytes_mut()).copy_from_slice(&[1, 2, 50_000]);
        assert_eq!(tokens.integers(), Some((bytes_of(&[1u16, 2, 50_000]), Dtype::U16)));
        assert!(tokens.values().is_empty() && tokens.values_mut().is_empty());
        let mut values = InputMemory::new(3, Dtype::F32);
        numbers_mut::<f32>(values.bytes_mut()).copy_from_slice(&[0.5, -1.0, 2.0]);
        assert_eq!((values.values(), values.integers()), (&[0.5, -1.0, 2.0][..], None));
    }
}
