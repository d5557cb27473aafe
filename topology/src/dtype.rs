//! `Dtype`: the format of a tensor's numbers, in memory and in messages.

/// A format of numbers. CPUs compute in fp32 and store fp32 or bf16; the others are predicted, and run on GPUs that have them.
///
/// ```
/// # use lockstep_topology::Dtype;
/// assert_eq!((Dtype::F32.bytes(1000), Dtype::Bf16.bytes(1000), Dtype::F8E4M3.bytes(1000)), (4000, 2000, 1000));
/// // 1,000 numbers of 4 bits and a scale of 4 bytes for each 64 of them; of 8 bits and a scale of one byte for each 32.
/// assert_eq!((Dtype::Nf4.bytes(1000), Dtype::Mxfp8.bytes(1000)), (500 + 4 * 16, 1000 + 32));
/// assert_eq!("bf16".parse(), Ok(Dtype::Bf16));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dtype {
    /// IEEE 754 binary32.
    #[default]
    F32,
    /// Eight bits of exponent, seven of mantissa.
    Bf16,
    /// IEEE 754 binary16.
    F16,
    /// Four bits of exponent, three of mantissa (Micikevicius et al. 2022, "FP8 Formats for Deep Learning").
    F8E4M3,
    /// Five bits of exponent, two of mantissa (there).
    F8E5M2,
    /// Four-bit quantiles of a normal distribution, with an fp32 scale for each 64 (Dettmers et al. 2023, "QLoRA", §3).
    Nf4,
    /// E4M3 with a scale of one byte for each 32 (OCP Microscaling Formats 1.0, 2023).
    Mxfp8,
    /// Unsigned bytes: pixels.
    U8,
    /// Unsigned 16 bits: tokens of small vocabularies.
    U16,
    /// Unsigned 32 bits: labels and tokens.
    U32,
}

crate::named!(
    Dtype,
    "dtype": F32 = "fp32", Bf16 = "bf16", F16 = "fp16", F8E4M3 = "fp8-e4m3", F8E5M2 = "fp8-e5m2", Nf4 = "nf4",
    Mxfp8 = "mxfp8", U8 = "u8", U16 = "u16", U32 = "u32"
);

impl Dtype {
    /// Whether its numbers are integers, which tasks move and never add.
    pub const fn is_integer(self) -> bool {
        matches!(self, Dtype::U8 | Dtype::U16 | Dtype::U32)
    }

    /// Bits of a number, and in how many numbers a scale of how many bytes is shared.
    const fn layout(self) -> (u64, Option<(u64, u64)>) {
        match self {
            Dtype::F32 | Dtype::U32 => (32, None),
            Dtype::Bf16 | Dtype::F16 | Dtype::U16 => (16, None),
            Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::U8 => (8, None),
            Dtype::Nf4 => (4, Some((64, 4))),
            Dtype::Mxfp8 => (8, Some((32, 1))),
        }
    }

    /// Bytes of `elements` numbers with the scales that they share.
    #[inline]
    pub const fn bytes(self, elements: u64) -> u64 {
        match self.layout() {
            (bits, None) => elements.saturating_mul(bits / 8),
            (bits, Some((block, scale))) => {
                elements.saturating_mul(bits).div_ceil(8).saturating_add(elements.div_ceil(block) * scale)
            }
        }
    }

    /// How many numbers fit in `bytes` bytes.
    ///
    /// ```
    /// # use lockstep_topology::Dtype;
    /// assert_eq!((Dtype::F32.elements_within(11), Dtype::Bf16.elements_within(11)), (2, 5));
    /// ```
    pub const fn elements_within(self, bytes: u64) -> u64 {
        match self.layout() {
            (bits, None) => bytes / (bits / 8),
            (bits, Some((block, scale))) => {
                let of_block = block * bits / 8 + scale;
                let left = (bytes % of_block).saturating_sub(scale);
                bytes / of_block * block + left * 8 / bits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As many numbers fit as are told, and not one more.
        #[test]
        fn as_many_fit_as_are_told(of in 0..Dtype::ALL.len(), bytes in 0u64..10_000) {
            let dtype = Dtype::ALL[of];
            let fit = dtype.elements_within(bytes);
            prop_assert!(fit == 0 || dtype.bytes(fit) <= bytes, "{dtype}: {fit} in {bytes}");
            prop_assert!(dtype.bytes(fit + 1) > bytes, "{dtype}: more than {fit} in {bytes}");
        }
    }
}
