//! Maps filter and pooling windows to places of an image, and unfolds an image into the columns of a matrix and back.
//!
//! A convolution is then a matrix product (im2col; Chellapilla et al. 2006, §3): column p of the unfolded image holds
//! the pixels under the filter at place p.

use std::ops::Range;

use lockstep_models::Shape;

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
    /// The windows of filters or pools of `kernel` over images of `input` that give images of `output`.
    pub(crate) fn new([kernel, stride, padding, dilation]: [(u32, u32); 4], input: Shape, output: Shape) -> Window {
        let [kernel, stride, padding, dilation] =
            [kernel, stride, padding, dilation].map(|(down, along)| (down as usize, along as usize));
        let [input, output] = [input, output].map(|shape| shape.image().sides());
        let [input, output] = [input, output].map(|(rows, columns)| (rows as usize, columns as usize));
        Window { kernel, stride, padding, dilation, input, output }
    }

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

    /// The outputs along one axis whose tap `tap` is inside the image, and the input place of the first of them.
    #[inline(always)]
    fn reach(
        tap: usize,
        (stride, padding, dilation): (usize, usize, usize),
        input: usize,
        output: usize,
    ) -> (Range<usize>, usize) {
        let shift = tap * dilation;
        let first = padding.saturating_sub(shift).div_ceil(stride);
        let end = (input + padding).saturating_sub(shift).div_ceil(stride).min(output);
        (first..end.max(first), (first * stride + shift).wrapping_sub(padding))
    }

    /// Calls `work` for every row of the unfolded matrix (a channel and a tap): the part of `rows` and of the columns
    /// where the tap is inside the image, and the place in the plane of the first.
    #[inline(always)]
    fn taps_inside(
        &self,
        channels: usize,
        rows: &Range<usize>,
        mut work: impl FnMut(usize, usize, Range<usize>, Range<usize>, usize),
    ) {
        for tap_y in 0..self.kernel.0 {
            let axis = (self.stride.0, self.padding.0, self.dilation.0);
            let (ys, first_row) = Self::reach(tap_y, axis, self.input.0, self.output.0);
            let above = rows.start.saturating_sub(ys.start);
            let ys = ys.start.max(rows.start)..ys.end.min(rows.end);
            for tap_x in 0..self.kernel.1 {
                let axis = (self.stride.1, self.padding.1, self.dilation.1);
                let (xs, first_column) = Self::reach(tap_x, axis, self.input.1, self.output.1);
                let start = first_row.wrapping_add(above * self.stride.0).wrapping_mul(self.input.1);
                let start = start.wrapping_add(first_column);
                for channel in 0..channels {
                    let row = channel * self.taps() + tap_y * self.kernel.1 + tap_x;
                    work(channel, row, ys.clone(), xs.clone(), start);
                }
            }
        }
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
        let (plane, width) = (self.input_size(), self.output.1);
        self.taps_inside(
            image.len() / plane,
            &rows,
            #[inline(always)]
            |channel, row, ys, xs, start| {
                let target = &mut columns[row * distance + offset..][..rows.len() * width];
                if ys.is_empty() || xs.is_empty() {
                    return target.fill(0.0);
                }
                let source = &image[channel * plane + start..(channel + 1) * plane];
                if ys.len() < rows.len() || xs.len() < width {
                    target.fill(0.0);
                }
                let target = &mut target[(ys.start - rows.start) * width..(ys.end - rows.start) * width];
                let lines = target.chunks_exact_mut(width).zip(source.chunks(self.stride.0 * self.input.1));
                match (self.stride.1, xs.len()) {
                    (1, BLOCK..) => {
                        lines.for_each(|(target, source)| copy_row(&source[..xs.len()], &mut target[xs.clone()]));
                    }
                    (stride, _) => {
                        for (target, source) in lines {
                            target[xs.clone()].iter_mut().zip(source.iter().step_by(stride)).for_each(|(t, s)| *t = *s);
                        }
                    }
                }
            },
        );
    }

    /// Adds what [`Window::unfold`] would have taken from a place of `image` back to that place.
    #[inline(always)]
    pub(crate) fn fold(&self, columns: &[f32], distance: usize, offset: usize, rows: Range<usize>, image: &mut [f32]) {
        let (plane, width) = (self.input_size(), self.output.1);
        self.taps_inside(
            image.len() / plane,
            &rows,
            #[inline(always)]
            |channel, row, ys, xs, start| {
                if ys.is_empty() || xs.is_empty() {
                    return;
                }
                let source = &columns[row * distance + offset..][..rows.len() * width];
                let source = &source[(ys.start - rows.start) * width..(ys.end - rows.start) * width];
                let target = &mut image[channel * plane + start..(channel + 1) * plane];
                let lines = target.chunks_mut(self.stride.0 * self.input.1).zip(source.chunks_exact(width));
                match (self.stride.1, xs.len()) {
                    (1, BLOCK..) => {
                        lines.for_each(|(target, source)| add_row(&source[xs.clone()], &mut target[..xs.len()]));
                    }
                    (stride, _) => {
                        for (target, source) in lines {
                            target.iter_mut().step_by(stride).zip(&source[xs.clone()]).for_each(|(t, s)| *t += *s);
                        }
                    }
                }
            },
        );
    }
}

/// Places of a short row processed at once.
const BLOCK: usize = 8;

/// Copies a row of eight or more by eights, the last eight overlapping, since a call of `memcpy` costs more than the copy.
#[inline(always)]
fn copy_row(source: &[f32], target: &mut [f32]) {
    let len = target.len();
    let mut start = 0;
    while start + BLOCK < len {
        target[start..start + BLOCK].copy_from_slice(&source[start..start + BLOCK]);
        start += BLOCK;
    }
    target[len - BLOCK..].copy_from_slice(&source[len - BLOCK..]);
}

/// Adds a row of eight or more by eights.
#[inline(always)]
fn add_row(source: &[f32], target: &mut [f32]) {
    let mut targets = target.chunks_exact_mut(BLOCK);
    let mut sources = source.chunks_exact(BLOCK);
    for (target, source) in targets.by_ref().zip(sources.by_ref()) {
        for lane in 0..BLOCK {
            target[lane] += source[lane];
        }
    }
    for (target, source) in targets.into_remainder().iter_mut().zip(sources.remainder()) {
        *target += *source;
    }
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
