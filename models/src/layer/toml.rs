//! Writes a layer as a model file does: its kind and every key, none left to a default.

use std::fmt;

use super::{BatchNorm, Conv2d, Dense, Dropout, Layer, LocalResponseNorm, Pool2d, Scale};

/// Two sides of a window.
struct Pair((u32, u32));

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.0.0, self.0.1)
    }
}

impl fmt::Display for Layer {
    /// The entries of the layer's table in a model file.
    ///
    /// An input, and what ranks gather, have no table of their own there; they give their shape in the same style.
    ///
    /// ```
    /// use lockstep_models::{Dense, Layer};
    /// let layer = Layer::Dense(Dense { out_features: 10, bias: true });
    /// assert_eq!(layer.to_string(), r#"kind = "dense", out_features = 10, bias = true"#);
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind = \"{}\"", self.kind())?;
        match self {
            Layer::Input(shape) | Layer::Gather(shape) => {
                write!(f, ", shape = [{}, {}, {}]", shape.channels, shape.height, shape.width)
            }
            Layer::Conv2d(Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias }) => {
                let [kernel, stride, padding, dilation] = [kernel, stride, padding, dilation].map(|pair| Pair(*pair));
                write!(
                    f,
                    ", out_channels = {out_channels}, kernel = {kernel}, stride = {stride}, padding = {padding}"
                )?;
                write!(f, ", dilation = {dilation}, groups = {groups}, bias = {bias}")
            }
            Layer::Dense(Dense { out_features, bias }) => write!(f, ", out_features = {out_features}, bias = {bias}"),
            Layer::BatchNorm(BatchNorm { epsilon, momentum }) => {
                write!(f, ", epsilon = {epsilon}, momentum = {momentum}")
            }
            Layer::Scale(Scale { bias }) => write!(f, ", bias = {bias}"),
            Layer::LocalResponseNorm(LocalResponseNorm { size, alpha, beta, k }) => {
                write!(f, ", size = {size}, alpha = {alpha}, beta = {beta}, k = {k}")
            }
            Layer::Dropout(Dropout { rate }) => write!(f, ", rate = {rate}"),
            // The kind says which of the two poolings it is.
            Layer::Pool2d(Pool2d { kind: _, kernel, stride, padding, ceil }) => {
                let [kernel, stride, padding] = [kernel, stride, padding].map(|pair| Pair(*pair));
                write!(f, ", kernel = {kernel}, stride = {stride}, padding = {padding}, ceil = {ceil}")
            }
            Layer::Relu
            | Layer::Sigmoid
            | Layer::Tanh
            | Layer::GlobalPool
            | Layer::Add
            | Layer::Concat
            | Layer::Flatten
            | Layer::SoftmaxCrossEntropy
            | Layer::LogisticCrossEntropy => Ok(()),
        }
    }
}
