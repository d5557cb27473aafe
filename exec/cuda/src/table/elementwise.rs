//! Additions and ReLUs: `elementwise.cu`.

use super::ELEMENTWISE;
use crate::kernel::kernels;
use crate::{Geometry, View, ViewMut};

kernels! {
    /// `y ← a + b`, rectified or not; `y` may be an input.
    Add<A> = ELEMENTWISE::add on Geometry::groups(all), all = u64::from(elements); {
        a: View<A>[all],
        b: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
        rectified: bool,
    }

    /// `y ← max(x, 0)`; `y` may be `x`.
    ReluForward<A> = ELEMENTWISE::relu_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
    }

    /// The gradient before a ReLU from its output; those of both inputs of an addition with a ReLU, to two tensors.
    ReluBackward<A> = ELEMENTWISE::relu_backward on Geometry::groups(all), all = u64::from(elements); {
        d_y: View<A>[all],
        y: View<A>[all],
        d_x: ViewMut<A>[all],
        d_other: Option<ViewMut<A>>[all],
        elements: u32,
        accumulate: bool,
        accumulate_other: bool,
    }
}
