//! `LayerRule`: defines the properties of every kind of layer: shapes, parameters, work, memory, splitting, fusion and
//! costs.

use lockstep_topology::Dtype;

use super::{
    Dimension, Init, InitRules, Inits, Layer, LayerKind, MatrixProduct, Node, Pass, SampleTensor, Shape, Signature,
    Work,
};

/// What a layer's kernel keeps from its forward to its backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptTensor {
    /// What it is: `places`, `mask`.
    pub what: &'static str,
    /// Its elements for each sample.
    pub elements: u64,
    /// The format of an element.
    pub dtype: Dtype,
}

impl KeptTensor {
    /// `elements` of `dtype` for each sample.
    pub(super) fn of(what: &'static str, elements: u64, dtype: Dtype) -> KeptTensor {
        KeptTensor { what, elements, dtype }
    }
}

/// A learnable tensor of a layer, before the model places it.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// `weight`, `bias`, `gamma`, …
    pub name: &'static str,
    /// How it starts.
    pub init: Init,
    /// Whether weight decay applies.
    pub decay: bool,
}

/// Links a layer to its kind; the list of layers implements it.
pub trait OfKind {
    /// The description of its kind.
    fn kind(&self) -> &'static LayerKind;
}

/// The rules of a layer. The defaults are those of a layer that changes each element by itself; a kind overrides
/// what differs.
pub trait LayerRule: OfKind {
    /// FLOPs of each [`Pass`] over one sample, in their order, a multiply-add being two; by default the kind's for each
    /// element of its inputs. Matrix products, whose signature says it, are not asked.
    fn flops(&self, of: &Node) -> [f64; 3] {
        self.kind().flops.map(|flops| flops * of.input_elements())
    }

    /// The matrix products that its kernels compute.
    fn product(&self, of: &Node) -> Option<MatrixProduct> {
        of.signature.product()
    }

    /// The work of a pass over `samples` samples where it is not its operands that it reads and writes.
    fn adjusted_work(&self, _of: &Node, _pass: Pass, _samples: f64, work: Work) -> Work {
        work
    }

    /// Its entries in a model file after the kind, e.g. `, rate = 0.5`.
    fn settings(&self) -> String {
        String::new()
    }

    /// What its measured costs depend on besides kind and shapes, e.g. ` size5 beta0.75`.
    fn cost_settings(&self) -> String {
        String::new()
    }

    /// Its learnable tensors, in the order of its signature: weight before bias, γ before β.
    fn parameters(&self, _inits: &Inits) -> Vec<Learned> {
        Vec::new()
    }

    /// A recipe's rule for its first parameter: `last` if no other layer of its kind follows, `ends_block` if it is the
    /// last of a residual block's branch.
    fn weight_rule(&self, _rules: &InitRules, _last: bool, _ends_block: bool) -> Option<Init> {
        None
    }

    /// The same layer with a bias; `None` where it cannot have one.
    fn with_bias(&self) -> Option<Layer> {
        None
    }

    /// The same layer without a bias, and whether it has one; `None` where it has no rows.
    fn without_bias(&self) -> Option<(Layer, bool)> {
        None
    }

    /// How many classes a loss tells apart: as many as its input has features.
    fn classes(&self, input: Shape) -> u32 {
        input.features()
    }

    /// The labels of a sample that it compares with its input; `None` where it needs none.
    fn labels(&self, _input: Shape) -> Option<SampleTensor> {
        None
    }

    /// The layer, by its name in the model, whose first parameter is its own first parameter too.
    fn tie(&self) -> Option<&str> {
        None
    }

    /// What its kernel keeps for the backward pass.
    fn keeps(&self, _input: Shape, _output: Shape) -> Option<KeptTensor> {
        None
    }

    /// Whether it can be part of the kernel of the layers `chain`.
    fn joins(&self, _chain: &[&Layer]) -> bool {
        false
    }

    /// The indices of its operands for inputs of these shapes, as many as it takes, from which the shapes of its output and its
    /// parameters follow; the error says what does not fit and the cure. By default each element of the output is made from
    /// the same element of each input.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        Ok(Signature::elementwise(inputs, inputs[0]))
    }

    /// The layer with its share among `ranks` of what its weights are split along, the last ones padded: rows where that is
    /// `feature`. `None` where it has no settings to share.
    fn share(&self, _along: Dimension, _ranks: u32) -> Option<Layer> {
        None
    }

    /// What a rank computes of a loss whose classes are split among `ranks`, and the loss of what all of them found; `None` of
    /// layers without an index that is merged.
    fn in_parts(&self, _input: Shape, _ranks: u32) -> Option<(Layer, Layer)> {
        None
    }

    /// Whether forward looks for the largest of windows that overlap.
    fn finds_overlapping_maxima(&self) -> bool {
        false
    }
}
