//! What a layer's passes cost: floating-point operations and bytes, from shapes alone.
//!
//! A multiply-add is 2 FLOPs (Iandola et al. 2016, §3) and a bias starts the accumulator for nothing, so that forward
//! and backward of convolutions and dense layers are exactly three times forward. Every tensor that a pass needs is
//! counted as read or written once, in fp32; sums of gradients from several consumers are not part of any layer.
//!
//! With n samples, i input, o output elements per sample, w weight and b bias elements, C channels, k window places:
//!
//! | layer | forward | backward-data | backward-weight |
//! |---|---|---|---|
//! | conv2d | 2·n·o·(w/C) FLOPs; reads n·i + w + b, writes n·o | as many; n·o + w → n·i | as many; n·i + n·o → w + b |
//! | dense | 2·n·w, else as conv2d | | |
//! | batch norm | 6·n·i (mean 1, variance 3, scale 2); n·i + 4C → n·o + 2C | 4·n·i; 2·n·i + C → n·i | 4·n·i; 2·n·i → 2C |
//! | scale | n·i or, with bias, 2·n·i; n·i + w + b → n·o | n·i; n·i + w → n·i | as forward; 2·n·i → w + b |
//! | relu | n·i; n·i → n·o | n·i; n·i + n·o → n·i | |
//! | sigmoid, tanh | 4·n·i (an exponential counts as one); n·i → n·o | 3·n·i; 2·n·i → n·i | |
//! | local response norm of s | (s + 4)·n·i; n·i → n·o | (2s + 8)·n·i; 3·n·i → n·i | |
//! | dropout | n·i; n·i → n·o, a byte each of the mask | n·i; n·i and the mask → n·i | |
//! | pooling | k·n·o; n·i → n·o | max n·o; n·i + n·o → n·i; average k·n·o; n·o → n·i | |
//! | global pooling | n·i; n·i → n·C | n·C; n·C → n·i | |
//! | add of m | (m − 1)·n·o; m·n·o → n·o | 0; n·o → m·n·o | |
//! | concat | 0; n·o → n·o | 0; n·o → n·o | |
//! | loss (softmax, logistic) | 5·n·i; n·i + n labels → n·i probabilities + n | n·(i + 1); n·i + n → n·i | |
//! | flatten, input | nothing: the same memory | | |

use super::Node;
use crate::{Layer, PoolKind};

/// Bytes of one fp32 element.
const ELEMENT_BYTES: f64 = 4.0;

/// A dropped element's mark is a byte: this share of an fp32 element.
const MASK_ELEMENTS: f64 = 0.25;

/// One of the three computations of a layer in a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// Output from inputs.
    Forward,
    /// Gradient of the inputs from the gradient of the output.
    BackwardData,
    /// Gradient of the parameters from the gradient of the output.
    BackwardWeight,
}

/// The cost of a computation before any hardware is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Floating-point operations, a multiply-add being two.
    pub flops: f64,
    /// Bytes read, each tensor once.
    pub bytes_read: f64,
    /// Bytes written, each tensor once.
    pub bytes_written: f64,
}

impl Work {
    /// Bytes read and written.
    pub fn bytes(&self) -> f64 {
        self.bytes_read + self.bytes_written
    }

    /// So many FLOPs over so many elements.
    fn of(flops: f64, elements_read: f64, elements_written: f64) -> Work {
        Work { flops, bytes_read: elements_read * ELEMENT_BYTES, bytes_written: elements_written * ELEMENT_BYTES }
    }
}

impl Node {
    /// The cost of `pass` over `samples` samples in fp32.
    ///
    /// Nothing for passes that do not exist: backward-weight without parameters, or any pass of the input. Whether
    /// backward-data is needed at all is [`Model::needs_input_gradient`](crate::Model::needs_input_gradient)'s to say.
    pub fn work(&self, pass: Pass, samples: u32) -> Work {
        let n = f64::from(samples);
        let input = n * self.input_shapes.iter().map(|shape| shape.elements() as f64).sum::<f64>();
        let output = n * self.output.elements() as f64;
        let channels = f64::from(self.output.channels);
        let learned = self.parameters.iter().map(|parameter| parameter.elements() as f64).sum::<f64>();
        match (&self.layer, pass) {
            (Layer::Conv2d(_) | Layer::Dense(_), _) => {
                let weight = &self.parameters[0];
                let flops = 2.0 * output * weight.fan_in() as f64;
                match pass {
                    Pass::Forward => Work::of(flops, input + learned, output),
                    Pass::BackwardData => Work::of(flops, output + weight.elements() as f64, input),
                    Pass::BackwardWeight => Work::of(flops, input + output, learned),
                }
            }
            (Layer::BatchNorm(_), Pass::Forward) => {
                Work::of(6.0 * input, input + 4.0 * channels, output + 2.0 * channels)
            }
            (Layer::BatchNorm(_), Pass::BackwardData) => Work::of(4.0 * input, 2.0 * input + channels, input),
            (Layer::BatchNorm(_), Pass::BackwardWeight) => Work::of(4.0 * input, 2.0 * input, 2.0 * channels),
            (Layer::Scale(scale), _) => {
                let flops = if scale.bias { 2.0 * input } else { input };
                match pass {
                    Pass::Forward => Work::of(flops, input + learned, output),
                    Pass::BackwardData => Work::of(input, input + channels, input),
                    Pass::BackwardWeight => Work::of(flops, 2.0 * input, learned),
                }
            }
            (Layer::Input(_) | Layer::Flatten | Layer::Gather(_), _) | (_, Pass::BackwardWeight) => Work::default(),
            (Layer::Sigmoid | Layer::Tanh, Pass::Forward) => Work::of(4.0 * input, input, output),
            (Layer::Sigmoid | Layer::Tanh, Pass::BackwardData) => Work::of(3.0 * input, 2.0 * input, input),
            (Layer::LocalResponseNorm(norm), _) => {
                let size = f64::from(norm.size);
                match pass {
                    Pass::Forward => Work::of((size + 4.0) * input, input, output),
                    _ => Work::of((2.0 * size + 8.0) * input, 3.0 * input, input),
                }
            }
            (Layer::Dropout(_), Pass::Forward) => Work::of(input, input, output + input * MASK_ELEMENTS),
            (Layer::Dropout(_), Pass::BackwardData) => Work::of(input, input + input * MASK_ELEMENTS, input),
            (Layer::Relu, Pass::Forward) => Work::of(input, input, output),
            (Layer::Relu, Pass::BackwardData) => Work::of(input, input + output, input),
            (Layer::Pool2d(pool), _) => {
                let places = f64::from(pool.kernel.0) * f64::from(pool.kernel.1);
                match (pass, pool.kind) {
                    (Pass::Forward, _) => Work::of(places * output, input, output),
                    (_, PoolKind::Max) => Work::of(output, input + output, input),
                    (_, PoolKind::Average) => Work::of(places * output, output, input),
                }
            }
            (Layer::GlobalPool, Pass::Forward) => Work::of(input, input, output),
            (Layer::GlobalPool, Pass::BackwardData) => Work::of(output, output, input),
            (Layer::Add, Pass::Forward) => Work::of(input - output, input, output),
            (Layer::Add | Layer::Concat, Pass::BackwardData) => Work::of(0.0, output, input),
            (Layer::Concat, Pass::Forward) => Work::of(0.0, input, output),
            (Layer::SoftmaxCrossEntropy | Layer::LogisticCrossEntropy, Pass::Forward) => {
                Work::of(5.0 * input, input + n, input + n)
            }
            (Layer::SoftmaxCrossEntropy | Layer::LogisticCrossEntropy, Pass::BackwardData) => {
                Work::of(input + n, input + n, input)
            }
        }
    }

    /// The cost of one step of SGD with momentum on the layer's parameters in fp32:
    /// v ← µ·v + g + λ·w, w ← w − η·v. Reads w, g and v, writes w and v; 6 FLOPs an element, 4 where nothing decays.
    pub fn update_work(&self) -> Work {
        let mut work = Work::default();
        for parameter in &self.parameters {
            let elements = parameter.elements() as f64;
            work.flops += if parameter.decay { 6.0 } else { 4.0 } * elements;
            work.bytes_read += 3.0 * elements * ELEMENT_BYTES;
            work.bytes_written += 2.0 * elements * ELEMENT_BYTES;
        }
        work
    }
}
