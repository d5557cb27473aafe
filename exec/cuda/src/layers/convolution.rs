//! Lowers a convolution with the bias, ReLU and max pooling that follow it.
//!
//! cuDNN adds the bias and rectifies where it can. Before a max pooling it does neither: pooling reads the raw
//! products, since the maximum plus the bias equals the maximum with the bias.

use lockstep_exec::device::output_of;
use lockstep_models::{Conv2d, Layer, Shape};

use super::gradients;
use super::head::{Head, Wanted};
use super::image::Image;
use super::pass::{ForwardPass, PassGradients, own};
use super::pooling::{MaxPoolBackward, MaxPoolForward, PoolingWindow};
use super::script::{Script, count};
use super::weights::Weights;
use crate::kernel::kernels;
use crate::table::{ChannelGradients, ReluForward};
use crate::{Activation, Convolution as Sizes, ConvolutionPass, Convolve, View, ViewMut};

kernels! {}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::Conv2d(layer) = of.layer else { return None };
    let Conv2d { kernel, stride, padding, dilation, groups, bias, .. } = *layer;
    let (input, output, samples, form) = (of.inputs[0], of.output, of.samples, of.form);
    let (precision, channels_last) = (form.precision, form.channels_last);
    let filters = (output.features(), input.features() / groups, kernel.0 * kernel.1);
    let sizes = {
        let (input, output) = (input.image(), output.image());
        Sizes { samples, input, output, kernel, stride, padding, dilation, groups, precision, channels_last }
    };
    let weights = Weights::new(filters, channels_last, of.space);
    let behind = of.rest.iter().find_map(|member| match member.layer {
        Layer::Pool2d(layer) => Some((layer, output_of(member))),
        _ => None,
    });
    let pool = behind.map(|(layer, pooled)| {
        let inner = Image::new(output, channels_last).planes(1).1;
        let best = own(of.space, u64::from(samples) * pooled.elements());
        Pool { window: PoolingWindow::of(layer, output, pooled).inner(inner), output: pooled, best }
    });
    let relu = of.rest.len() > usize::from(pool.is_some());
    Some(Box::new(Convolution { sizes, weights, bias, relu, pool }))
}

/// The layer and its tail.
struct Convolution<A> {
    sizes: Sizes,
    weights: Weights<A>,
    bias: bool,
    relu: bool,
    pool: Option<Pool>,
}

/// The pooling after it.
struct Pool {
    window: PoolingWindow,
    output: Shape,
    /// The places of the maxima, in the output's layout.
    best: ViewMut<u32>,
}

impl<A: Activation> Convolution<A> {
    /// The image of the products.
    fn image(&self) -> Image {
        Image::new(self.sizes.output.shape(), self.sizes.channels_last)
    }

    fn parameters(&self) -> u64 {
        self.weights.elements() + if self.bias { u64::from(self.sizes.output.channels) } else { 0 }
    }

    /// The pass of a batch; its result has no bias, is not rectified and replaces existing values.
    fn pass(&self, samples: u32, pass: ConvolutionPass, left: u64, right: u64, result: u64) -> Convolve {
        let of = Sizes { samples, ..self.sizes };
        Convolve { of, pass, left, right, result, bias: None, rectified: false, accumulate: false }
    }

    /// The gradient of the products; also computes that of the bias, if it is requested.
    fn before_tail(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) -> View<A> {
        let d_biases = of.d_parameters.filter(|_| self.bias);
        let behind = self.weights.elements()..self.parameters();
        let d_biases = d_biases.map(|(all, accumulate)| (all.part(behind), accumulate));
        let y = self.relu.then_some(of.output);
        if let Some(Pool { window, output, best }) = &self.pool {
            let d_x = script.take(u64::from(samples) * self.sizes.output.elements());
            script.launch(&MaxPoolBackward {
                d_y: of.d_output,
                y,
                best: best.view(),
                d_x,
                images: self.image().planes(samples).0,
                window: *window,
                rectified: self.relu,
                accumulate: false,
            });
            if let Some(d_biases) = d_biases {
                // Each pooled place sends its gradient to one place of its channel.
                let pooled = Image::new(*output, self.sizes.channels_last);
                let sums = gradients::sums(script, of.d_output, pooled);
                gradients::of_bias(script, &ChannelGradients { y, rectified: self.relu, ..sums }, d_biases);
            }
            return d_x.view();
        }
        let Some(d_biases) = d_biases else {
            return if self.relu { script.before_relu(of.d_output, of.output).view() } else { of.d_output };
        };
        let masked = self.relu.then(|| script.take(of.d_output.elements()));
        let sums = gradients::sums(script, of.d_output, self.image());
        gradients::of_bias(script, &ChannelGradients { y, masked, rectified: self.relu, ..sums }, d_biases);
        masked.map_or(of.d_output, ViewMut::view)
    }
}

impl<A: Activation> Head<A> for Convolution<A> {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (input, output, weights) = (of.inputs[0], of.output, self.weights.elements());
        let biases = self.bias.then(|| of.parameters.part(weights..self.parameters()));
        let w = self.weights.forward(of.parameters.part(0..weights), script);
        let products = match &self.pool {
            Some(_) => script.take(u64::from(samples) * self.sizes.output.elements()),
            None => output,
        };
        let plain = self.pass(samples, ConvolutionPass::Forward, input.address(), w, products.address());
        let Some(Pool { window, best, .. }) = &self.pool else {
            let bias = biases.map(|biases| biases.address());
            script.convolve(Convolve { bias, rectified: self.relu && bias.is_some(), ..plain });
            if self.relu && bias.is_none() {
                script.launch(&ReluForward { x: output.view(), y: output, elements: count(output.elements()) });
            }
            return;
        };
        script.convolve(plain);
        script.launch(&MaxPoolForward {
            x: products.view(),
            biases,
            y: output,
            best: *best,
            images: self.image().planes(samples).0,
            channels: self.sizes.output.channels,
            window: *window,
            rectified: self.relu,
        });
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (d, weights) = (self.before_tail(of, samples, script).address(), self.weights.elements());
        if let Some((d_input, accumulate)) = of.d_input() {
            let w = self.weights.backward(of.parameters.part(0..weights));
            let plain = self.pass(samples, ConvolutionPass::BackwardData, d, w, d_input.address());
            script.convolve(Convolve { accumulate, ..plain });
        }
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let x = of.inputs[0].address();
            self.weights.gradient::<A>((d_parameters.part(0..weights), accumulate), script, |result, script| {
                script.convolve(self.pass(samples, ConvolutionPass::BackwardWeight, x, d, result));
            });
        }
    }

    fn parameters(&self) -> (u64, u64) {
        (self.parameters(), 0)
    }
}
