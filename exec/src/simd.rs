//! Runs loops with the vector instructions of the processor, chosen at run time.
//!
//! A plain build targets the oldest x86-64, whose vectors hold four floats. Most loops of the CPU's kernels are ordinary
//! Rust that the compiler vectorises; [`wide`] also compiles them for AVX2 and AVX-512. Rust never fuses a
//! multiplication and an addition by itself, so all versions give the same bits. Loops that must stay in registers are
//! written over a [`Register`] and called with [`in_registers`].

mod dispatch;
#[cfg(target_arch = "x86_64")]
mod eights;
mod exponentials;
mod fours;
mod instructions;
mod register;
#[cfg(target_arch = "x86_64")]
mod sixteens;

pub(crate) use dispatch::in_registers;
#[cfg(target_arch = "x86_64")]
pub(crate) use eights::Eights;
pub(crate) use exponentials::{exp, logistic, maximum, replace_and_sum, tanh};
pub(crate) use fours::Fours;
pub use instructions::Instructions;
pub(crate) use register::Register;
#[cfg(target_arch = "x86_64")]
pub(crate) use sixteens::Sixteens;

/// Computes an expression in a function compiled for [`Instructions::current`]. Functions that it calls must be
/// `#[inline(always)]`.
macro_rules! wide {
    ($work:expr) => {
        $crate::simd::in_widest(
            #[inline(always)]
            || $work,
        )
    };
}
pub(crate) use wide;

/// Calls `work`, which must be `#[inline(always)]`, in a function compiled for [`Instructions::current`]: see [`wide`].
#[inline]
pub(crate) fn in_widest<R>(work: impl FnOnce() -> R) -> R {
    match Instructions::current() {
        // SAFETY: the processor has them.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { avx512(work) },
        // SAFETY: the processor has them.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { avx2(work) },
        _ => work(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(crate) fn avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
pub(crate) fn avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Whether every processor of the build's target fuses multiplications with additions.
pub(crate) const FUSED: bool = cfg!(target_arch = "aarch64");

/// `x · factor + addend`, rounded as kernels over registers round it: once where the instructions can, else twice.
#[cfg(test)]
pub(crate) fn mul_add(x: f32, factor: f32, addend: f32) -> f32 {
    let fused = Instructions::current() != Instructions::Portable || FUSED;
    if fused { x.mul_add(factor, addend) } else { x * factor + addend }
}

/// The sum of a power of two of elements: the second half is added to the first until one is left.
#[inline(always)]
pub(crate) fn sum_in_halves<const N: usize>(mut values: [f32; N]) -> f32 {
    let mut width = N / 2;
    while width > 0 {
        for at in 0..width {
            values[at] += values[at + width];
        }
        width /= 2;
    }
    values[0]
}

/// `destination += source`, element by element.
pub fn add_into(destination: &mut [f32], source: &[f32]) {
    assert_eq!(destination.len(), source.len(), "two slices of one length");
    wide!(destination.iter_mut().zip(source).for_each(|(d, s)| *d += *s));
}

/// Writes values as a new gradient, or adds them to the present one.
#[inline(always)]
pub(crate) fn put(target: &mut [f32], accumulate: bool, values: impl Iterator<Item = f32>) {
    let all = target.iter_mut().zip(values);
    if accumulate { all.for_each(|(t, value)| *t += value) } else { all.for_each(|(t, value)| *t = value) }
}

/// Number of partial sums in the sums below; a multiple of every vector's width.
pub(crate) const LANES: usize = 32;

/// Σ f(x, y) over the pairs, in 32 partial sums that are then added in pairs: one order for all vector widths.
#[inline(always)]
pub(crate) fn sum_pairs(xs: &[f32], ys: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let mut x_blocks = xs.chunks_exact(LANES);
    let mut y_blocks = ys.chunks_exact(LANES);
    for (x, y) in x_blocks.by_ref().zip(y_blocks.by_ref()) {
        for lane in 0..LANES {
            lanes[lane] += f(x[lane], y[lane]);
        }
    }
    for ((lane, x), y) in lanes.iter_mut().zip(x_blocks.remainder()).zip(y_blocks.remainder()) {
        *lane += f(*x, *y);
    }
    sum_in_halves(lanes)
}

/// Σ f(x), in the same order.
#[inline(always)]
pub(crate) fn sum(xs: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    sum_pairs(xs, xs, |x, _| f(x))
}

/// For N images side by side: the M sums over `places` of `f(place, image)`, each image's in the order of [`sum_pairs`].
#[inline(always)]
pub(crate) fn sums_side_by_side<const N: usize, const M: usize>(
    places: usize,
    f: impl Fn(usize, usize) -> [f32; M],
) -> [[f32; N]; M] {
    let mut lanes = [[[0.0f32; N]; M]; LANES];
    for place in 0..places {
        let lane = &mut lanes[place % LANES];
        for image in 0..N {
            let values = f(place, image);
            for (lane, value) in lane.iter_mut().zip(values) {
                lane[image] += value;
            }
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        let (first, second) = lanes.split_at_mut(width);
        for (first, second) in first.iter_mut().zip(second) {
            let (first, second) = (first.as_flattened_mut(), second.as_flattened());
            first.iter_mut().zip(second).for_each(|(first, second)| *first += *second);
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_added() {
        let source: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let mut destination = vec![1.0; 100];
        add_into(&mut destination, &source);
        assert!(destination.iter().zip(&source).all(|(d, s)| *d == 1.0 + *s));
    }

    /// Planes shorter and longer than the number of partial sums, with a remainder.
    #[test]
    fn sums_side_by_side_are_those_of_each_plane() {
        for places in [0, 1, 5, 32, 33, 100] {
            let value = |place: usize, image: usize| ((place * 37 + image * 11) % 23) as f32 / 7.0 - 1.5;
            let found =
                sums_side_by_side::<8, 2>(places, |place, image| [value(place, image), value(place, image) * 3.0]);
            for (image, (once, thrice)) in found[0].iter().zip(found[1]).enumerate() {
                let plane: Vec<f32> = (0..places).map(|place| value(place, image)).collect();
                let expected = [sum(&plane, |x| x), sum(&plane, |x| x * 3.0)].map(f32::to_bits);
                assert_eq!([once.to_bits(), thrice.to_bits()], expected, "{places} places");
            }
        }
    }
}
