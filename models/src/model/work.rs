//! Computes the cost of the passes of a layer of a model.

use super::Node;
use crate::layer::{KernelClass, Pass, Sizes, Work};

impl Node {
    /// The cost of `pass` over `samples` samples in fp32.
    ///
    /// Zero for passes that do not exist: backward-weight without parameters, or any pass of the input.
    /// [`Model::needs_input_gradient`](crate::Model::needs_input_gradient) says whether backward-data is needed at all.
    pub fn work(&self, pass: Pass, samples: u32) -> Work {
        let samples = f64::from(samples);
        let weight = self.parameters.first();
        let sizes = Sizes {
            samples,
            input: samples * self.input_shapes.iter().map(|shape| shape.elements() as f64).sum::<f64>(),
            output: samples * self.output.elements() as f64,
            channels: f64::from(self.output.channels),
            learned: self.parameters.iter().map(|parameter| parameter.elements() as f64).sum::<f64>(),
            weight: weight.map_or(0.0, |weight| weight.elements() as f64),
            fan_in: weight.map_or(0.0, |weight| weight.fan_in() as f64),
        };
        self.layer.rule().work(&sizes)[pass as usize]
    }

    /// Whether it multiplies by a matrix of weights: a convolution or a dense layer.
    pub fn is_product(&self) -> bool {
        matches!(self.kernel_class(), KernelClass::Product(_))
    }

    /// How its kernels work, as far as costs distinguish them.
    pub fn kernel_class(&self) -> KernelClass {
        self.layer.rule().kernel_class(self.input_shapes.first().copied().unwrap_or(self.output), self.output)
    }
}
