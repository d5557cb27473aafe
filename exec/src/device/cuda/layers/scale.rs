//! A factor and a summand per channel.

use lockstep_models::{Scale as Layer, Shape};

use super::script::Script;
use super::{Forward, Gradients, plane, slopes};
use crate::device::cuda::table::{ChannelAffine, ChannelSlopes, ChannelSlopesFinish};
use crate::device::cuda::{View, ViewMut};

/// `y = factor · x + summand` per channel.
pub(super) struct Scale {
    channels: u32,
    plane: u32,
    bias: bool,
}

impl Scale {
    pub(super) fn new(layer: &Layer, input: Shape) -> Scale {
        Scale { channels: input.channels, plane: plane(input), bias: layer.bias }
    }

    /// Factors, then summands if there are any.
    pub(super) fn parameters(&self) -> u64 {
        u64::from(self.channels) * if self.bias { 2 } else { 1 }
    }

    /// `y ← factors · x`, without summands.
    fn scaled(&self, x: View<f32>, parameters: View<f32>, y: ViewMut<f32>, samples: u32) -> ChannelAffine<f32> {
        let factors = Some(parameters.part(0..u64::from(self.channels)));
        let (channels, plane) = (self.channels, self.plane);
        let (summands, rectified, accumulate) = (None, false, false);
        ChannelAffine { x, factors, summands, y, samples, channels, plane, rectified, accumulate }
    }

    pub(super) fn forward(&self, of: &Forward<'_>, samples: u32, script: &mut Script<'_>) {
        let summands = self.bias.then(|| of.parameters.part(u64::from(self.channels)..self.parameters()));
        let scaled = self.scaled(of.inputs[0], of.parameters, of.output, samples);
        script.launch(&ChannelAffine { summands, ..scaled });
    }

    pub(super) fn backward(&self, of: &Gradients<'_>, samples: u32, script: &mut Script<'_>) {
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (channels, all) = (u64::from(self.channels), self.parameters());
            let sums = slopes::sums(script, of.d_output, self.channels, self.plane);
            let sums = ChannelSlopes { x: Some(of.inputs[0]), ..sums };
            script.launch(&sums);
            script.launch(&ChannelSlopesFinish {
                d_factors: Some(d_parameters.part(0..channels)),
                d_summands: self.bias.then(|| d_parameters.part(channels..all)),
                accumulate,
                ..slopes::finish(&sums)
            });
        }
        if let Some((d_input, accumulate)) = of.d_input() {
            let scaled = self.scaled(of.d_output, of.parameters, d_input, samples);
            script.launch(&ChannelAffine { accumulate, ..scaled });
        }
    }
}
