//! Defines GELU by the error function: x/2 · (1 + erf(x/√2)) (Hendrycks and Gimpel 2016, §2).

use super::*;

pub(super) struct ExactGelu;

pub(super) const KIND: LayerKind = LayerKind {
    input_use: InputUse::Always,
    family: "curve",
    // As much as the approximation.
    flops: [9.0, 16.0, 0.0],
    ..LayerKind::new("exact_gelu", |_| Ok(Layer::ExactGelu))
};

impl LayerRule for ExactGelu {}

/// The error function, 2/√π · ∫₀ˣ e^(−t²) dt.
///
/// ```
/// assert!((lockstep_models::layer::erf(1.0) - 0.842_700_792_9).abs() < 1e-10);
/// ```
pub fn erf(x: f64) -> f64 {
    libm::erf(x)
}
