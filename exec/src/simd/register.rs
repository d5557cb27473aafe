//! Defines what kernels need of a vector register, so that each is written once for all widths.

/// A register of [`Register::WIDTH`] elements.
///
/// # Safety
/// The processor must have the implementation's instructions wherever a method runs. [`super::in_registers`] ensures
/// it; it also compiles the caller for them, into which all methods are inlined.
pub(crate) unsafe trait Register: Copy {
    /// Elements; it divides the images that lie side by side.
    const WIDTH: usize;

    /// `value` in each element.
    fn splat(value: f32) -> Self;

    /// # Safety
    /// `from` points to WIDTH elements.
    unsafe fn load(from: *const f32) -> Self;

    /// The elements at `from` if `condition`, else zeros.
    ///
    /// # Safety
    /// As [`Register::load`], whatever `condition` is.
    unsafe fn load_if(from: *const f32, condition: bool) -> Self;

    /// The first `count` elements, then zeros.
    ///
    /// # Safety
    /// `from` points to `count` elements, at most WIDTH.
    unsafe fn load_first(from: *const f32, count: usize) -> Self;

    /// # Safety
    /// `to` points to WIDTH elements that nothing else accesses.
    unsafe fn store(self, to: *mut f32);

    /// Stores the first `count` elements.
    ///
    /// # Safety
    /// `to` points to `count` elements, at most WIDTH, that nothing else accesses.
    unsafe fn store_first(self, to: *mut f32, count: usize);

    fn add(self, other: Self) -> Self;

    fn sub(self, other: Self) -> Self;

    fn mul(self, other: Self) -> Self;

    /// `self · factor + addend`, as [`super::mul_add`] rounds it.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// `self` where `y` is positive or not a number, else 0.
    fn where_passes(self, y: Self) -> Self;

    /// Row i becomes column i.
    ///
    /// # Panics
    /// Unless there are WIDTH rows.
    fn transpose(rows: &mut [Self]);
}
