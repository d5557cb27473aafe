//! Applies a factor and a bias per channel. As in batch normalisation, one thread processes a channel's whole batch.

use lockstep_models::Layer;

use super::elementwise::merge;
use super::threads::{Disjoint, Threads};
use super::{Forward, Gradients, Head, Wanted, only};
use crate::simd::{put, sum, sum_pairs, wide};
use crate::workspace::Workspace;

/// Makes the head of such a layer.
pub(super) fn made(of: &Wanted<'_>) -> Option<Box<dyn Head>> {
    let Layer::Scale(layer) = of.layer else { return None };
    let (channels, plane, threads) = (of.channels(), of.plane(), of.threads.clone());
    Some(Box::new(Scale { channels, plane, bias: layer.bias, threads }))
}

/// `y = factor · x + bias` per channel.
struct Scale {
    channels: usize,
    plane: usize,
    bias: bool,
    threads: Threads,
}

impl Scale {
    /// The planes of a channel in a batch of `elements`.
    fn planes(&self, channel: usize, elements: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (step, plane) = (self.channels * self.plane, self.plane);
        (channel * plane..elements).step_by(step).map(move |start| start..start + plane)
    }
}

impl Head for Scale {
    /// `parameters`: the factors, then the biases if there are any.
    fn forward(&mut self, of: Forward<'_>, _: &mut Workspace) {
        let Forward { parameters, output, .. } = of;
        let input = of.inputs[0];
        let elements = output.len();
        let output = Disjoint::new(output);
        self.threads.each(self.channels, |_, channel| {
            let factor = parameters[channel];
            let bias = if self.bias { parameters[self.channels + channel] } else { 0.0 };
            for part in self.planes(channel, elements) {
                // SAFETY: planes of a channel belong to one tile.
                let ys = unsafe { output.part(part.clone()) };
                wide!(ys.iter_mut().zip(&input[part]).for_each(|(y, x)| *y = factor * *x + bias));
            }
        });
    }

    fn backward(&mut self, of: Gradients<'_, '_>, _: &mut Workspace) {
        let (channels, elements) = (self.channels, of.d_output.len());
        let input = of.inputs[0];
        let d_input = only(of.d_inputs).map(|(d_input, adds)| (Disjoint::new(d_input), adds));
        let d_parameters = of.d_parameters.map(|(all, adds)| (Disjoint::new(all), adds));
        self.threads.each(channels, |_, channel| {
            if let Some((d_parameters, adds)) = &d_parameters {
                let (mut d_factor, mut d_bias) = (0.0f64, 0.0f64);
                for part in self.planes(channel, elements) {
                    let ds = &of.d_output[part.clone()];
                    wide!({
                        d_factor += f64::from(sum_pairs(ds, &input[part], |d, x| d * x));
                        d_bias += f64::from(sum(ds, |d| d));
                    });
                }
                // SAFETY: one factor and one bias per channel.
                merge(unsafe { d_parameters.part(channel..channel + 1) }, &[d_factor as f32], *adds);
                if self.bias {
                    let place = channels + channel..channels + channel + 1;
                    // SAFETY: as above.
                    merge(unsafe { d_parameters.part(place) }, &[d_bias as f32], *adds);
                }
            }
            let Some((d_input, adds)) = &d_input else { return };
            let factor = of.parameters[channel];
            for part in self.planes(channel, elements) {
                // SAFETY: planes of a channel belong to one tile.
                let d_input = unsafe { d_input.part(part.clone()) };
                wide!(put(d_input, *adds, of.d_output[part].iter().map(|d| factor * *d)));
            }
        });
    }
}
