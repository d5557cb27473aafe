//! Computes the cost of the passes of a layer of a model.

use super::{Node, Parameter};
use crate::layer::{KernelClass, MatrixProduct, Pass, Sizes, Work};

impl Node {
    /// The cost of `pass` over `samples` samples.
    ///
    /// Zero for passes that do not exist: backward-weight without parameters, or any pass of the input.
    /// [`Model::needs_input_gradient`](crate::Model::needs_input_gradient) says whether backward-data is needed at all.
    pub fn work(&self, pass: Pass, samples: u32) -> Work {
        let samples = f64::from(samples);
        let sizes = Sizes {
            samples,
            input: samples * self.input_shapes.iter().map(|shape| shape.elements() as f64).sum::<f64>(),
            output: samples * self.output.elements() as f64,
            channels: f64::from(self.output.features()),
            learned: self.signature.parameter_shapes().map(|shape| shape.elements() as f64).sum::<f64>(),
        };
        match self.signature.product() {
            Some(product) => self.product_work(pass, product, &sizes),
            None => self.layer.rule().work(&sizes)[pass as usize],
        }
    }

    /// Each pass multiplies and adds as often; it reads two operands and writes the third, and with the output also the
    /// biases.
    fn product_work(&self, pass: Pass, product: MatrixProduct, of: &Sizes) -> Work {
        let flops = 2.0 * of.output * (product.inputs * product.kernel);
        let weight = self.signature.parameter_shapes().next().map_or(0.0, |weight| weight.elements() as f64);
        match pass {
            Pass::Forward => Work::of(flops, of.input + of.learned, of.output),
            Pass::BackwardData => Work::of(flops, of.output + weight, of.input),
            Pass::BackwardWeight => Work::of(flops, of.input + of.output, of.learned),
        }
    }

    /// Whether it multiplies by a matrix of weights: a convolution or a dense layer.
    pub fn is_product(&self) -> bool {
        self.signature.product().is_some()
    }

    /// The matrix of weights by which it multiplies.
    pub fn weight(&self) -> Option<&Parameter> {
        self.parameters.first().filter(|_| self.is_product())
    }

    /// How its kernels work, as far as costs distinguish them.
    pub fn kernel_class(&self) -> KernelClass {
        match self.signature.product() {
            Some(product) => KernelClass::Product(product),
            None => {
                self.layer.rule().kernel_class(self.input_shapes.first().copied().unwrap_or(self.output), self.output)
            }
        }
    }
}
