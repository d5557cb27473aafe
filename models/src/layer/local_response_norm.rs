//! Defines local response normalisation across channels.

use super::window::MAX_WINDOW;
use super::*;

/// Local response normalisation across channels, `y = x / (k + α·Σ x²)^β`, the sum over the `size` channels around x's
/// own at its place (Krizhevsky, Sutskever, Hinton 2012, §3.3; Caffe's α is `size` times this one).
#[derive(Debug, Clone, PartialEq)]
pub struct LocalResponseNorm {
    /// Channels that are summed, odd, x's own in the middle; fewer at the first and last channels.
    pub size: u32,
    /// α: what the sum of squares is multiplied with.
    pub alpha: f32,
    /// β: the exponent.
    pub beta: f32,
    /// k: what the sum is added to.
    pub k: f32,
}

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    reads_output: true,
    keys: &["size", "alpha", "beta", "k"],
    onnx: &[("LRN", |of| {
        let size = of.size("size")?.unwrap_or(0);
        let alpha = divided(of.number("alpha")?.unwrap_or(1e-4), size);
        let (beta, k) = (of.number("beta")?.unwrap_or(0.75), of.number("bias")?.unwrap_or(1.0));
        Ok(Layer::LocalResponseNorm(LocalResponseNorm { size, alpha, beta, k }))
    })],
    caffe: CaffeKind::new(&["LRN"], &["lrn_param"], "local_size alpha beta k norm_region engine", |of| {
        if of.word("norm_region")?.is_some_and(|region| region != "ACROSS_CHANNELS") {
            return Err(of.refuse("norm_region", "only ACROSS_CHANNELS is supported"));
        }
        let size = of.size("local_size")?.unwrap_or(5);
        let alpha = divided(of.number("alpha")?.unwrap_or(1.0), size);
        let (beta, k) = (of.number("beta")?.unwrap_or(0.75), of.number("k")?.unwrap_or(1.0));
        Ok(Layer::LocalResponseNorm(LocalResponseNorm { size, alpha, beta, k }))
    }),
    // The figures of Krizhevsky, Sutskever, Hinton 2012, §3.3.
    ..LayerKind::new("local_response_norm", |of| {
        let (size, alpha) = (of.size("size")?.unwrap_or(5), of.number("alpha")?.unwrap_or(1e-4));
        let (beta, k) = (of.number("beta")?.unwrap_or(0.75), of.number("k")?.unwrap_or(2.0));
        Ok(Layer::LocalResponseNorm(LocalResponseNorm { size, alpha, beta, k }))
    })
};

/// Caffe and ONNX divide α by the number of channels that are summed.
fn divided(alpha: f32, size: u32) -> f32 {
    alpha / size.max(1) as f32
}

impl LayerRule for LocalResponseNorm {
    /// As the input's; the denominator must be positive whatever enters.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        let (size, alpha, beta, k) = (self.size, self.alpha, self.beta, self.k);
        if size % 2 == 0 || size > MAX_WINDOW {
            return Err(format!("size is {size}: it must be odd and at most {MAX_WINDOW}, e.g. 5"));
        }
        for (name, value, fits, wanted) in [
            ("alpha", alpha, alpha >= 0.0, "zero or more, e.g. 1e-4"),
            ("beta", beta, beta >= 0.0, "zero or more, e.g. 0.75"),
            ("k", k, k > 0.0, "positive, e.g. 2.0"),
        ] {
            if !(fits && value.is_finite()) {
                return Err(format!("{name} is {value}: it must be {wanted}"));
            }
        }
        Ok(Signature::elementwise(inputs, inputs[0]).with_whole(&[Dimension::Feature]))
    }

    fn settings(&self) -> String {
        format!(", size = {}, alpha = {}, beta = {}, k = {}", self.size, self.alpha, self.beta, self.k)
    }

    /// An exponent of 0.75 takes two roots, any other a power.
    fn cost_settings(&self) -> String {
        format!(" size{} beta{}", self.size, self.beta)
    }

    fn flops(&self, of: &Node) -> [f64; 3] {
        let each = (f64::from(self.size) + 4.0) * of.input_elements();
        [each, 2.0 * each, 0.0]
    }
}
