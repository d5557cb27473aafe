//! Calls a kernel over registers with those of the processor, chosen at run time.

/// Calls `kernel::<R, N>(arguments…)`, which must be `#[inline(always)]`, with the registers R of
/// [`Instructions::current`](super::Instructions::current), narrower ones where N elements do not fill them, and N images
/// side by side, in a function compiled for them;
/// `kernel[a, b, c](arguments…)` calls `kernel::<R, N, C>`, C being a for registers of sixteen elements, b of eight, c of
/// four.
///
/// The kernel is unsafe: the caller has asserted what it requires besides the instructions.
macro_rules! in_registers {
    ($kernel:ident($($argument:expr),* $(,)?)) => {
        $crate::simd::in_registers!(@
            [$kernel::<$crate::simd::Sixteens, _>], [$kernel::<$crate::simd::Eights, _>],
            [$kernel::<$crate::simd::Fours<true>, _>], [$kernel::<$crate::simd::Fours<{ $crate::simd::FUSED }>, _>],
            $($argument),*)
    };
    ($kernel:ident[$sixteen:expr, $eight:expr, $four:expr]($($argument:expr),* $(,)?)) => {
        $crate::simd::in_registers!(@
            [$kernel::<$crate::simd::Sixteens, _, { $sixteen }>], [$kernel::<$crate::simd::Eights, _, { $eight }>],
            [$kernel::<$crate::simd::Fours<true>, _, { $four }>],
            [$kernel::<$crate::simd::Fours<{ $crate::simd::FUSED }>, _, { $four }>], $($argument),*)
    };
    (@ [$($sixteens:tt)*], [$($eights:tt)*], [$($fused:tt)*], [$($fours:tt)*], $($argument:expr),*) => {
        match $crate::simd::Instructions::current() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has AVX-512, and the caller has asserted the rest.
            $crate::simd::Instructions::Avx512 if N >= 16 => unsafe {
                $crate::simd::avx512(#[inline(always)] || $($sixteens)*($($argument),*))
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has AVX2 and FMA, and the caller has asserted the rest.
            $crate::simd::Instructions::Avx512 | $crate::simd::Instructions::Avx2 if N >= 8 => unsafe {
                $crate::simd::avx2(#[inline(always)] || $($eights)*($($argument),*))
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            $crate::simd::Instructions::Avx512 | $crate::simd::Instructions::Avx2 => unsafe {
                $crate::simd::avx2(#[inline(always)] || $($fused)*($($argument),*))
            },
            // SAFETY: the caller has asserted what the kernel requires.
            _ => unsafe { $($fours)*($($argument),*) },
        }
    };
}
pub(crate) use in_registers;
