//! `Number`: the types as which memory of a format of numbers is read and written.

use lockstep_topology::Dtype;

/// A type of numbers in memory.
///
/// # Safety
/// It has the size of one element of its format, no gaps, and any bits are a valid value.
pub unsafe trait Number: Copy + Send + Sync + 'static {
    /// The format.
    const DTYPE: Dtype;
}

// SAFETY: four bytes, any of which make a number.
unsafe impl Number for f32 {
    const DTYPE: Dtype = Dtype::F32;
}

// SAFETY: as above.
unsafe impl Number for u32 {
    const DTYPE: Dtype = Dtype::U32;
}

// SAFETY: as above, with one byte.
unsafe impl Number for u8 {
    const DTYPE: Dtype = Dtype::U8;
}

// SAFETY: as above, with two bytes.
unsafe impl Number for u16 {
    const DTYPE: Dtype = Dtype::U16;
}

/// The bytes of numbers, as they are in memory.
pub fn bytes_of<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: a number has no gaps, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The same, writable.
pub fn bytes_of_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, any bytes are a number, and the numbers are borrowed for as long.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// The numbers in `bytes`.
///
/// # Panics
/// When they begin at an address that is not a multiple of a number's size, or end within a number.
pub fn numbers<T: Number>(bytes: &[u8]) -> &[T] {
    if bytes.is_empty() {
        return &[];
    }
    check::<T>(bytes);
    // SAFETY: aligned and of that length, as just checked; the trait promises that any bits are a number.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
}

/// The same, writable.
///
/// # Panics
/// As [`numbers`].
pub fn numbers_mut<T: Number>(bytes: &mut [u8]) -> &mut [T] {
    if bytes.is_empty() {
        return &mut [];
    }
    check::<T>(bytes);
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<T>()) }
}

fn check<T: Number>(bytes: &[u8]) {
    let whole = bytes.as_ptr().cast::<T>().is_aligned() && bytes.len().is_multiple_of(size_of::<T>());
    assert!(whole, "{} bytes at {:p} are not numbers of {}", bytes.len(), bytes, T::DTYPE);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Values come out of a message with the same bits.
        #[test]
        fn values_round_trip_as_bytes(bits in prop::collection::vec(any::<u32>(), 0..9)) {
            let mut values: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let bytes = bytes_of(&values).to_vec();
            prop_assert_eq!(&bytes, &bits.iter().flat_map(|bits| bits.to_ne_bytes()).collect::<Vec<u8>>());
            values.fill(0.0);
            bytes_of_mut(&mut values).copy_from_slice(&bytes);
            prop_assert!(values.iter().zip(&bits).all(|(value, bits)| value.to_bits() == *bits));
        }
    }

    /// A word of 32 bits, in the order of this machine, is itself as a number and four bytes as bytes.
    #[test]
    fn numbers_are_their_bytes() {
        let mut words = [1.5f32.to_bits(), 7, u32::MAX];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let start = words.as_mut_ptr().cast::<u8>();
        // SAFETY: the three words are twelve bytes, and are used through this slice alone while it lives.
        let own = unsafe { std::slice::from_raw_parts_mut(start, 12) };
        assert_eq!(own, bytes);
        assert_eq!(numbers::<u32>(&own[4..]), [7, u32::MAX]);
        numbers_mut::<f32>(&mut own[..8]).fill(0.25);
        assert_eq!(words, [0.25f32.to_bits(), 0.25f32.to_bits(), u32::MAX]);
        // Wherever no bytes are, they are no numbers.
        assert!(numbers::<f32>(&bytes[1..1]).is_empty() && numbers_mut::<u32>(&mut []).is_empty());
        // The size of a type is that of its format.
        assert_eq!([f32::DTYPE, u32::DTYPE, u16::DTYPE, u8::DTYPE].map(|dtype| dtype.bytes(1)), [4, 4, 2, 1]);
    }

    #[test]
    #[should_panic(expected = "not numbers of fp32")]
    fn half_a_number_is_refused() {
        numbers::<f32>(&[0; 6]);
    }
}
