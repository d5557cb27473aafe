//! A convolution with the bias, the ReLU and the max pooling behind it.
//!
//! cuDNN adds the bias and rectifies where all is fp32. Before a max pooling it does neither: pooling reads what it gave, and
//! the largest plus the bias is the largest of those with the bias. bf16 tensors are scratch: input and weights are rounded
//! into it, what comes out is fp32 again before anything else is done to it.

use lockstep_models::{Conv2d, Pool2d, Shape};

use super::script::{Script, count};
use super::{Forward, Gradients, Space, own, plane, size, slopes};
use crate::device::cuda::table::{
    ChannelAffine, ChannelSlopes, FromBf16, MaxPoolBackward, MaxPoolForward, ReluBackward, ReluForward, Window,
};
use crate::device::cuda::{Bf16, Convolution as Sizes, ConvolutionPass, Convolve, Precision, View, ViewMut};

/// The layer and its tail.
pub(super) struct Convolution {
    sizes: Sizes,
    bias: bool,
    relu: bool,
    pool: Option<Pool>,
}

/// The pooling behind it.
struct Pool {
    window: Window,
    output: Shape,
    /// `[samples, output]`: the places of the largest.
    best: ViewMut<u32>,
}

impl Convolution {
    pub(super) fn new(
        layer: &Conv2d,
        (input, output): (Shape, Shape),
        relu: bool,
        samples: u32,
        precision: Precision,
    ) -> Convolution {
        let Conv2d { kernel, stride, padding, dilation, groups, bias, .. } = *layer;
        let channels_last = false;
        let sizes =
            Sizes { samples, input, output, kernel, stride, padding, dilation, groups, precision, channels_last };
        Convolution { sizes, bias, relu, pool: None }
    }

    /// Puts a max pooling behind it, whose output is `output`.
    pub(super) fn pool(&mut self, layer: &Pool2d, output: Shape, space: &mut dyn Space) {
        let window = Window::of(layer, self.sizes.output, output);
        let best = own(space, u64::from(self.sizes.samples) * size(output));
        self.pool = Some(Pool { window, output, best });
    }

    pub(super) fn parameters(&self) -> u64 {
        self.weights() + if self.bias { u64::from(self.sizes.output.channels) } else { 0 }
    }

    fn weights(&self) -> u64 {
        let Sizes { input, output, kernel, groups, .. } = self.sizes;
        let per_filter = input.channels / groups * kernel.0 * kernel.1;
        u64::from(output.channels) * u64::from(per_filter)
    }

    /// The pass of a batch; its result takes no bias, is not rectified and replaces what is there.
    fn pass(&self, samples: u32, pass: ConvolutionPass, left: u64, right: u64, result: u64) -> Convolve {
        let of = Sizes { samples, ..self.sizes };
        Convolve { of, pass, left, right, result, bias: None, rectified: false, accumulate: false }
    }

    pub(super) fn forward(&self, of: &Forward<'_>, samples: u32, script: &mut Script<'_>) {
        let (input, output) = (of.inputs[0], of.output);
        let (weights, channels) = (of.parameters.part(0..self.weights()), self.sizes.output.channels);
        let biases = self.bias.then(|| of.parameters.part(self.weights()..self.parameters()));
        let products = match &self.pool {
            Some(_) => script.take(u64::from(samples) * size(self.sizes.output)),
            None => output,
        };
        let tail = self.pool.is_none();
        if self.sizes.precision == Precision::Bf16 {
            let (x, w) = (script.halves(input), script.halves(weights));
            let y = script.take::<Bf16>(products.elements());
            script.convolve(self.pass(samples, ConvolutionPass::Forward, x.address(), w.address(), y.address()));
            script.launch(&FromBf16 { x: y.view(), y: products, elements: products.elements(), accumulate: false });
            if tail && (self.bias || self.relu) {
                script.launch(&ChannelAffine {
                    x: output.view(),
                    factors: None,
                    summands: biases,
                    y: output,
                    samples,
                    channels,
                    plane: plane(self.sizes.output),
                    rectified: self.relu,
                    accumulate: false,
                });
            }
        } else {
            let (x, w) = (input.address(), weights.address());
            let plain = self.pass(samples, ConvolutionPass::Forward, x, w, products.address());
            let bias = biases.filter(|_| tail).map(|biases| biases.address());
            script.convolve(Convolve { bias, rectified: self.relu && bias.is_some(), ..plain });
            if tail && self.relu && bias.is_none() {
                script.launch(&ReluForward { x: output.view(), y: output, elements: count(output.elements()) });
            }
        }
        if let Some(Pool { window, best, .. }) = &self.pool {
            script.launch(&MaxPoolForward {
                x: products.view(),
                biases,
                y: output,
                best: *best,
                images: samples * channels,
                channels,
                window: *window,
                rectified: self.relu,
            });
        }
    }

    pub(super) fn backward(&self, of: &Gradients<'_>, samples: u32, script: &mut Script<'_>) {
        let d_products = self.before_tail(of, samples, script);
        let halves = self.sizes.precision == Precision::Bf16;
        // Both products read the gradient.
        let d = if halves { script.halves(d_products).address() } else { d_products.address() };
        if let Some((d_input, accumulate)) = of.d_input() {
            let (pass, weights) = (ConvolutionPass::BackwardData, of.parameters.part(0..self.weights()));
            if halves {
                let (w, d_x) = (script.halves(weights), script.take::<Bf16>(d_input.elements()));
                script.convolve(self.pass(samples, pass, d, w.address(), d_x.address()));
                let (x, y, elements) = (d_x.view(), d_input, d_input.elements());
                script.launch(&FromBf16 { x, y, elements, accumulate });
            } else {
                let plain = self.pass(samples, pass, d, weights.address(), d_input.address());
                script.convolve(Convolve { accumulate, ..plain });
            }
        }
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (pass, d_weights) = (ConvolutionPass::BackwardWeight, d_parameters.part(0..self.weights()));
            if halves {
                let (x, d_w) = (script.halves(of.inputs[0]), script.take::<Bf16>(d_weights.elements()));
                script.convolve(self.pass(samples, pass, x.address(), d, d_w.address()));
                let (x, y, elements) = (d_w.view(), d_weights, d_weights.elements());
                script.launch(&FromBf16 { x, y, elements, accumulate });
            } else {
                // The library may add in another order than one addition per element.
                let result = if accumulate { script.take(d_weights.elements()) } else { d_weights };
                script.convolve(self.pass(samples, pass, of.inputs[0].address(), d, result.address()));
                if accumulate {
                    script.merge(result.view(), d_weights, true);
                }
            }
        }
    }

    /// The gradient of the products; that of the bias on the way, where it is wanted.
    fn before_tail(&self, of: &Gradients<'_>, samples: u32, script: &mut Script<'_>) -> View<f32> {
        let channels = self.sizes.output.channels;
        let d_biases = of.d_parameters.filter(|_| self.bias);
        let d_biases = d_biases.map(|(all, accumulate)| (all.part(self.weights()..self.parameters()), accumulate));
        let y = self.relu.then_some(of.output);
        if let Some(Pool { window, output, best }) = &self.pool {
            let d_x = script.take(u64::from(samples) * size(self.sizes.output));
            script.launch(&MaxPoolBackward {
                d_y: of.d_output,
                y,
                best: best.view(),
                d_x,
                images: samples * channels,
                window: *window,
                rectified: self.relu,
                accumulate: false,
            });
            if let Some(d_biases) = d_biases {
                // Each pooled place sends its gradient to one place of its channel.
                let sums = slopes::sums(script, of.d_output, channels, plane(*output));
                slopes::of_bias(script, &ChannelSlopes { y, rectified: self.relu, ..sums }, d_biases);
            }
            return d_x.view();
        }
        let masked = self.relu.then(|| script.take(of.d_output.elements()));
        match (d_biases, masked) {
            (Some(d_biases), _) => {
                let sums = slopes::sums(script, of.d_output, channels, plane(self.sizes.output));
                slopes::of_bias(script, &ChannelSlopes { y, masked, rectified: self.relu, ..sums }, d_biases);
            }
            (None, Some(d_x)) => {
                let (d_y, y, elements) = (of.d_output, of.output, count(d_x.elements()));
                script.launch(&ReluBackward { d_y, y, d_x, elements, accumulate: false });
            }
            (None, None) => {}
        }
        masked.map_or(of.d_output, ViewMut::view)
    }
}
