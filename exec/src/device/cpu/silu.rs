//! Computes SiLU, with the derivative from its input.

use lockstep_models::Layer;

use super::activation::{Activation, Curve};
use super::{Head, Wanted};
use crate::simd::logistic;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    matches!(of.layer, Layer::Silu).then(|| Activation::<Silu>::boxed(of.threads))
}

/// y = x · σ(x) with σ(x) = 1 / (1 + e⁻ˣ).
struct Silu;

impl Curve for Silu {
    const FROM_INPUT: bool = true;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * logistic(x)
    }

    /// dy/dx = σ + x · σ · (1 − σ).
    #[inline(always)]
    fn derivative(x: f32) -> f32 {
        let share = logistic(x);
        share * (1.0 + x * (1.0 - share))
    }
}
