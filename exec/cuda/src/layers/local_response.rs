//! Local response normalisation across channels; its gradient goes through a tensor of ratios in scratch.

use lockstep_models::{LocalResponseNorm, Shape};

use super::head::Head;
use super::script::{Script, count};
use super::{Forward, Gradients};
use crate::Activation;
use crate::table::{LocalResponseBackward, LocalResponseForward, LocalResponseRatios, Response};

/// The layer.
pub(super) struct LocalResponse {
    of: Response,
}

impl LocalResponse {
    pub(super) fn new(layer: &LocalResponseNorm, input: Shape, channels_last: bool) -> LocalResponse {
        let of = Response::of(layer, input);
        LocalResponse { of: if channels_last { of.channels_last() } else { of } }
    }
}

impl<A: Activation> Head<A> for LocalResponse {
    fn forward(&self, of: &Forward<'_, A>, _: u32, script: &mut Script<'_>) {
        let (x, y, elements) = (of.inputs[0], of.output, count(of.output.elements()));
        script.launch(&LocalResponseForward { x, y, elements, of: self.of });
    }

    fn backward(&self, of: &Gradients<'_, A>, _: u32, script: &mut Script<'_>) {
        let Some((d_x, accumulate)) = of.d_input() else { return };
        let (d_y, x, y, elements) = (of.d_output, of.inputs[0], of.output, count(of.d_output.elements()));
        let ratios = script.take(of.d_output.elements());
        script.launch(&LocalResponseRatios { d_y, x, y, ratios, elements, of: self.of });
        let ratios = ratios.view();
        script.launch(&LocalResponseBackward { d_y, x, ratios, d_x, elements, of: self.of, accumulate });
    }
}
