//! Where a filter or pooling window lies on an image, and an image unfolded into the columns of a matrix and back.
//!
//! A convolution is then a matrix product (im2col; Chellapilla et al. 2006, §3): column p of the unfolded image holds what the
//! filter sees at place p.

use std::ops::Range;

/// The windows of a convolution or pooling over images of one size; pairs are (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) kernel: (usize, usize),
    pub(crate) stride: (usize, usize),
    pub(crate) padding: (usize, usize),
    pub(crate) dilation: (usize, usize),
    pub(crate) input: (usize, usize),
    pub(crate) output: (usize, usize),
}

impl Window {
    /// Elements of one input plane.
    pub(crate) fn input_size(&self) -> usize {
        self.input.0 * self.input.1
    }

    /// Elements of one output plane.
    pub(crate) fn output_size(&self) -> usize {
        self.output.0 * self.output.1
    }

    /// Places of the filter.
    pub(crate) fn taps(&self) -> usize {
        self.kernel.0 * self.kernel.1
    }

    /// Whether the unfolded image is the image itself.
    pub(crate) fn is_pointwise(&self) -> bool {
        self.kernel == (1, 1) && self.stride == (1, 1) && self.padding == (0, 0)
    }

    /// The input row under tap row `tap` of the windows of output row `y`, if it is inside the image.
    #[inline(always)]
    pub(crate) fn input_row(&self, y: usize, tap: usize) -> Option<usize> {
        let row = (y * self.stride.0 + tap * self.dilation.0).wrapping_sub(self.padding.0);
        (row < self.input.0).then_some(row)
    }

    /// The output columns whose tap column `tap` is inside the image, and the input column of the first of them.
    #[inline(always)]
    pub(crate) fn output_columns(&self, tap: usize) -> (Range<usize>, usize) {
        let (shift, padding, stride) = (tap * self.dilation.1, self.padding.1, self.stride.1);
        let first = padding.saturating_sub(shift).div_ceil(stride);
        let end = (self.input.1 + padding).saturating_sub(shift).div_ceil(stride).min(self.output.1);
        (first..end.max(first), (first * stride + shift).wrapping_sub(padding))
    }

    /// Unfolds output rows `rows` of `image` (`channels` planes) into `columns`: row (c, tap) of the matrix starts at
    /// `(c · taps + tap) · distance + offset`.
    #[inline(always)]
    pub(crate) fn unfold(
        &self,
        image: &[f32],
        rows: Range<usize>,
        columns: &mut [f32],
        distance: usize,
        offset: usize,
    ) {
        let width = self.output.1;
        for (c, plane) in image.chunks_exact(self.input_size()).enumerate() {
            for (tap_y, tap_x) in (0..self.kernel.0).flat_map(|y| (0..self.kernel.1).map(move |x| (y, x))) {
                let (inside, start) = self.output_columns(tap_x);
                let row = c * self.taps() + tap_y * self.kernel.1 + tap_x;
                let target = &mut columns[row * distance + offset..][..rows.len() * width];
                for (y, target) in rows.clone().zip(target.chunks_exact_mut(width)) {
                    let Some(input_row) = self.input_row(y, tap_y).filter(|_| !inside.is_empty()) else {
                        target.fill(0.0);
                        continue;
                    };
                    let source = &plane[input_row * self.input.1 + start..(input_row + 1) * self.input.1];
                    if inside.start > 0 || inside.end < width {
                        target[..inside.start].fill(0.0);
                        target[inside.end..].fill(0.0);
                    }
                    let target = &mut target[inside.clone()];
                    match self.stride.1 {
                        1 => copy_row(&source[..target.len()], target),
                        stride => target.iter_mut().zip(source.iter().step_by(stride)).for_each(|(t, s)| *t = *s),
                    }
                }
            }
        }
    }

    /// Adds what [`Window::unfold`] would have taken from a place of `image` back to that place.
    #[inline(always)]
    pub(crate) fn fold(&self, columns: &[f32], distance: usize, offset: usize, rows: Range<usize>, image: &mut [f32]) {
        let width = self.output.1;
        for (c, plane) in image.chunks_exact_mut(self.input_size()).enumerate() {
            for (tap_y, tap_x) in (0..self.kernel.0).flat_map(|y| (0..self.kernel.1).map(move |x| (y, x))) {
                let (inside, start) = self.output_columns(tap_x);
                if inside.is_empty() {
                    continue;
                }
                let row = c * self.taps() + tap_y * self.kernel.1 + tap_x;
                let source = &columns[row * distance + offset..][..rows.len() * width];
                for (y, source) in rows.clone().zip(source.chunks_exact(width)) {
                    let Some(input_row) = self.input_row(y, tap_y) else { continue };
                    let target = &mut plane[input_row * self.input.1 + start..(input_row + 1) * self.input.1];
                    let source = &source[inside.clone()];
                    match self.stride.1 {
                        1 => target[..source.len()].iter_mut().zip(source).for_each(|(t, s)| *t += *s),
                        stride => target.iter_mut().step_by(stride).zip(source).for_each(|(t, s)| *t += *s),
                    }
                }
            }
        }
    }
}

/// Copies a short row by eights, the last eight overlapping, since a call of `memcpy` costs more than the copy.
#[inline(always)]
fn copy_row(source: &[f32], target: &mut [f32]) {
    const BLOCK: usize = 8;
    let len = target.len();
    if len < BLOCK {
        target.iter_mut().zip(source).for_each(|(t, s)| *t = *s);
        return;
    }
    let mut start = 0;
    while start + BLOCK < len {
        target[start..start + BLOCK].copy_from_slice(&source[start..start + BLOCK]);
        start += BLOCK;
    }
    target[len - BLOCK..].copy_from_slice(&source[len - BLOCK..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ⟨unfold(x), m⟩ = ⟨x, fold(m)⟩ for every x and m: the two are transposes of each other.
    #[test]
    fn fold_is_the_transpose_of_unfold() {
        let cases =
            [((3, 3), (1, 1), (1, 1), (1, 1)), ((2, 3), (2, 1), (0, 2), (1, 2)), ((1, 5), (3, 2), (1, 3), (2, 2))];
        for (kernel, stride, padding, dilation) in cases {
            let (input, channels) = ((7, 11), 2);
            let out = |i: usize, k: usize, s: usize, p: usize, d: usize| (i + 2 * p - d * (k - 1) - 1) / s + 1;
            let output = (
                out(input.0, kernel.0, stride.0, padding.0, dilation.0),
                out(input.1, kernel.1, stride.1, padding.1, dilation.1),
            );
            let window = Window { kernel, stride, padding, dilation, input, output };
            let image: Vec<f32> = (0..channels * window.input_size()).map(|i| (i * 7 % 13) as f32).collect();
            let (places, rows) = (window.output_size(), channels * window.taps());
            let matrix: Vec<f32> = (0..rows * places).map(|i| (i * 5 % 11) as f32).collect();
            let mut columns = vec![f32::NAN; rows * places];
            window.unfold(&image, 0..output.0, &mut columns, places, 0);
            let mut folded = vec![0.0; image.len()];
            window.fold(&matrix, places, 0, 0..output.0, &mut folded);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            assert_eq!(dot(&columns, &matrix), dot(&image, &folded), "{window:?}"); // whole numbers: exact
        }
    }

    /// A 2 × 3 image under a 2 × 2 filter: the columns are its two windows.
    #[test]
    fn unfolds_by_hand() {
        let window =
            Window { kernel: (2, 2), stride: (1, 1), padding: (0, 0), dilation: (1, 1), input: (2, 3), output: (1, 2) };
        let mut columns = vec![0.0; 8];
        window.unfold(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0..1, &mut columns, 2, 0);
        assert_eq!(columns, [1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0, 6.0]);
    }
}
