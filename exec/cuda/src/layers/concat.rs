//! Lowers concatenation along channels.

use lockstep_models::Layer;

use super::head::{Head, Wanted};
use super::pass::{ForwardPass, PassGradients};
use super::script::{Script, count};
use crate::Activation;
use crate::kernel::kernels;

kernels! {}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::Concat = of.layer else { return None };
    if of.form.channels_last {
        let sizes = of.inputs.iter().map(|input| input.features().into()).collect();
        return Some(Box::new(Concat { sizes, rows: of.image().plane }));
    }
    Some(Box::new(Concat { sizes: of.inputs.iter().map(|shape| shape.elements()).collect(), rows: 1 }))
}

/// Inputs side by side along channels.
struct Concat {
    /// Elements of each input in a row.
    sizes: Vec<u64>,
    /// Rows per sample: one, or with channels last its places.
    rows: u32,
}

impl Concat {
    /// For each input its offset in a row and its number of elements; then the elements of a whole row.
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
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let ((parts, stride), rows) = (self.parts(), samples * self.rows);
        for (x, (first, length)) in of.inputs.iter().zip(parts) {
            script.rows((*x, 0, length), (of.output, first, stride), (rows, count(length)), false);
        }
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let ((parts, stride), rows) = (self.parts(), samples * self.rows);
        for (target, (first, length)) in of.d_inputs.iter().zip(parts) {
            let Some((d_x, accumulate)) = *target else { continue };
            script.rows((of.d_output, first, stride), (d_x, 0, length), (rows, count(length)), accumulate);
        }
    }
}
