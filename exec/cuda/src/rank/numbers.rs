//! Converts bytes fetched from a device to numbers.

use crate::Scalar;

/// Numbers from their little-endian bytes.
pub(super) fn numbers<T, const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|chunk| of(std::array::from_fn(|index| chunk[index]))).collect()
}

pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    numbers(bytes, f32::from_le_bytes)
}

/// Activations of a scalar.
pub(super) fn activations(bytes: &[u8], scalar: Scalar) -> Vec<f32> {
    match scalar {
        Scalar::F32 => floats(bytes),
        Scalar::Bf16 => numbers(bytes, |bits| f32::from_bits(u32::from(u16::from_le_bytes(bits)) << 16)),
    }
}
