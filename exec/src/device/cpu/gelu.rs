//! Computes GELU by its tanh approximation, with the derivative from its input.

use lockstep_models::Layer;

use super::activation::{Activation, Curve};
use super::{Head, Wanted};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    matches!(of.layer, Layer::Gelu).then(|| Activation::<Gelu>::boxed(of.threads))
}

/// √(2/π), and the weight of the cube.
const SCALE: f32 = 0.797_884_6;
const CUBE: f32 = 0.044_715;

/// y = x/2 · (1 + tanh u) with u = √(2/π) · (x + 0.044715·x³).
struct Gelu;

/// tanh u.
#[inline(always)]
fn bend(x: f32) -> f32 {
    (SCALE * (x + CUBE * x * x * x)).tanh()
}

impl Curve for Gelu {
    const FROM_INPUT: bool = true;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        0.5 * x * (1.0 + bend(x))
    }

    /// dy/dx = (1 + tanh u)/2 + x/2 · (1 − tanh² u) · du/dx.
    #[inline(always)]
    fn derivative(x: f32) -> f32 {
        let bent = bend(x);
        0.5 * (1.0 + bent) + 0.5 * x * (1.0 - bent * bent) * (SCALE * (1.0 + 3.0 * CUBE * x * x))
    }
}
