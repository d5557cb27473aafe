//! `Kind`: describes what all layers of a kind have in common, and how files write them.

use std::ops::RangeInclusive;

use super::Maker;

/// A kind of layer: how files write it, and what holds for all layers of the kind.
pub struct LayerKind {
    /// In model files; [`Layer::kind`](super::Layer::kind) gives the same.
    pub name: &'static str,
    /// Its own keys in model files.
    pub keys: &'static [&'static str],
    /// From the keys of model files.
    pub read: Maker,
    /// ONNX operators that are such a layer, whatever tensors they take.
    pub onnx: &'static [(&'static str, Maker)],
    /// Caffe's layer.
    pub caffe: Option<CaffeKind>,
    /// How many inputs it takes.
    pub inputs: RangeInclusive<usize>,
    /// Whether each channel of its output has a running mean and variance.
    pub statistics: bool,
    /// Which backward passes read its input.
    pub input_use: InputUse,
    /// Whether a backward pass reads its output to compute the gradient.
    pub reads_output: bool,
    /// How many of its inputs (the first ones) its output may overwrite; with more inputs than that, one.
    pub overwrites: usize,
    /// Whether its output is the memory of its input.
    pub is_view: bool,
    /// Whether it ends a model.
    pub is_loss: bool,
    /// Whether each task of its backward pass computes its scores, as the forward pass does, since they are not kept.
    pub keeps_no_scores: bool,
    /// Whether training finds its loss there alone, with the gradients, and does nothing in the forward pass.
    pub loss_in_backward: bool,
    /// Whether it reads integers, as data sets give them: tokens.
    pub reads_integers: bool,
    /// Whether it reads labels without being a loss: a part of one.
    pub reads_labels: bool,
    /// Whether what it does at a place depends on which one of the sample that is.
    pub counts_places: bool,
    /// Whether it takes each sample as a vector of features, whatever its shape.
    pub flattens: bool,
    /// Whether its kernel can include a ReLU after it.
    pub takes_relu: bool,
    /// How its kernels work.
    pub class: KernelClass,
    /// FLOPs of each element of the inputs by pass, where the layer has no formula of its own.
    pub flops: [f64; 3],
    /// Layers of one family have similar kernels, so measured costs of one are used for another.
    pub family: &'static str,
}

/// A layer as Caffe's networks write it.
pub struct CaffeKind {
    /// Its type names.
    pub types: &'static [&'static str],
    /// Fields that only such a layer has; the first holds its attributes.
    pub own: &'static [&'static str],
    /// The known attributes, separated by blanks; empty where the field does not affect the network.
    pub fields: &'static str,
    /// From these attributes.
    pub read: Maker,
}

impl LayerKind {
    /// A kind without keys that changes each element by itself and whose backward passes read neither input nor output.
    pub(super) const fn new(name: &'static str, read: Maker) -> LayerKind {
        LayerKind {
            name,
            keys: &[],
            read,
            onnx: &[],
            caffe: None,
            inputs: 1..=1,
            statistics: false,
            input_use: InputUse::Never,
            reads_output: false,
            overwrites: 0,
            is_view: false,
            is_loss: false,
            keeps_no_scores: false,
            loss_in_backward: false,
            reads_integers: false,
            reads_labels: false,
            counts_places: false,
            flattens: false,
            takes_relu: false,
            class: KernelClass::Elements,
            flops: [1.0, 1.0, 0.0],
            family: name,
        }
    }

    /// Whether it is no computation: the samples, or its input in other dimensions.
    pub(crate) fn moves_nothing(&self) -> bool {
        self.is_view || *self.inputs.end() == 0
    }
}

impl CaffeKind {
    pub(super) const fn new(
        types: &'static [&'static str],
        own: &'static [&'static str],
        fields: &'static str,
        read: Maker,
    ) -> Option<CaffeKind> {
        Some(CaffeKind { types, own, fields, read })
    }
}

/// Which backward passes read the layer's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputUse {
    /// None.
    Never,
    /// For the gradient of the parameters.
    ForParameters,
    /// All: the gradient is computed from it.
    Always,
}

/// How many of `samples` images a CPU's convolutions process side by side: `most`, the elements of a register, or 8 or 4,
/// if the groups are then at least two thirds full. Else (`None`) registers hold places of one image.
pub fn samples_per_group(samples: u64, most: u64) -> Option<u64> {
    [most, 8, 4]
        .into_iter()
        .filter(|group| *group <= most)
        .find(|group| 3 * samples >= 2 * samples.next_multiple_of(*group))
}

/// How the kernels of layers that are no matrix products work, as far as costs distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelClass {
    /// Plane by plane.
    Planes,
    /// Probabilities of a loss's scores.
    Scores,
    /// Element by element.
    Elements,
}
