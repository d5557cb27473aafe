//! Computes GELU by its tanh approximation, with the derivative from its input.

use lockstep_models::Layer;

use super::activation::{Activation, Curve};
use super::{Head, Wanted};
use crate::simd::logistic;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    matches!(of.layer, Layer::Gelu).then(|| Activation::<Gelu>::boxed(of.threads))
}

/// √(2/π), and the weight of the cube.
const SCALE: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

/// y = x/2 · (1 + tanh u) with u = √(2/π) · (x + 0.044715·x³), which is x · σ(2u).
struct Gelu;

/// σ(2u) = 1 / (1 + e⁻²ᵘ).
#[inline(always)]
fn share(x: f32) -> f32 {
    logistic(2.0 * SCALE * (x + CUBE * x * x * x))
}

impl Curve for Gelu {
    const FROM_INPUT: bool = true;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * share(x)
    }

    /// dy/dx = σ + 2x · σ · (1 − σ) · du/dx.
    #[inline(always)]
    fn derivative(x: f32) -> f32 {
        let share = share(x);
        share + 2.0 * x * share * (1.0 - share) * (SCALE * (1.0 + 3.0 * CUBE * x * x))
    }
}
