//! Lowers addition and ReLU, and so flatten (a copy) and gathered inputs.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients};
use super::script::{Script, count};
use crate::Activation;
use crate::kernel::kernels;
use crate::table::{Add, ReluBackward, ReluForward};

kernels! {}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    match of.layer {
        Layer::Relu => Some(Box::new(Sum { relu: true })),
        Layer::Add | Layer::Relayout(_) => Some(Box::new(Sum { relu: of.is_rectified() })),
        _ => None,
    }
}

/// The sum of its inputs, rectified or not. ReLU is the rectified sum of one input, flatten the plain one.
pub(super) struct Sum {
    pub(super) relu: bool,
}

impl<A: Activation> Head<A> for Sum {
    fn forward(&self, of: &ForwardPass<'_, A>, _: u32, script: &mut Script<'_>) {
        let (y, elements) = (of.output, count(of.output.elements()));
        match *of.inputs {
            // Gathered inputs are already in the output.
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

    fn backward(&self, of: &PassGradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let (d_y, y, elements) = (of.d_output, of.output, count(of.d_output.elements()));
        let mut targets = of.d_inputs.iter().flatten().copied().peekable();
        while let Some((d_x, accumulate)) = targets.next() {
            if !self.relu {
                script.merge(d_y, d_x, accumulate);
                continue;
            }
            // Two at once, unless both are of the same input.
            let other = targets.next_if(|(other, _)| *other != d_x);
            let (d_other, accumulate_other) = other.map_or((None, false), |(other, added)| (Some(other), added));
            script.launch(&ReluBackward { d_y, y, d_x, d_other, elements, accumulate, accumulate_other });
        }
    }

    fn rectified_sum(&self) -> Option<bool> {
        Some(self.relu)
    }
}
