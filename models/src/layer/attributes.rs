//! What a layer is made from: the attributes that a file gives it, whatever the format, and the list of what formats call it.

use lockstep_topology::InputError;

use super::{Arity, FeatureRule, InputUse, KernelClass, Layer, Shape};

/// What a file says of one layer, under the format's own keys; `None` where it says nothing.
///
/// Errors name the place in the file, the value and the cure.
pub trait Attributes {
    /// A whole number from 0.
    ///
    /// # Errors
    /// A value of another type.
    fn size(&self, key: &str) -> Result<Option<u32>, InputError>;

    /// Two sizes, vertical and horizontal.
    ///
    /// # Errors
    /// Values of another type or number.
    fn pair(&self, key: &str) -> Result<Option<(u32, u32)>, InputError>;

    /// A finite number.
    ///
    /// # Errors
    /// A value of another type.
    fn number(&self, key: &str) -> Result<Option<f32>, InputError>;

    /// Yes or no.
    ///
    /// # Errors
    /// A value of another type.
    fn boolean(&self, key: &str) -> Result<Option<bool>, InputError>;

    /// One of several names.
    ///
    /// # Errors
    /// A value of another type.
    fn word(&self, key: &str) -> Result<Option<&str>, InputError>;

    /// Shape of a sample of the first input, where the format's reader knows it already.
    fn input(&self) -> Option<Shape> {
        None
    }

    /// An error about the value of `key`, or about the layer where it has none.
    fn refuse(&self, key: &str, message: &str) -> InputError;

    /// The error where `key` has no value.
    fn missing(&self, key: &str, example: &str) -> InputError {
        self.refuse(key, &format!("lacks the key {key}: {example}"))
    }
}

/// Makes a layer from its attributes.
pub type Maker = fn(&dyn Attributes) -> Result<Layer, InputError>;

/// A kind of layer: how files write it, and what holds for all layers of the kind.
pub struct Kind {
    /// In model files; [`Layer::kind`] gives the same.
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
    pub arity: Arity,
    /// Whether each channel of its output has a running mean and variance.
    pub statistics: bool,
    /// When a backward pass reads its input.
    pub input_use: InputUse,
    /// Whether a backward pass reads its output, for the slope follows from it.
    pub reads_output: bool,
    /// How many of its inputs (the first ones) its output may overwrite; of more inputs than that, one.
    pub overwrites: usize,
    /// Whether its output is the memory of its input.
    pub is_view: bool,
    /// Whether it ends a model.
    pub is_loss: bool,
    /// Whether it takes each sample as a vector of features, whatever its shape.
    pub flattens: bool,
    /// Whether a ReLU behind it can be part of its kernel.
    pub takes_relu: bool,
    /// How it lies over ranks that split a model by features, or why it cannot be split.
    pub features: Result<FeatureRule, &'static str>,
    /// How its kernels work.
    pub class: KernelClass,
    /// Layers of one family have kernels that work alike, so that one's measured costs speak for another's.
    pub family: &'static str,
}

/// A layer as Caffe's networks write it.
pub struct CaffeKind {
    /// Names of the type.
    pub types: &'static [&'static str],
    /// Fields that only such a layer has; the first holds its attributes.
    pub own: &'static [&'static str],
    /// The attributes that are known, with blanks between; empty where what is written there says nothing of the network.
    pub fields: &'static str,
    /// From these attributes.
    pub read: Maker,
}

impl Kind {
    /// A kind without keys, which changes each element by itself and of which a backward pass reads nothing.
    pub(super) const fn new(name: &'static str, read: Maker) -> Kind {
        Kind {
            name,
            keys: &[],
            read,
            onnx: &[],
            caffe: None,
            arity: Arity::One,
            statistics: false,
            input_use: InputUse::Never,
            reads_output: false,
            overwrites: 0,
            is_view: false,
            is_loss: false,
            flattens: false,
            takes_relu: false,
            features: Ok(FeatureRule::Follows),
            class: KernelClass::Elements,
            family: name,
        }
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
