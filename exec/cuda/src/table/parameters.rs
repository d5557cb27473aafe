//! Steps on parameters that lie in one piece, sums of buffers and bf16: `optimizer.cu` and `buffers.cu`.
//!
//! `mask` has a bit for each parameter of the model, 32 to a word from the lowest bit on: whether its weight decays. `first` is
//! the number of a range's first parameter.

use super::{BUFFERS, OPTIMIZER};
use crate::kernel::kernels;
use crate::{Geometry, View, ViewMut};

kernels! {
    /// A step of momentum SGD on a range.
    SgdUpdate = OPTIMIZER::sgd_step on Geometry::groups(elements); {
        weights: ViewMut<f32>[elements],
        velocity: ViewMut<f32>[elements],
        gradient: View<f32>[elements],
        mask: View<u32>[(first + elements).div_ceil(32)],
        first: u64,
        elements: u64,
        rate: f32,
        part: f32,
        keep: f32,
        momentum: f32,
        weight_decay: f32,
        absorbed: bool,
        nesterov: bool,
    }

    /// A learner's step down its gradient.
    Descend = OPTIMIZER::descend on Geometry::groups(elements); {
        weights: ViewMut<f32>[elements],
        gradient: View<f32>[elements],
        mask: View<u32>[(first + elements).div_ceil(32)],
        first: u64,
        elements: u64,
        rate: f32,
        weight_decay: f32,
    }

    /// A learner's last step of an iteration and its correction towards the average model.
    Correct = OPTIMIZER::correct on Geometry::groups(elements); {
        weights: ViewMut<f32>[elements],
        gradient: Option<View<f32>>[elements],
        average: View<f32>[elements],
        difference: ViewMut<f32>[elements],
        mask: View<u32>[(first + elements).div_ceil(32)],
        first: u64,
        elements: u64,
        rate: f32,
        weight_decay: f32,
        alpha: f32,
    }

    /// A reference model moves by its learners' differences, in whose place its own comes.
    MoveReference = OPTIMIZER::move_reference on Geometry::groups(elements); {
        reference: ViewMut<f32>[elements],
        average: View<f32>[elements],
        difference: ViewMut<f32>[elements],
        elements: u64,
        alpha: f32,
    }

    /// The average model moves by the summed differences; `plain` without momentum.
    Average = OPTIMIZER::move_average on Geometry::groups(elements); {
        average: ViewMut<f32>[elements],
        sum: View<f32>[elements],
        previous: ViewMut<f32>[elements],
        elements: u64,
        momentum: f32,
        plain: bool,
    }

    /// `a ← a + b`.
    AddInto = BUFFERS::add_into on Geometry::groups(elements); {
        a: ViewMut<f32>[elements],
        b: View<f32>[elements],
        elements: u64,
    }
}
