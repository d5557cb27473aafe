//! Lowers batch normalisation with an optional ReLU. The batch's statistics are kept for the backward pass, which
//! recomputes from the input where the ReLU was positive.

use lockstep_exec::device::Mode;
use lockstep_models::{BatchNorm as Settings, Layer};

use super::gradients;
use super::head::{Head, Wanted};
use super::image::Image;
use super::pass::{ForwardPass, PassGradients, own};
use super::script::Script;
use crate::kernel::kernels;
use crate::table::{
    BatchNormBackward, BatchNormForward, BatchNormInverses, BatchNormMoments, BatchNormStatistics, ChannelGradients,
    ChannelGradientsFinish, ColumnMoments,
};
use crate::{Activation, ViewMut};

kernels! {}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::BatchNorm(Settings { epsilon, momentum }) = *of.layer else { return None };
    let (image, relu) = (of.image(), of.is_rectified());
    let [means, inverses] = [0, 1].map(|_| own(of.space, image.channels.into()));
    Some(Box::new(BatchNorm { image, epsilon, momentum, relu, means, inverses }))
}

/// The layer, with means and inverse deviations of the last batch.
struct BatchNorm {
    image: Image,
    epsilon: f32,
    momentum: f32,
    relu: bool,
    means: ViewMut<f32>,
    inverses: ViewMut<f32>,
}

impl BatchNorm {
    /// Number of parameters, which is that of running statistics too.
    fn parameters(&self) -> u64 {
        2 * u64::from(self.image.channels)
    }

    /// A forward pass without its last launch, which makes the output.
    fn without_last<A: Activation>(
        &self,
        of: &ForwardPass<'_, A>,
        samples: u32,
        script: &mut Script<'_>,
    ) -> BatchNormForward<A> {
        let &BatchNorm { image, epsilon, momentum, means, inverses, relu } = self;
        let (samples, channels, plane) = image.batch(samples);
        let (first, second) = (0..u64::from(channels), u64::from(channels)..self.parameters());
        let (running_means, running_variances) =
            (of.statistics.part(first.clone()), of.statistics.part(second.clone()));
        // The weight of the old running statistics.
        let keep = match of.mode {
            Mode::Train => Some(momentum),
            // The statistics of the same batch weigh nothing.
            Mode::Recompute => Some(1.0),
            Mode::Statistics { batch } => Some(batch as f32 / (batch as f32 + 1.0)),
            Mode::Evaluate => None,
        };
        let x = of.inputs[0];
        if let Some(keep) = keep {
            let parts = gradients::parts(samples * plane, channels, plane);
            let partials = script.take(2 * u64::from(channels) * u64::from(parts.parts));
            if plane == 1 {
                script.launch(&ColumnMoments { x, partials, channels, parts });
            } else {
                script.launch(&BatchNormMoments { x, partials, channels, plane, parts });
            }
            script.launch(&BatchNormStatistics {
                partials: partials.view(),
                means,
                inverses,
                running_means,
                running_variances,
                channels,
                parts,
                epsilon,
                keep,
            });
        } else {
            let running_variances = running_variances.view();
            script.launch(&BatchNormInverses { running_variances, inverses, channels, epsilon });
        }
        BatchNormForward {
            x,
            means: if keep.is_some() { means.view() } else { running_means.view() },
            inverses: inverses.view(),
            gammas: of.parameters.part(first),
            betas: of.parameters.part(second),
            addend: None,
            y: of.output,
            samples,
            channels,
            plane,
            rectified: relu,
        }
    }
}

impl<A: Activation> Head<A> for BatchNorm {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let last = self.without_last(of, samples, script);
        script.launch(&last);
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (rectified, (samples, channels, plane)) = (self.relu, self.image.batch(samples));
        let (x, means, inverses) = (of.inputs[0], self.means.view(), self.inverses.view());
        let (first, second) = (0..u64::from(channels), u64::from(channels)..self.parameters());
        let (gammas, betas) = (of.parameters.part(first.clone()), of.parameters.part(second.clone()));
        let sums = ChannelGradients {
            x: Some(x),
            means: Some(means),
            inverses: Some(inverses),
            gammas: Some(gammas),
            betas: Some(betas),
            rectified,
            ..gradients::sums(script, of.d_output, self.image)
        };
        let d_input = of.d_input();
        let rest: Option<[ViewMut<f32>; 2]> = d_input.map(|_| [0, 1].map(|_| script.take(u64::from(channels))));
        gradients::add_up(script, &sums);
        script.launch(&ChannelGradientsFinish {
            inverses: Some(inverses),
            d_factors: of.d_parameters.map(|(all, _)| all.part(first)),
            d_biases: of.d_parameters.map(|(all, _)| all.part(second)),
            along: rest.map(|[along, _]| along),
            level: rest.map(|[_, level]| level),
            accumulate: of.d_parameters.is_some_and(|(_, accumulate)| accumulate),
            ..gradients::finish(&sums)
        });
        if let (Some((d_x, accumulate)), Some([along, level])) = (d_input, rest) {
            script.launch(&BatchNormBackward {
                d_y: of.d_output,
                x,
                y: None,
                means,
                inverses,
                gammas,
                betas,
                along: along.view(),
                level: level.view(),
                d_x,
                d_addend: None,
                samples,
                channels,
                plane,
                rectified,
                accumulate,
                accumulate_addend: false,
            });
        }
    }

    fn parameters(&self) -> (u64, u64) {
        (self.parameters(), self.parameters())
    }

    fn begin(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) -> Option<BatchNormForward<A>> {
        (!self.relu).then(|| self.without_last(of, samples, script))
    }
}
