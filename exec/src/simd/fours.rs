//! Implements [`Register`] in plain Rust, for four images side by side, processors without AVX2 and other architectures.

use super::register::Register;

/// Four elements; FUSED where the instructions round a product and its sum once.
#[derive(Clone, Copy)]
pub(crate) struct Fours<const FUSED: bool>([f32; 4]);

impl<const FUSED: bool> Fours<FUSED> {
    #[inline(always)]
    fn with(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let ([a, b, c, d], [w, x, y, z]) = (self.0, other.0);
        Fours([f(a, w), f(b, x), f(c, y), f(d, z)])
    }
}

// SAFETY: every processor runs plain Rust.
unsafe impl<const FUSED: bool> Register for Fours<FUSED> {
    const WIDTH: usize = 4;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Fours([value; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as the caller promises, as in the methods below.
        Fours(unsafe { from.cast::<[f32; 4]>().read() })
    }

    #[inline(always)]
    unsafe fn load_if(from: *const f32, condition: bool) -> Self {
        // SAFETY: as above.
        let found = unsafe { Self::load(from) };
        if condition { found } else { Fours([0.0; 4]) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        let mut found = [0.0; 4];
        for (at, value) in found.iter_mut().enumerate().take(count) {
            // SAFETY: as above.
            *value = unsafe { *from.add(at) };
        }
        Fours(found)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { to.cast::<[f32; 4]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        for (at, value) in self.0.into_iter().enumerate().take(count) {
            // SAFETY: as above.
            unsafe { *to.add(at) = value };
        }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.with(other, |x, y| x + y)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.with(other, |x, y| x - y)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.with(other, |x, y| x * y)
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        if FUSED {
            let product = |at: usize| self.0[at].mul_add(factor.0[at], addend.0[at]);
            return Fours([product(0), product(1), product(2), product(3)]);
        }
        self.mul(factor).add(addend)
    }

    #[inline(always)]
    fn where_passes(self, y: Self) -> Self {
        self.with(y, |x, y| if y <= 0.0 { 0.0 } else { x })
    }

    #[inline(always)]
    fn transpose(rows: &mut [Self]) {
        let rows: &mut [Self; 4] = rows.try_into().expect("four rows");
        let [a, b, c, d] = rows.map(|row| row.0);
        for (at, row) in rows.iter_mut().enumerate() {
            *row = Fours([a[at], b[at], c[at], d[at]]);
        }
    }
}
