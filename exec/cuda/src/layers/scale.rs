//! Lowers the layer that applies a factor and a bias per channel.

use lockstep_models::Layer;

use super::gradients;
use super::head::{Head, Wanted};
use super::image::Image;
use super::pass::{ForwardPass, PassGradients};
use super::script::Script;
use crate::kernel::kernels;
use crate::table::{ChannelAffine, ChannelGradients, ChannelGradientsFinish};
use crate::{Activation, View, ViewMut};

kernels! {}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::Scale(layer) = of.layer else { return None };
    Some(Box::new(Scale { image: of.image(), bias: layer.bias }))
}

/// `y = factor · x + bias` per channel.
struct Scale {
    image: Image,
    bias: bool,
}

impl Scale {
    /// Number of factors, plus biases if there are any.
    fn parameters(&self) -> u64 {
        u64::from(self.image.channels) * if self.bias { 2 } else { 1 }
    }

    /// `y ← factors · x`, without biases.
    fn scaled<A: Activation>(
        &self,
        x: View<A>,
        parameters: View<f32>,
        y: ViewMut<A>,
        samples: u32,
    ) -> ChannelAffine<A> {
        let factors = Some(parameters.part(0..u64::from(self.image.channels)));
        let (samples, channels, plane) = self.image.batch(samples);
        let (biases, rectified, accumulate) = (None, false, false);
        ChannelAffine { x, factors, biases, y, samples, channels, plane, rectified, accumulate }
    }
}

impl<A: Activation> Head<A> for Scale {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let biases = self.bias.then(|| of.parameters.part(u64::from(self.image.channels)..self.parameters()));
        let scaled = self.scaled(of.inputs[0], of.parameters, of.output, samples);
        script.launch(&ChannelAffine { biases, ..scaled });
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (channels, all) = (u64::from(self.image.channels), self.parameters());
            let sums = gradients::sums(script, of.d_output, self.image);
            let sums = ChannelGradients { x: Some(of.inputs[0]), ..sums };
            gradients::add_up(script, &sums);
            script.launch(&ChannelGradientsFinish {
                d_factors: Some(d_parameters.part(0..channels)),
                d_biases: self.bias.then(|| d_parameters.part(channels..all)),
                accumulate,
                ..gradients::finish(&sums)
            });
        }
        if let Some((d_input, accumulate)) = of.d_input() {
            let scaled = self.scaled(of.d_output, of.parameters, d_input, samples);
            script.launch(&ChannelAffine { accumulate, ..scaled });
        }
    }

    fn parameters(&self) -> (u64, u64) {
        (self.parameters(), 0)
    }
}
