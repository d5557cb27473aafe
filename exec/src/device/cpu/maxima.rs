//! Computes maximum pooling of a plane: the largest value under each window and its place, for eight windows at a time
//! where these lie inside the plane.

use super::window::Window;

/// Windows of a row that are computed together.
const LANES: usize = 8;

/// The largest `value(x)` under each window and its place in the plane, the first of equals; padding is never selected.
#[inline(always)]
pub(crate) fn max_forward(
    window: &Window,
    plane: &[f32],
    value: impl Fn(f32) -> f32 + Copy,
    output: &mut [f32],
    best: &mut [u32],
) {
    let width = window.output.1;
    let rows = output.chunks_exact_mut(width).zip(best.chunks_exact_mut(width)).enumerate();
    let halves = window.kernel == (2, 2)
        && window.stride == (2, 2)
        && window.padding == (0, 0)
        && 2 * window.output.0 <= window.input.0
        && 2 * window.output.1 <= window.input.1;
    for (y, (output, best)) in rows {
        match window.stride.1 {
            _ if halves => half_row(window.input.1, plane, value, y, output, best),
            1 => row::<1>(window, plane, value, y, output, best),
            2 => row::<2>(window, plane, value, y, output, best),
            _ => each(window, plane, value, y, 0..width, output, best),
        }
    }
}

/// The row `y` of 2 × 2 windows side by side over rows of `width` elements; two to five times faster than [`row`].
#[inline(always)]
fn half_row(
    width: usize,
    plane: &[f32],
    value: impl Fn(f32) -> f32 + Copy,
    y: usize,
    output: &mut [f32],
    best: &mut [u32],
) {
    let upper = plane[2 * y * width..][..width].chunks_exact(2);
    let lower = plane[(2 * y + 1) * width..][..width].chunks_exact(2);
    let mut place = (2 * y * width) as u32;
    for (((out, best), upper), lower) in output.iter_mut().zip(best).zip(upper).zip(lower) {
        let (mut at, mut largest) = (place, value(upper[0]));
        for (x, shift) in [(upper[1], 1), (lower[0], width as u32), (lower[1], width as u32 + 1)] {
            let larger = value(x) > largest;
            largest = if larger { value(x) } else { largest };
            at = if larger { place + shift } else { at };
        }
        (*out, *best) = (largest, at);
        place += 2;
    }
}

/// The row `y` of windows that are `STRIDE` elements apart; those beyond the left or right edge one by one.
#[inline(always)]
fn row<const STRIDE: usize>(
    window: &Window,
    plane: &[f32],
    value: impl Fn(f32) -> f32 + Copy,
    y: usize,
    output: &mut [f32],
    best: &mut [u32],
) {
    let (width, padding) = (window.input.1, window.padding.1);
    // Windows start..end lie between both edges.
    let start = padding.div_ceil(STRIDE);
    let end = (width + padding).checked_sub(window.kernel.1).map_or(0, |last| last / STRIDE + 1).min(output.len());
    let Some(mut x) = end.checked_sub(LANES).filter(|last| *last >= start) else {
        return each(window, plane, value, y, 0..output.len(), output, best);
    };
    each(window, plane, value, y, 0..start, output, best);
    each(window, plane, value, y, end..output.len(), output, best);
    // From the right, and the last group overlaps the one before it.
    loop {
        let (mut largest, mut at, mut empty) = ([f32::NEG_INFINITY; LANES], [0; LANES], true);
        for row in (0..window.kernel.0).filter_map(|tap| window.input_row(y, tap)) {
            for tap in 0..window.kernel.1 {
                let first = row * width + x * STRIDE + tap - padding;
                let source = &plane[first..][..(LANES - 1) * STRIDE + 1];
                for lane in 0..LANES {
                    let candidate = value(source[lane * STRIDE]);
                    let larger = empty | (candidate > largest[lane]);
                    largest[lane] = if larger { candidate } else { largest[lane] };
                    at[lane] = if larger { (first + lane * STRIDE) as u32 } else { at[lane] };
                }
                empty = false;
            }
        }
        output[x..x + LANES].copy_from_slice(&largest);
        best[x..x + LANES].copy_from_slice(&at);
        if x == start {
            break;
        }
        x = x.saturating_sub(LANES).max(start);
    }
}

/// The windows `xs` of row `y`, one by one.
#[inline(always)]
fn each(
    window: &Window,
    plane: &[f32],
    value: impl Fn(f32) -> f32 + Copy,
    y: usize,
    xs: std::ops::Range<usize>,
    output: &mut [f32],
    best: &mut [u32],
) {
    let width = window.input.1;
    for x in xs {
        let (mut at, mut largest, mut empty) = (0, f32::NEG_INFINITY, true);
        for row in (0..window.kernel.0).filter_map(|tap| window.input_row(y, tap)) {
            for tap in 0..window.kernel.1 {
                let column = (x * window.stride.1 + tap).wrapping_sub(window.padding.1);
                if column < width {
                    let candidate = value(plane[row * width + column]);
                    if empty || candidate > largest {
                        (at, largest, empty) = (row * width + column, candidate, false);
                    }
                }
            }
        }
        (output[x], best[x]) = (largest, at as u32);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The reference computes each window alone; few different values make equals frequent, and NaN is among them.
        #[test]
        fn groups_of_windows_are_windows_one_by_one(
            (kernel, stride) in ((1usize..5, 1usize..5), (1usize..4, 1usize..4)),
            padding in (0usize..3, 0usize..3),
            input in (1usize..12, 1usize..60),
            seed in any::<u64>(),
        ) {
            let padding = (padding.0.min(kernel.0 / 2), padding.1.min(kernel.1 / 2));
            prop_assume!(input.0 + 2 * padding.0 >= kernel.0 && input.1 + 2 * padding.1 >= kernel.1);
            let out = |i: usize, k: usize, s: usize, p: usize| (i + 2 * p - k) / s + 1;
            let output =
                (out(input.0, kernel.0, stride.0, padding.0), out(input.1, kernel.1, stride.1, padding.1));
            let window = Window { kernel, stride, padding, dilation: (1, 1), input, output };
            let mut state = seed;
            let plane: Vec<f32> = (0..window.input_size())
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    [-2.0, -1.0, 0.5, 3.0, f32::NAN][(state >> 40) as usize % 5]
                })
                .collect();
            let value = |x: f32| x + 0.25;
            let size = window.output_size();
            let (mut fast, mut at) = (vec![0.0; size], vec![u32::MAX; size]);
            max_forward(&window, &plane, value, &mut fast, &mut at);
            let (mut slow, mut places) = (vec![0.0; size], vec![u32::MAX; size]);
            let rows = slow.chunks_exact_mut(output.1).zip(places.chunks_exact_mut(output.1));
            rows.enumerate().for_each(|(y, (slow, places))| each(&window, &plane, value, y, 0..output.1, slow, places));
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!((bits(&fast), at), (bits(&slow), places));
        }
    }
}
