//! Computes activations of straight or parabolic pieces: ReLU6, the hard sigmoid and the hard swish.

use lockstep_models::Layer;

use super::activation::{Activation, Curve};
use super::{Head, Wanted};

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    match of.layer {
        Layer::Relu6 => Some(Activation::<Relu6>::boxed(of.threads)),
        Layer::HardSigmoid => Some(Activation::<HardSigmoid>::boxed(of.threads)),
        Layer::HardSwish => Some(Activation::<HardSwish>::boxed(of.threads)),
        _ => None,
    }
}

/// y = min(max(x, 0), 6).
struct Relu6;

impl Curve for Relu6 {
    const FROM_INPUT: bool = false;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        x.clamp(0.0, 6.0)
    }

    #[inline(always)]
    fn derivative(y: f32) -> f32 {
        if y > 0.0 && y < 6.0 { 1.0 } else { 0.0 }
    }
}

/// y = min(max(x/6 + 1/2, 0), 1).
struct HardSigmoid;

impl Curve for HardSigmoid {
    const FROM_INPUT: bool = false;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        (x * (1.0 / 6.0) + 0.5).clamp(0.0, 1.0)
    }

    #[inline(always)]
    fn derivative(y: f32) -> f32 {
        if y > 0.0 && y < 1.0 { 1.0 / 6.0 } else { 0.0 }
    }
}

/// y = x · min(max(x/6 + 1/2, 0), 1).
struct HardSwish;

impl Curve for HardSwish {
    const FROM_INPUT: bool = true;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * HardSigmoid::value(x)
    }

    /// dy/dx = x/3 + 1/2 between −3 and 3, 0 below and 1 above.
    #[inline(always)]
    fn derivative(x: f32) -> f32 {
        if x <= -3.0 {
            0.0
        } else if x >= 3.0 {
            1.0
        } else {
            x * (1.0 / 3.0) + 0.5
        }
    }
}
