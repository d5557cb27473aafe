//! Blurs each channel with a fixed binomial filter and takes every few places (Zhang 2019).

use super::window::{check_window, image_of, places, too_large};
use super::*;

/// Blurring before sampling (Zhang 2019, arXiv:1904.11486, section 3.3): the filter's weights are products of binomial
/// coefficients, 1 2 1 for three taps, and sum to 1. Nothing is learned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BlurPool {
    /// Taps of the filter on each side.
    pub kernel: u32,
    /// Steps of the filter.
    pub stride: (u32, u32),
    /// Zeros added on each side; they count.
    pub padding: (u32, u32),
}

/// Most taps: the coefficients stay exact.
const MOST: u32 = 16;

pub(super) const KIND: LayerKind = LayerKind {
    keys: &["kernel", "stride", "padding"],
    family: "pooling",
    class: KernelClass::Planes,
    ..LayerKind::new("blur_pool", |of| {
        let (stride, padding) = (of.pair("stride")?.unwrap_or((2, 2)), of.pair("padding")?.unwrap_or((0, 0)));
        Ok(Layer::BlurPool(BlurPool { kernel: of.size("kernel")?.unwrap_or(3), stride, padding }))
    })
};

impl BlurPool {
    /// The weights of one side: binomial coefficients divided by their sum.
    pub fn taps(&self) -> Vec<f32> {
        let mut row = vec![1.0f64];
        for _ in 1..self.kernel.min(MOST) {
            let next = (0..=row.len()).map(|at| {
                let before = at.checked_sub(1).map_or(0.0, |at| row[at]);
                (row.get(at).copied().unwrap_or(0.0) + before) / 2.0
            });
            row = next.collect();
        }
        row.into_iter().map(|tap| tap as f32).collect()
    }
}

impl LayerRule for BlurPool {
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let input = image_of(inputs[0])?;
        if !(1..=MOST).contains(&self.kernel) {
            return Err(format!("kernel is {}: it must be between 1 and {MOST}", self.kernel));
        }
        check_window("stride", self.stride, 1)?;
        check_window("padding", self.padding, 0)?;
        let side = |name, size, stride, padding| {
            if padding >= self.kernel {
                return Err(format!("padding is {padding}: it must be less than the kernel's {}", self.kernel));
            }
            places(size, u64::from(self.kernel), stride, padding, false)
                .map_err(|padded| too_large(name, self.kernel, u64::from(self.kernel), padded, inputs[0]))
        };
        Ok(Signature::elementwise(
            inputs,
            Shape::of_image(
                input.channels,
                side("height", input.height, self.stride.0, self.padding.0)?,
                side("width", input.width, self.stride.1, self.padding.1)?,
            ),
        )
        .with_whole(&[Dimension::Row, Dimension::Column]))
    }

    fn settings(&self) -> String {
        let pair = |of: (u32, u32)| format!("[{}, {}]", of.0, of.1);
        format!(", kernel = {}, stride = {}, padding = {}", self.kernel, pair(self.stride), pair(self.padding))
    }

    fn cost_settings(&self) -> String {
        let pair = |of: (u32, u32)| format!("{}x{}", of.0, of.1);
        format!(" k{} s{} p{}", self.kernel, pair(self.stride), pair(self.padding))
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        let flops = 2.0 * f64::from(self.kernel) * f64::from(self.kernel) * of.output_elements();
        [flops, flops, 0.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_are_binomial_and_sum_to_one() {
        let taps = |kernel| BlurPool { kernel, stride: (2, 2), padding: (0, 0) }.taps();
        assert_eq!(taps(1), [1.0]);
        assert_eq!(taps(3), [0.25, 0.5, 0.25]);
        assert_eq!(taps(5), [0.0625, 0.25, 0.375, 0.25, 0.0625]);
        for kernel in 1..=MOST {
            assert_eq!(taps(kernel).iter().sum::<f32>(), 1.0);
        }
    }
}
