//! Computes GELU by the error function, with the derivative from its input.

use lockstep_models::Layer;
use lockstep_models::layer::erf;

use super::activation::{Activation, Curve};
use super::{Head, Wanted};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    matches!(of.layer, Layer::ExactGelu).then(|| Activation::<ExactGelu>::boxed(of.threads))
}

/// 1/√(2π).
const DENSITY: f32 = 0.398_942_3;

/// y = x · Φ(x) with Φ(x) = (1 + erf(x/√2)) / 2.
struct ExactGelu;

/// Φ(x).
#[inline(always)]
fn share(x: f32) -> f32 {
    0.5 * (1.0 + erf(f64::from(x * std::f32::consts::FRAC_1_SQRT_2)) as f32)
}

impl Curve for ExactGelu {
    const FROM_INPUT: bool = true;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * share(x)
    }

    /// dy/dx = Φ + x · e^(−x²/2) / √(2π).
    #[inline(always)]
    fn derivative(x: f32) -> f32 {
        share(x) + x * DENSITY * (-0.5 * x * x).exp()
    }
}
