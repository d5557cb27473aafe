//! Lowers the layer that adds a bias per channel.

use lockstep_models::Layer;

use super::gradients;
use super::head::{Head, Wanted};
use super::image::Image;
use super::pass::{ForwardPass, PassGradients};
use super::script::Script;
use crate::Activation;
use crate::kernel::kernels;
use crate::table::ChannelAffine;

kernels! {}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::Bias = of.layer else { return None };
    Some(Box::new(Bias { image: of.image() }))
}

/// `y = x + bias` per channel.
struct Bias {
    image: Image,
}

impl<A: Activation> Head<A> for Bias {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (samples, channels, plane) = self.image.batch(samples);
        let (x, y, biases) = (of.inputs[0], of.output, Some(of.parameters));
        let (factors, rectified, accumulate) = (None, false, false);
        script.launch(&ChannelAffine { x, factors, biases, y, samples, channels, plane, rectified, accumulate });
    }

    fn backward(&self, of: &PassGradients<'_, A>, _: u32, script: &mut Script<'_>) {
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let sums = gradients::sums(script, of.d_output, self.image);
            gradients::of_bias(script, &sums, (d_parameters, accumulate));
        }
        if let Some((d_input, accumulate)) = of.d_input() {
            script.merge(of.d_output, d_input, accumulate);
        }
    }

    fn parameters(&self) -> (u64, u64) {
        (u64::from(self.image.channels), 0)
    }
}
