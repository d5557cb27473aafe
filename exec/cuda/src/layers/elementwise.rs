//! Layers whose output elements depend on one element of each input: addition, ReLU, flatten (a copy), sigmoid, tanh, and
//! concatenation.

use super::head::Head;
use super::script::{Script, count};
use super::{Forward, Gradients};
use crate::table::{Add, CurveBackward, CurveForward, MoveRows, ReluBackward, ReluForward};
use crate::{Activation, ViewMut};

/// The sum of its inputs, rectified or not; ReLU is the rectified and flatten the plain sum of one.
pub(super) struct Sum {
    pub(super) relu: bool,
}

impl<A: Activation> Head<A> for Sum {
    fn forward(&self, of: &Forward<'_, A>, _: u32, script: &mut Script<'_>) {
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

    fn backward(&self, of: &Gradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let (d_y, y, elements) = (of.d_output, of.output, count(of.d_output.elements()));
        let mut targets = of.d_inputs.iter().flatten().copied().peekable();
        while let Some((d_x, accumulate)) = targets.next() {
            if !self.relu {
                script.merge(d_y, d_x, accumulate);
                continue;
            }
            // Two at once, unless they are the same input's.
            let other = targets.next_if(|(other, _)| *other != d_x);
            let (d_other, accumulate_other) = other.map_or((None, false), |(other, added)| (Some(other), added));
            script.launch(&ReluBackward { d_y, y, d_x, d_other, elements, accumulate, accumulate_other });
        }
    }

    fn sum(&self) -> Option<&Sum> {
        Some(self)
    }
}

/// Sigmoid, or tanh.
pub(super) struct Curve {
    pub(super) hyperbolic: bool,
}

impl<A: Activation> Head<A> for Curve {
    fn forward(&self, of: &Forward<'_, A>, _: u32, script: &mut Script<'_>) {
        let (x, y, elements, hyperbolic) = (of.inputs[0], of.output, count(of.output.elements()), self.hyperbolic);
        script.launch(&CurveForward { x, y, elements, hyperbolic });
    }

    fn backward(&self, of: &Gradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, y, elements, hyperbolic) = (of.d_output, of.output, count(d_x.elements()), self.hyperbolic);
        script.launch(&CurveBackward { d_y, y, d_x, elements, hyperbolic, accumulate });
    }
}

/// Inputs side by side along channels.
pub(super) struct Concat {
    /// Of a row, the elements of each input.
    pub(super) sizes: Vec<u64>,
    /// Rows of a sample: one, or with channels last its places.
    pub(super) rows: u32,
}

impl Concat {
    /// The elements of a row that lie before each input's, and their number; then all of a row's.
    fn parts(&self) -> (Vec<(u64, u64)>, u64) {
        let mut first = 0;
        let rows = self.sizes.iter().map(|length| {
            let row = (first, *length);
            first += length;
            row
        });
        (rows.collect(), first)
    }
}

impl<A: Activation> Head<A> for Concat {
    fn forward(&self, of: &Forward<'_, A>, samples: u32, script: &mut Script<'_>) {
        let ((parts, to_stride), rows) = (self.parts(), samples * self.rows);
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

    fn backward(&self, of: &Gradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let ((parts, from_stride), rows) = (self.parts(), samples * self.rows);
        for (target, (from_first, to_stride)) in of.d_inputs.iter().zip(parts) {
            let Some((to, accumulate)): Option<(ViewMut<A>, bool)> = *target else { continue };
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
