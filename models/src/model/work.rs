//! Computes the cost of the passes of a layer of a model.

use super::{Node, Parameter};
use crate::Phase;
use crate::layer::{InputUse, MatrixProduct, Pass, Work};

impl Node {
    /// Elements of all inputs of one sample.
    pub(crate) fn input_elements(&self) -> f64 {
        self.input_shapes.iter().map(|shape| shape.elements() as f64).sum()
    }

    /// Elements of the output of one sample.
    pub(crate) fn output_elements(&self) -> f64 {
        self.output.elements() as f64
    }

    /// The cost of `pass` over `samples` samples: it reads its operands, each once, and writes what it makes.
    ///
    /// Zero for passes that do not exist: backward-weight without parameters, or any pass of the input.
    /// [`Model::needs_input_gradient`](crate::Model::needs_input_gradient) says whether backward-data is needed at all.
    pub fn work(&self, pass: Pass, samples: u32) -> Work {
        let (rule, samples) = (self.layer.rule(), f64::from(samples));
        let (kind, product) = (rule.kind(), self.signature.product());
        if kind.moves_nothing() || pass == Pass::BackwardWeight && self.signature.parameters.is_empty() {
            return Work::default();
        }
        let (input, output) = (samples * self.input_elements(), samples * self.output_elements());
        let learned = || self.signature.parameter_shapes().map(|shape| shape.elements() as f64);
        // A running mean and variance of each feature.
        let running = if kind.statistics { 2.0 * f64::from(self.output.features()) } else { 0.0 };
        // What multiplies the input has its gradient from the input, and the input its own from it.
        let multiplies = kind.input_use != InputUse::Never;
        let weight = learned().next().filter(|_| multiplies).unwrap_or(0.0);
        let learned: f64 = learned().sum();
        let read_if = |is_read: bool, elements: f64| if is_read { elements } else { 0.0 };
        let flops = match product {
            // Each pass multiplies and adds as often.
            Some(product) => 2.0 * output * (product.inputs * product.kernel),
            None => samples * rule.flops(self)[pass as usize],
        };
        let work = match pass {
            Pass::Forward => Work::of(flops, input + learned + running, output + running),
            Pass::BackwardData => {
                let kept = read_if(kind.input_use == InputUse::Always, input) + read_if(kind.reads_output, output);
                Work::of(flops, output + weight + kept, input)
            }
            Pass::BackwardWeight => Work::of(flops, output + read_if(multiplies, input), learned),
        };
        rule.adjusted_work(self, pass, samples, work)
    }

    /// The passes that a phase of it consists of.
    pub fn passes(&self, phase: Phase) -> &'static [Pass] {
        let kind = self.layer.rule().kind();
        match (phase, kind.keeps_no_scores) {
            (Phase::Forward | Phase::Recompute, _) if kind.loss_in_backward => &[],
            (Phase::Forward | Phase::Recompute | Phase::Evaluate, _) => &[Pass::Forward],
            (Phase::BackwardData, false) => &[Pass::BackwardData],
            (Phase::BackwardData, true) => &[Pass::Forward, Pass::BackwardData],
            (Phase::BackwardWeight, false) => &[Pass::BackwardWeight],
            (Phase::BackwardWeight, true) => &[Pass::Forward, Pass::BackwardWeight],
            (Phase::Backward, false) => &[Pass::BackwardData, Pass::BackwardWeight],
            (Phase::Backward, true) => &[Pass::Forward, Pass::BackwardData, Pass::BackwardWeight],
        }
    }

    /// FLOPs of a phase of it over `samples` samples, with both gradients where it has both.
    pub fn flops(&self, phase: Phase, samples: u32) -> f64 {
        self.passes(phase).iter().map(|pass| self.work(*pass, samples).flops).sum()
    }

    /// Whether it multiplies by a matrix of weights: a convolution or a dense layer.
    pub fn is_product(&self) -> bool {
        self.signature.product().is_some()
    }

    /// The matrix of weights by which it multiplies.
    pub fn weight(&self) -> Option<&Parameter> {
        self.parameters.first().filter(|_| self.is_product())
    }

    /// The matrix products that its kernels compute: those of its signature, of attention, or of a loss with an output layer.
    pub fn product(&self) -> Option<MatrixProduct> {
        self.layer.rule().product(self)
    }
}
