//! Layers whose output elements depend on one element of each input: addition, ReLU, flatten (a copy), sigmoid, tanh, and
//! concatenation.

use super::script::{Script, count};
use super::{Forward, Gradients};
use crate::device::cuda::ViewMut;
use crate::device::cuda::table::{Add, CurveBackward, CurveForward, MoveRows, ReluBackward, ReluForward};

/// The sum of its inputs, rectified or not; ReLU is the rectified and flatten the plain sum of one.
pub(super) struct Sum {
    pub(super) relu: bool,
}

impl Sum {
    pub(super) fn forward(&self, of: &Forward<'_>, script: &mut Script<'_>) {
        let (y, elements) = (of.output, count(of.output.elements()));
        match *of.inputs {
            // What ranks have gathered lies in the output.
            [] => {}
            [x] if self.relu => script.launch(&ReluForward { x, y, elements }),
            [x] if x == y.view() => {}
            [x] => script.merge(x, y, false),
            [first, ref others @ ..] => {
                let mut a = first;
                for (index, b) in others.iter().enumerate() {
                    // Only the whole sum is rectified.
                    let rectified = self.relu && index + 1 == others.len();
                    script.launch(&Add { a, b: *b, y, elements, rectified });
                    a = y.view();
                }
            }
        }
    }

    pub(super) fn backward(&self, of: &Gradients<'_>, script: &mut Script<'_>) {
        let (d_y, y, elements) = (of.d_output, of.output, count(of.d_output.elements()));
        for (d_x, accumulate) in of.d_inputs.iter().flatten().copied() {
            if self.relu {
                script.launch(&ReluBackward { d_y, y, d_x, elements, accumulate });
            } else {
                script.merge(d_y, d_x, accumulate);
            }
        }
    }
}

/// Sigmoid, or tanh.
pub(super) struct Curve {
    pub(super) hyperbolic: bool,
}

impl Curve {
    pub(super) fn forward(&self, of: &Forward<'_>, script: &mut Script<'_>) {
        let (x, y, elements, hyperbolic) = (of.inputs[0], of.output, count(of.output.elements()), self.hyperbolic);
        script.launch(&CurveForward { x, y, elements, hyperbolic });
    }

    pub(super) fn backward(&self, of: &Gradients<'_>, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, y, elements, hyperbolic) = (of.d_output, of.output, count(d_x.elements()), self.hyperbolic);
        script.launch(&CurveBackward { d_y, y, d_x, elements, hyperbolic, accumulate });
    }
}

/// Inputs side by side along channels.
pub(super) struct Concat {
    /// Elements of a sample of each input.
    pub(super) sizes: Vec<u64>,
}

impl Concat {
    /// The elements of a sample that lie before each input's, and their number; then all of a sample's.
    fn rows(&self) -> (Vec<(u64, u64)>, u64) {
        let mut first = 0;
        let rows = self.sizes.iter().map(|length| {
            let row = (first, *length);
            first += length;
            row
        });
        (rows.collect(), first)
    }

    pub(super) fn forward(&self, of: &Forward<'_>, rows: u32, script: &mut Script<'_>) {
        let (parts, to_stride) = self.rows();
        for (from, (to_first, from_stride)) in of.inputs.iter().copied().zip(parts) {
            let (from_first, to, length, accumulate) = (0, of.output, count(from_stride), false);
            script.launch(&MoveRows {
                from,
                from_first,
                from_stride,
                to,
                to_first,
                to_stride,
                rows,
                length,
                accumulate,
            });
        }
    }

    pub(super) fn backward(&self, of: &Gradients<'_>, rows: u32, script: &mut Script<'_>) {
        let (parts, from_stride) = self.rows();
        for (target, (from_first, to_stride)) in of.d_inputs.iter().zip(parts) {
            let Some((to, accumulate)): Option<(ViewMut<f32>, bool)> = *target else { continue };
            let (from, to_first, length) = (of.d_output, 0, count(to_stride));
            script.launch(&MoveRows {
                from,
                from_first,
                from_stride,
                to,
                to_first,
                to_stride,
                rows,
                length,
                accumulate,
            });
        }
    }
}
