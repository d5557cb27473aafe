//! `Bf16`: numbers of two bytes in host memory, which are widened to fp32 before arithmetic and rounded after it.
//!
//! A bf16 number is the upper half of an fp32 number, so widening is exact. Narrowing rounds to the nearest, and of two
//! equally near to the one whose last bit is 0, as IEEE 754 rounds and as GPUs do.

use lockstep_topology::Dtype;

use crate::number::Number;
use crate::simd::wide;

/// A number with eight bits of exponent and seven of mantissa.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(crate) struct Bf16(u16);

// SAFETY: two bytes, any of which make a number.
unsafe impl Number for Bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
}

/// Numbers that the host computes with, in fp32, and stores.
pub(crate) trait Float: Number {
    /// The same number.
    fn widened(self) -> f32;

    /// The nearest number of this format.
    fn nearest(value: f32) -> Self;
}

impl Float for f32 {
    #[inline(always)]
    fn widened(self) -> f32 {
        self
    }

    #[inline(always)]
    fn nearest(value: f32) -> f32 {
        value
    }
}

impl Float for Bf16 {
    #[inline(always)]
    fn widened(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn nearest(value: f32) -> Bf16 {
        let bits = value.to_bits();
        // What is added carries into the upper half beyond one half of its last bit, and at one half if that bit is 1.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        // No number stays none, quiet, with its sign.
        let none = bits >> 16 | 0x40;
        Bf16(if value.is_nan() { none } else { rounded } as u16)
    }
}

/// Writes the numbers of `from` to `to`.
pub(crate) fn widen(from: &[Bf16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "two slices of one length");
    wide!(to.iter_mut().zip(from).for_each(|(to, from)| *to = from.widened()));
}

/// Writes the numbers nearest to those of `from` to `to`.
pub(crate) fn narrow(from: &[f32], to: &mut [Bf16]) {
    assert_eq!(from.len(), to.len(), "two slices of one length");
    wide!(to.iter_mut().zip(from).for_each(|(to, from)| *to = Bf16::nearest(*from)));
}

/// Writes the numbers of `from`, each rounded to the nearest of bf16, to `to`.
pub(crate) fn round(from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "two slices of one length");
    wide!(to.iter_mut().zip(from).for_each(|(to, from)| *to = Bf16::nearest(*from).widened()));
}

/// Rounds the numbers of `from` and adds them to those of `to`; each sum is rounded too.
pub(crate) fn add_rounded(from: &[f32], to: &mut [Bf16]) {
    assert_eq!(from.len(), to.len(), "two slices of one length");
    wide!(to.iter_mut().zip(from).for_each(|(to, from)| {
        *to = Bf16::nearest(to.widened() + Bf16::nearest(*from).widened());
    }));
}

/// `destination += source`, element by element; each sum is rounded once.
pub(crate) fn add_narrow_into(destination: &mut [Bf16], source: &[Bf16]) {
    assert_eq!(destination.len(), source.len(), "two slices of one length");
    wide!(destination.iter_mut().zip(source).for_each(|(d, s)| *d = Bf16::nearest(d.widened() + s.widened())));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The nearest number by its definition: of the two between which the value lies the nearer one, of equally near ones
    /// that with an even last bit; beyond the largest by half of its last bit, infinity.
    fn nearest_by_definition(value: f32) -> u16 {
        let below = (value.to_bits() >> 16) as u16;
        let number = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
        // Above the largest number is what would be next if exponents went on.
        let above =
            if below & 0x7fff == 0x7f7f { 2f64.powi(128).copysign(f64::from(value)) } else { number(below + 1) };
        let [down, up] = [number(below), above].map(|of| (f64::from(value) - of).abs());
        if up < down || (up == down && below & 1 == 1) { below + 1 } else { below }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        /// Every finite number, halves between two among them, is rounded as by definition.
        #[test]
        fn numbers_are_rounded_to_the_nearest(upper: u16, lower in prop_oneof![Just(0u16), Just(0x8000), Just(0x7fff), Just(0x8001), any::<u16>()]) {
            let value = f32::from_bits(u32::from(upper) << 16 | u32::from(lower));
            let rounded = Bf16::nearest(value);
            if value.is_nan() {
                prop_assert!(rounded.widened().is_nan());
            } else if value.is_finite() {
                prop_assert_eq!(rounded.0, nearest_by_definition(value), "{:e}", value);
            } else {
                prop_assert_eq!(rounded.widened(), value);
            }
        }
    }

    /// 1 + 2⁻⁸ lies between 1 and 1 + 2⁻⁷, and the last bit of 1 is 0; 1 + 3·2⁻⁸ lies between 1 + 2⁻⁷ and 1 + 2⁻⁶.
    #[test]
    fn rounding_by_hand() {
        let unit = 2f32.powi(-7);
        let values = [1.0 + unit / 2.0, 1.0 + 1.5 * unit, 1.0 + 0.51 * unit, f32::MAX, -0.0];
        let mut rounded = [0.0; 5];
        round(&values, &mut rounded);
        assert_eq!(rounded, [1.0, 1.0 + 2.0 * unit, 1.0 + unit, f32::INFINITY, 0.0]);
        assert!(rounded[4].is_sign_negative());
    }

    /// 256 + 1 needs nine bits and rounds to 256, however often it is added; 256 + 2 fits.
    #[test]
    fn each_sum_is_rounded() {
        let mut sum = [Bf16::nearest(256.0); 40];
        add_narrow_into(&mut sum, &[Bf16::nearest(1.0); 40]);
        add_narrow_into(&mut sum, &[Bf16::nearest(1.0); 40]);
        assert_eq!(sum, [Bf16::nearest(256.0); 40]);
        add_narrow_into(&mut sum, &[Bf16::nearest(2.0); 40]);
        assert_eq!(sum, [Bf16::nearest(258.0); 40]);
    }

    /// Widened numbers are narrowed to themselves, all 65,536 of them.
    #[test]
    fn widening_is_exact() {
        let all: Vec<Bf16> = (0..=u16::MAX).map(Bf16).collect();
        let mut wide = vec![0.0; all.len()];
        widen(&all, &mut wide);
        let mut back = vec![Bf16(0); all.len()];
        narrow(&wide, &mut back);
        for ((of, value), back) in all.iter().zip(&wide).zip(&back) {
            assert!(of == back || (value.is_nan() && back.widened().is_nan()), "{of:?}: {back:?}");
        }
    }
}
