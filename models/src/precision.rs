//! `Precision`: the numbers that convolutions and products of a device multiply.

/// The numbers that convolutions and products multiply; what they add up is fp32 throughout, and so are parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Precision {
    /// fp32, as on the CPU.
    #[default]
    F32,
    /// fp32 tensors whose factors are rounded to 10 bits of mantissa.
    Tf32,
    /// Activations and factors in bf16; weights are kept in fp32.
    Bf16,
}
