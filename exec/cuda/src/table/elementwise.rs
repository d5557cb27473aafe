//! Declares the kernels of additions and ReLUs: `elementwise.cu`.

use super::ELEMENTWISE;
use crate::kernel::kernels;
use crate::{Geometry, View, ViewMut};

kernels! {
    /// `y ← a + b`, rectified or not; `y` may alias an input.
    Add<A> = ELEMENTWISE::add on Geometry::groups(all), all = u64::from(elements); {
        a: View<A>[all],
        b: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
        rectified: bool,
    }

    /// `y ← max(x, 0)`; `y` may alias `x`.
    ReluForward<A> = ELEMENTWISE::relu_forward on Geometry::groups(all), all = u64::from(elements); {
        x: View<A>[all],
        y: ViewMut<A>[all],
        elements: u32,
    }

    /// The gradient of a ReLU's input from its output; for an addition with a ReLU those of both inputs, to two
    /// tensors.
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
