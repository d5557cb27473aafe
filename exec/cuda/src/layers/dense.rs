//! Lowers the fully connected layer with an optional ReLU: three matrix products.

use lockstep_models::{Layer, Precision, Shape};

use super::gradients;
use super::head::{Head, Wanted};
use super::image::Image;
use super::pass::{ForwardPass, PassGradients};
use super::script::{Script, count};
use super::weights::Weights;
use crate::kernel::kernels;
use crate::table::ReluForward;
use crate::{Activation, Multiply, Scalar};

kernels! {}

/// Makes the head of such a layer.
pub(super) fn made<A: Activation>(of: &mut Wanted<'_>) -> Option<Box<dyn Head<A>>> {
    let Layer::Dense(layer) = of.layer else { return None };
    let (inputs, outputs) = (count(of.inputs[0].elements()), layer.out_features);
    let weights = Weights::new((1, outputs, inputs), false, of.space);
    let (bias, relu, precision) = (layer.bias, of.is_rectified(), of.form.precision);
    Some(Box::new(Dense { inputs, outputs, weights, bias, relu, precision }))
}

/// `y = x·Wᵀ + b`, rectified or not; x is `[samples, in]`, W `[out, in]`.
struct Dense<A> {
    inputs: u32,
    outputs: u32,
    weights: Weights<A>,
    bias: bool,
    relu: bool,
    precision: Precision,
}

/// A factor of a product: its address, and whether it is stored transposed.
type Factor = (u64, bool);

impl<A: Activation> Dense<A> {
    fn parameters(&self) -> u64 {
        self.weights.elements() + if self.bias { u64::from(self.outputs) } else { 0 }
    }

    /// C ← A·B of `(rows, columns, depth)`, with C of the activations' type.
    fn product(&self, (rows, columns, depth): (u32, u32, u32), a: Factor, b: Factor, c: u64) -> Multiply {
        let ((a, transposed_a), (b, transposed_b)) = (a, b);
        Multiply {
            rows,
            columns,
            depth,
            a,
            transposed_a,
            b,
            transposed_b,
            c,
            result: A::SCALAR,
            bias: None,
            rectified: false,
            accumulate: false,
            precision: self.precision,
        }
    }
}

impl<A: Activation> Head<A> for Dense<A> {
    fn forward(&self, of: &ForwardPass<'_, A>, samples: u32, script: &mut Script<'_>) {
        let (x, weights) = (of.inputs[0].address(), self.weights.elements());
        let w = self.weights.forward(of.parameters.part(0..weights), script);
        let bias = self.bias.then(|| of.parameters.part(weights..self.parameters()).address());
        let sizes = (samples, self.outputs, self.inputs);
        let plain = self.product(sizes, (x, false), (w, true), of.output.address());
        script.multiply(Multiply { bias, rectified: self.relu && self.bias, ..plain });
        if self.relu && !self.bias {
            script.launch(&ReluForward { x: of.output.view(), y: of.output, elements: count(of.output.elements()) });
        }
    }

    fn backward(&self, of: &PassGradients<'_, A>, samples: u32, script: &mut Script<'_>) {
        let mut d_products = of.d_output;
        if self.relu {
            d_products = script.before_relu(of.d_output, of.output).view();
        }
        let (d, weights) = (d_products.address(), self.weights.elements());
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let x = of.inputs[0].address();
            self.weights.gradient::<f32>((d_parameters.part(0..weights), accumulate), script, |result, script| {
                let sizes = (self.outputs, self.inputs, samples);
                let plain = self.product(sizes, (d, true), (x, false), result);
                script.multiply(Multiply { result: Scalar::F32, ..plain });
            });
            if self.bias {
                let sums = gradients::sums(script, d_products, Image::new(Shape::flat(self.outputs), false));
                gradients::of_bias(script, &sums, (d_parameters.part(weights..self.parameters()), accumulate));
            }
        }
        if let Some((d_input, accumulate)) = of.d_input() {
            let w = self.weights.backward(of.parameters.part(0..weights));
            let sizes = (samples, self.inputs, self.outputs);
            let plain = self.product(sizes, (d, false), (w, false), d_input.address());
            script.multiply(Multiply { accumulate, ..plain });
        }
    }

    fn parameters(&self) -> (u64, u64) {
        (self.parameters(), 0)
    }
}
