//! Sums squares of fp32 numbers exactly: the norm of a gradient then depends neither on the order of additions, nor on how
//! many ranks hold its parts, nor on the algorithm that sums them.
//!
//! The square of an fp32 number is m²·2^(2e − 300), with a mantissa m below 2²⁴ and an exponent e from 1 to 254. A sum of
//! up to 2⁴⁸ of them is a whole multiple of 2⁻³⁰⁰ of at most 604 bits. Ranks exchange it as digits of 8 bits, each an
//! fp32 number: sums of the digits of up to 2¹⁶ ranks are whole numbers below 2²⁴, which fp32 adds without rounding.

/// Digits of a sum in messages.
const DIGITS: usize = 76;
/// Bits of a digit.
const DIGIT_BITS: usize = 8;
/// Limbs of 32 bits, with room for carries.
const LIMBS: usize = 25;
/// A limb's bits.
const MASK: u64 = u32::MAX as u64;
/// Fewer elements than this are added one by one: a range of a split layer may be short.
const FEW: usize = 128;
/// Elements whose squares one table of 64-bit sums takes.
const BLOCK: usize = 1 << 15;

/// An exact sum of squares.
///
/// ```
/// # use lockstep_models::SquareSum;
/// // 3² + 4² on two ranks, whose digits an allreduce adds.
/// let parts = [3.0f32, 4.0].map(|value| SquareSum::of(&[value]).elements());
/// let sum: Vec<f32> = parts[0].iter().zip(&parts[1]).map(|(a, b)| a + b).collect();
/// let norm = SquareSum::from_elements(&sum).norm();
/// assert_eq!(norm, 5.0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SquareSum {
    /// Digits of 32 bits from 2⁻³⁰⁰ on; more than 32 bits until carries are passed on.
    limbs: [u64; LIMBS],
    /// Whether a number was infinite or none.
    not_finite: bool,
}

impl SquareSum {
    /// fp32 elements of a sum in messages: its digits, and how many ranks met a number that is not finite.
    pub const ELEMENTS: u64 = DIGITS as u64 + 1;

    /// The sum of no squares.
    pub fn zero() -> SquareSum {
        SquareSum { limbs: [0; LIMBS], not_finite: false }
    }

    /// The sum of the squares of `values`.
    pub fn of(values: &[f32]) -> SquareSum {
        let mut sum = SquareSum::zero();
        sum.add(values);
        sum
    }

    /// Adds the squares of `values`.
    pub fn add(&mut self, values: &[f32]) {
        if values.len() < FEW {
            values.iter().for_each(|value| self.add_one(*value));
            return self.carry();
        }
        for block in values.chunks(BLOCK) {
            // By exponent: 2¹⁵ squares of mantissas below 2²⁴ stay below 2⁶³. Neighbours, whose exponents are often equal,
            // have tables of their own, so that no sum waits for the one before.
            let mut tables = [[0u64; 256]; 4];
            let (fours, rest) = block.as_chunks::<4>();
            for four in fours {
                tables.iter_mut().zip(four).for_each(|(sums, value)| tally(sums, *value));
            }
            rest.iter().for_each(|value| tally(&mut tables[0], *value));
            for exponent in 0..255usize {
                let sum = tables.iter().map(|sums| sums[exponent]).sum();
                if sum > 0 {
                    // Numbers below 2⁻¹²⁶ have the exponent 1 without a leading bit.
                    self.add_at(2 * exponent.max(1), sum);
                }
            }
            // The numbers of exponent 255 are not finite; infinity has a mantissa too.
            self.not_finite |= tables.iter().any(|sums| sums[255] > 0);
            self.carry();
        }
    }

    /// Adds the square of a number, without passing carries on.
    fn add_one(&mut self, value: f32) {
        let (exponent, square) = parts(value);
        match exponent {
            255 => self.not_finite = true,
            _ => self.add_at(2 * exponent.max(1), square),
        }
    }

    /// Adds `value`·2^(`bit` − 300).
    fn add_at(&mut self, bit: usize, value: u64) {
        let (at, shift) = (bit / 32, bit % 32);
        for (piece, of) in [value & MASK, value >> 32].into_iter().enumerate() {
            let shifted = of << shift;
            self.limbs[at + piece] += shifted & MASK;
            self.limbs[at + piece + 1] += shifted >> 32;
        }
    }

    fn carry(&mut self) {
        let mut carry = 0;
        for limb in &mut self.limbs {
            let sum = *limb + carry;
            (*limb, carry) = (sum & MASK, sum >> 32);
        }
    }

    /// The sum as an exchange adds it.
    pub fn elements(&self) -> Vec<f32> {
        let digit = |at: usize| {
            let bit = at * DIGIT_BITS;
            (self.limbs[bit / 32] >> (bit % 32) & 255) as f32
        };
        (0..DIGITS).map(digit).chain([f32::from(u8::from(self.not_finite))]).collect()
    }

    /// The sum whose elements, or the sums of those of several parts, these are.
    pub fn from_elements(elements: &[f32]) -> SquareSum {
        let (mut sum, digits) = (SquareSum::zero(), &elements[..elements.len().min(DIGITS)]);
        for (at, digit) in digits.iter().enumerate() {
            sum.add_at(at * DIGIT_BITS, *digit as u64);
        }
        sum.carry();
        sum.not_finite = elements.get(DIGITS).is_some_and(|count| *count != 0.0);
        sum
    }

    /// The square root of the sum; NaN if a number was not finite.
    pub fn norm(&self) -> f64 {
        if self.not_finite {
            return f64::NAN;
        }
        let limbs = self.limbs.iter().enumerate().rev();
        let sum: f64 = limbs.map(|(at, limb)| libm::ldexp(*limb as f64, 32 * at as i32 - 300)).sum();
        sum.sqrt()
    }

    /// The factor with which gradients of this norm get a norm of at most `most`: min(1, `most` / (norm + 10⁻⁶)), as
    /// PyTorch's `clip_grad_norm_` computes it; NaN where the norm is.
    pub fn clip_coefficient(&self, most: f64) -> f64 {
        let coefficient = most / (self.norm() + 1e-6);
        if coefficient > 1.0 { 1.0 } else { coefficient }
    }
}

/// Adds the square of a number's mantissa to the sum of those with its exponent.
#[inline(always)]
fn tally(sums: &mut [u64; 256], value: f32) {
    let (exponent, square) = parts(value);
    sums[exponent] += square;
}

/// The biased exponent of a number, and the square of its mantissa.
#[inline(always)]
fn parts(value: f32) -> (usize, u64) {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 255) as usize;
    let mantissa = u64::from(bits & 0x007f_ffff | u32::from(exponent > 0) << 23);
    (exponent, mantissa * mantissa)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sum of the elements of parts, as an allreduce in fp32 makes it.
    fn exchanged(parts: &[SquareSum]) -> SquareSum {
        let mut sum = vec![0.0f32; SquareSum::ELEMENTS as usize];
        for part in parts {
            sum.iter_mut().zip(part.elements()).for_each(|(sum, own)| *sum += own);
        }
        SquareSum::from_elements(&sum)
    }

    #[test]
    fn extremes() {
        assert_eq!((SquareSum::zero().norm(), SquareSum::of(&[0.0, -0.0]).norm()), (0.0, 0.0));
        for value in [f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), 1.0, 0.1] {
            let square = f64::from(value) * f64::from(value);
            assert_eq!(SquareSum::of(&[-value]).norm(), square.sqrt(), "{value:e}");
        }
        // What is far smaller than the sum is not lost: in f64 1 + 2⁻⁶⁰ is 1.
        let small = f32::from_bits(97 << 23);
        assert_ne!(SquareSum::of(&[1.0, small]), SquareSum::of(&[1.0]));
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let sum = exchanged(&[SquareSum::of(&[1.0]), SquareSum::of(&[wrong])]);
            assert!(sum.norm().is_nan() && sum.clip_coefficient(1.0).is_nan());
        }
        // A full block of the largest numbers.
        let many = SquareSum::of(&vec![f32::MAX; 3 * BLOCK]);
        assert_eq!(many.norm(), (3.0 * BLOCK as f64).sqrt() * f64::from(f32::MAX));
    }

    /// PyTorch's factor: none below the norm, and just below norm 1 beyond it.
    #[test]
    fn factors_by_hand() {
        let five = SquareSum::of(&[3.0, 4.0]);
        assert_eq!(five.clip_coefficient(6.0), 1.0);
        assert_eq!(five.clip_coefficient(1.0), 1.0 / 5.000_001);
        assert_eq!(SquareSum::zero().clip_coefficient(1.0), 1.0);
    }

    proptest! {
        /// The sum is exact: with whole numbers it is that of integers, whatever the numbers' common power of two.
        #[test]
        fn sums_are_those_of_integers(values in prop::collection::vec(1 - (1i64 << 24)..(1 << 24), 0..600), power in -30i32..30) {
            let scaled: Vec<f32> = values.iter().map(|value| *value as f32 * libm::ldexp(1.0, power) as f32).collect();
            let whole: i128 = values.iter().map(|value| i128::from(*value) * i128::from(*value)).sum();
            let mut expected = SquareSum::zero();
            let bit = (300 + 2 * power) as usize;
            (0..4).for_each(|piece| expected.add_at(bit + 32 * piece, (whole >> (32 * piece)) as u64 & MASK));
            expected.carry();
            prop_assert_eq!(SquareSum::of(&scaled), expected);
        }

        /// Any division among ranks and any order give the same sum, which is that of f64 up to its rounding.
        #[test]
        fn parts_and_order_do_not_matter(
            bits in prop::collection::vec(any::<u32>(), 1..900), ranks in 1usize..9, seed in any::<u64>(),
        ) {
            let finite = |bits: &u32| Some(f32::from_bits(*bits)).filter(|value| value.is_finite());
            let values: Vec<f32> = bits.iter().filter_map(finite).collect();
            let whole = SquareSum::of(&values);
            let mut parts = vec![Vec::new(); ranks];
            for (at, value) in values.iter().enumerate() {
                parts[(seed >> (at % 60)) as usize % ranks].insert(0, *value);
            }
            let sums: Vec<SquareSum> = parts.iter().map(|part| SquareSum::of(part)).collect();
            prop_assert_eq!(&exchanged(&sums), &whole);
            let naive = values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
            prop_assert!((whole.norm() - naive).abs() <= 1e-13 * naive, "{} {naive}", whole.norm());
        }
    }
}
