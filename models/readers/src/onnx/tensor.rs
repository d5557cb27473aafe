//! Reads the tensors of an ONNX file: their sizes, and the numbers of small ones.

use crate::wire::{Field, Malformed};

/// Most elements of a tensor whose numbers are kept: enough for shapes, indices and factors.
const MOST: usize = 4096;

/// TensorProto.
#[derive(Debug, Clone, Default)]
pub(super) struct Tensor<'a> {
    pub(super) name: &'a str,
    pub(super) dims: Vec<i64>,
    /// ONNX's number of the type: 1 is float, 7 is int64.
    data_type: i64,
    floats: Vec<f32>,
    integers: Vec<i64>,
    raw: &'a [u8],
    /// Whether the values are in another file.
    external: bool,
}

impl<'a> Tensor<'a> {
    pub(super) fn read(field: Field<'a>) -> Result<Tensor<'a>, Malformed> {
        let mut tensor = Tensor::default();
        for field in field.piece()?.fields()? {
            let is_small = field.piece().map_or(tensor.floats.len() < MOST, |piece| piece.bytes.len() <= 8 * MOST);
            match field.number {
                1 => field.integers(&mut tensor.dims)?,
                2 => tensor.data_type = field.integer()?,
                4 if is_small => field.floats(&mut tensor.floats)?,
                5 | 7 | 11 if is_small && tensor.integers.len() < MOST => field.integers(&mut tensor.integers)?,
                8 => tensor.name = field.text()?,
                9 => tensor.raw = field.piece()?.bytes,
                10 if is_small => field.doubles(&mut tensor.floats)?,
                14 => tensor.external = field.integer()? == 1,
                _ => {}
            }
        }
        Ok(tensor)
    }

    /// Whether its elements are whole numbers or truth values.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.data_type, 2..=7 | 9 | 12 | 13)
    }

    /// The elements of each index of its first dimension, if they are in the file, the same for all, and not many.
    pub(super) fn repeated(&self) -> Option<Vec<f64>> {
        let count = usize::try_from(*self.dims.first()?).ok().filter(|count| *count > 0)?;
        let bytes = self.raw.len() / count;
        let first = self.raw.get(..bytes).filter(|first| !first.is_empty() && self.raw.len() == count * bytes)?;
        let (dims, data_type) = (self.dims[1..].to_vec(), self.data_type);
        let one = Tensor { dims, data_type, raw: first, ..Tensor::default() };
        self.raw.chunks_exact(bytes).all(|slice| slice == first).then(|| one.numbers())?
    }

    /// Its elements, if they are in the file and not many.
    pub(super) fn numbers(&self) -> Option<Vec<f64>> {
        let elements = self.dims.iter().try_fold(1usize, |all, size| all.checked_mul(usize::try_from(*size).ok()?))?;
        if self.external || elements > MOST {
            return None;
        }
        let numbers: Vec<f64> = match (self.raw.is_empty(), self.data_type) {
            (true, 1 | 11) => self.floats.iter().map(|number| f64::from(*number)).collect(),
            (true, 10) => self.integers.iter().map(|bits| half(*bits as u16)).collect(),
            (true, _) => self.integers.iter().map(|number| *number as f64).collect(),
            (false, 1) => words(self.raw, |bytes: [u8; 4]| f32::from_le_bytes(bytes).into()),
            (false, 2 | 9) => self.raw.iter().map(|byte| f64::from(*byte)).collect(),
            (false, 3) => self.raw.iter().map(|byte| f64::from(*byte as i8)).collect(),
            (false, 6) => words(self.raw, |bytes: [u8; 4]| i32::from_le_bytes(bytes).into()),
            (false, 7) => words(self.raw, |bytes: [u8; 8]| i64::from_le_bytes(bytes) as f64),
            (false, 10) => words(self.raw, |bytes: [u8; 2]| half(u16::from_le_bytes(bytes))),
            (false, 11) => words(self.raw, |bytes: [u8; 8]| f64::from_le_bytes(bytes)),
            (false, 16) => words(self.raw, |[low, high]: [u8; 2]| f32::from_le_bytes([0, 0, low, high]).into()),
            _ => return None,
        };
        (numbers.len() == elements).then_some(numbers)
    }
}

fn words<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|word| number(*word)).collect()
}

/// The number of an IEEE 754 half.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * power_of_two(-24),
        31 => f64::INFINITY,
        _ => (1024.0 + fraction) * power_of_two(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// 2ⁿ for a small n.
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(u64::try_from(1023 + n).unwrap_or(0) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves() {
        let cases = [(0x3c00, 1.0), (0xc000, -2.0), (0x3555, 0.333_251_953_125), (0x0001, 5.960_464_477_539_063e-8)];
        for (bits, number) in cases {
            assert_eq!(half(bits), number);
        }
        assert_eq!((half(0x7c00), half(0)), (f64::INFINITY, 0.0));
    }
}
