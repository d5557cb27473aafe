//! The fully connected layer with the ReLU behind it: three products of matrices.

use lockstep_models::Dense as Layer;

use super::script::{Script, count};
use super::{Forward, Gradients, slopes};
use crate::device::cuda::table::{ReluBackward, ReluForward};
use crate::device::cuda::{Multiply, Precision, Scalar, View, ViewMut};

/// `y = x·Wᵀ + b`, rectified or not; x is `[samples, in]`, W `[out, in]`.
pub(super) struct Dense {
    inputs: u32,
    outputs: u32,
    bias: bool,
    relu: bool,
    precision: Precision,
}

/// A factor of a product: its address in the type that the product takes, and whether it lies transposed.
type Factor = (u64, bool);

impl Dense {
    pub(super) fn new(layer: &Layer, inputs: u32, relu: bool, precision: Precision) -> Dense {
        Dense { inputs, outputs: layer.out_features, bias: layer.bias, relu, precision }
    }

    pub(super) fn parameters(&self) -> u64 {
        self.weights() + if self.bias { u64::from(self.outputs) } else { 0 }
    }

    fn weights(&self) -> u64 {
        u64::from(self.outputs) * u64::from(self.inputs)
    }

    /// Where a factor lies as the products take it.
    fn factor(&self, script: &mut Script<'_>, of: View<f32>) -> u64 {
        if self.precision == Precision::Bf16 { script.halves(of).address() } else { of.address() }
    }

    /// C ← A·B of `(rows, columns, depth)`.
    fn product(&self, (rows, columns, depth): (u32, u32, u32), a: Factor, b: Factor, c: ViewMut<f32>) -> Multiply {
        let ((a, transposed_a), (b, transposed_b)) = (a, b);
        Multiply {
            rows,
            columns,
            depth,
            a,
            transposed_a,
            b,
            transposed_b,
            c: c.address(),
            result: Scalar::F32,
            bias: None,
            rectified: false,
            accumulate: false,
            precision: self.precision,
        }
    }

    pub(super) fn forward(&self, of: &Forward<'_>, samples: u32, script: &mut Script<'_>) {
        let x = self.factor(script, of.inputs[0]);
        let w = self.factor(script, of.parameters.part(0..self.weights()));
        let bias = self.bias.then(|| of.parameters.part(self.weights()..self.parameters()).address());
        let plain = self.product((samples, self.outputs, self.inputs), (x, false), (w, true), of.output);
        script.multiply(Multiply { bias, rectified: self.relu && self.bias, ..plain });
        if self.relu && !self.bias {
            script.launch(&ReluForward { x: of.output.view(), y: of.output, elements: count(of.output.elements()) });
        }
    }

    pub(super) fn backward(&self, of: &Gradients<'_>, samples: u32, script: &mut Script<'_>) {
        let mut d_products = of.d_output;
        if self.relu {
            let d_x = script.take(of.d_output.elements());
            let (d_y, y, elements) = (of.d_output, of.output, count(d_x.elements()));
            script.launch(&ReluBackward { d_y, y, d_x, elements, accumulate: false });
            d_products = d_x.view();
        }
        let d = self.factor(script, d_products);
        if let Some((d_parameters, accumulate)) = of.d_parameters {
            let (d_weights, x) = (d_parameters.part(0..self.weights()), self.factor(script, of.inputs[0]));
            // The library may add in another order than one addition per element.
            let result = if accumulate { script.take_like(d_weights) } else { d_weights };
            script.multiply(self.product((self.outputs, self.inputs, samples), (d, true), (x, false), result));
            if accumulate {
                script.merge(result.view(), d_weights, true);
            }
            if self.bias {
                let sums = slopes::sums(script, d_products, self.outputs, 1);
                let d_biases = d_parameters.part(self.weights()..self.parameters());
                slopes::of_bias(script, &sums, (d_biases, accumulate));
            }
        }
        if let Some((d_input, accumulate)) = of.d_input() {
            let w = self.factor(script, of.parameters.part(0..self.weights()));
            let plain = self.product((samples, self.inputs, self.outputs), (d, false), (w, false), d_input);
            script.multiply(Multiply { accumulate, ..plain });
        }
    }
}
