//! Squares every element, with the derivative from its input.

use lockstep_models::Layer;

use super::activation::{Activation, Curve};
use super::{Head, Wanted};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    matches!(of.layer, Layer::Square).then(|| Activation::<Square>::boxed(of.threads))
}

/// y = x², dy/dx = 2x.
struct Square;

impl Curve for Square {
    const FROM_INPUT: bool = true;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * x
    }

    #[inline(always)]
    fn derivative(x: f32) -> f32 {
        2.0 * x
    }
}
