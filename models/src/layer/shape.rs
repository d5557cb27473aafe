//! Output shapes: what each layer makes of the shapes that enter it, or why it cannot.
//!
//! Sizes come from files, so every product and sum is taken in `u64` and limited before it becomes a `u32` again.

use std::fmt;

use super::{Conv2d, Layer, LocalResponseNorm, Pool2d, Shape};

/// Most elements one sample may have in any tensor: 8 GiB of fp32, and an index still fits a signed 32-bit integer.
const MAX_ELEMENTS: u64 = (1 << 31) - 1;

/// Largest kernel, stride, padding or dilation: small enough that no sum of their products leaves `u64`.
const MAX_WINDOW: u32 = 1 << 16;

impl Shape {
    /// A flat vector of `features`.
    pub fn flat(features: u32) -> Shape {
        Shape { channels: features, height: 1, width: 1 }
    }

    /// Elements of one sample, channels · height · width (`u64::MAX` where that does not fit).
    pub fn elements(&self) -> u64 {
        (u64::from(self.channels) * u64::from(self.height)).saturating_mul(u64::from(self.width))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}×{}", self.channels, self.height, self.width)
    }
}

impl Layer {
    /// The name of the layer's kind as model files write it, e.g. `conv2d`.
    pub fn kind(&self) -> &'static str {
        match self {
            Layer::Input(_) => "input",
            Layer::Conv2d(_) => "conv2d",
            Layer::Dense(_) => "dense",
            Layer::BatchNorm(_) => "batch_norm",
            Layer::Scale(_) => "scale",
            Layer::Relu => "relu",
            Layer::Sigmoid => "sigmoid",
            Layer::Tanh => "tanh",
            Layer::LocalResponseNorm(_) => "local_response_norm",
            Layer::Dropout(_) => "dropout",
            Layer::Pool2d(pool) => match pool.kind {
                super::PoolKind::Max => "max_pool",
                super::PoolKind::Average => "average_pool",
            },
            Layer::GlobalPool => "global_pool",
            Layer::Add => "add",
            Layer::Concat => "concat",
            Layer::Flatten => "flatten",
            Layer::Gather(_) => "gather",
            Layer::SoftmaxCrossEntropy => "softmax_cross_entropy",
            Layer::LogisticCrossEntropy => "logistic_cross_entropy",
        }
    }

    /// Shape of one sample of the output when samples of the shapes `inputs` enter.
    ///
    /// The loss of a sample is `1×1×1`. The error says what does not fit and how to mend it, without the layer's name.
    ///
    /// ```
    /// # use lockstep_models::{Layer, Shape};
    /// let image = Shape { channels: 3, height: 32, width: 32 };
    /// assert_eq!(Layer::GlobalPool.output_shape(&[image]), Ok(Shape { channels: 3, height: 1, width: 1 }));
    /// ```
    pub fn output_shape(&self, inputs: &[Shape]) -> Result<Shape, String> {
        check_arity(self, inputs.len())?;
        let shape = match self {
            Layer::Input(shape) | Layer::Gather(shape) => *shape,
            Layer::Conv2d(conv) => conv_shape(conv, inputs[0])?,
            Layer::Dense(dense) => Shape::flat(dense.out_features),
            Layer::BatchNorm(norm) => {
                if !(norm.epsilon > 0.0 && norm.epsilon.is_finite()) {
                    return Err(format!("epsilon is {}: it must be positive, e.g. 1e-5", norm.epsilon));
                }
                if !(0.0..1.0).contains(&norm.momentum) {
                    return Err(format!("momentum is {}: it must lie in 0 to 1, 1 excluded", norm.momentum));
                }
                inputs[0]
            }
            Layer::Scale(_) | Layer::Relu | Layer::Sigmoid | Layer::Tanh => inputs[0],
            Layer::LocalResponseNorm(norm) => {
                check_local_response(norm)?;
                inputs[0]
            }
            Layer::Dropout(dropout) => {
                if !(0.0..1.0).contains(&dropout.rate) {
                    return Err(format!("rate is {}: it must lie in 0 to 1, 1 excluded, e.g. 0.5", dropout.rate));
                }
                inputs[0]
            }
            Layer::Pool2d(pool) => pool_shape(pool, inputs[0])?,
            Layer::GlobalPool => Shape::flat(inputs[0].channels),
            Layer::Add => {
                if let Some(other) = inputs.iter().find(|shape| **shape != inputs[0]) {
                    return Err(format!("adds inputs of shapes {} and {other}: they must be equal", inputs[0]));
                }
                inputs[0]
            }
            Layer::Concat => concat_shape(inputs)?,
            Layer::Flatten => {
                let elements = inputs[0].elements();
                Shape::flat(u32::try_from(elements).map_err(|_| format!("{elements} features are too many"))?)
            }
            Layer::SoftmaxCrossEntropy | Layer::LogisticCrossEntropy => {
                let input = inputs[0];
                if input.height != 1 || input.width != 1 || input.channels < 2 {
                    return Err(format!(
                        "needs one score per class and two classes or more (n×1×1), but its input is {input}: put a \
                         dense layer before it"
                    ));
                }
                Shape::flat(1)
            }
        };
        check_size(shape)
    }
}

/// How many inputs a layer takes.
fn check_arity(layer: &Layer, inputs: usize) -> Result<(), String> {
    let (fits, wanted) = match layer {
        Layer::Input(_) => (inputs == 0, "no input"),
        Layer::Add | Layer::Concat => (inputs >= 2, "two or more inputs"),
        _ => (inputs == 1, "exactly one input"),
    };
    if fits { Ok(()) } else { Err(format!("has {inputs} inputs: {} takes {wanted}", layer.kind())) }
}

/// The denominator is positive whatever enters.
fn check_local_response(norm: &LocalResponseNorm) -> Result<(), String> {
    let (size, alpha, beta, k) = (norm.size, norm.alpha, norm.beta, norm.k);
    if size % 2 == 0 || size > MAX_WINDOW {
        return Err(format!("size is {size}: it must be odd and at most {MAX_WINDOW}, e.g. 5"));
    }
    for (name, value, fits, wanted) in [
        ("alpha", alpha, alpha >= 0.0, "zero or more, e.g. 1e-4"),
        ("beta", beta, beta >= 0.0, "zero or more, e.g. 0.75"),
        ("k", k, k > 0.0, "positive, e.g. 2.0"),
    ] {
        if !(fits && value.is_finite()) {
            return Err(format!("{name} is {value}: it must be {wanted}"));
        }
    }
    Ok(())
}

/// No side is zero and a sample fits into memory that can be indexed.
fn check_size(shape: Shape) -> Result<Shape, String> {
    if shape.channels == 0 || shape.height == 0 || shape.width == 0 {
        return Err(format!("its output is {shape}: every size must be at least 1"));
    }
    if shape.elements() > MAX_ELEMENTS {
        return Err(format!("its output of {shape} has more than {MAX_ELEMENTS} elements per sample: make it smaller"));
    }
    Ok(shape)
}

/// Sizes of a window lie in 1 to [`MAX_WINDOW`] (padding may be zero).
fn check_window(name: &str, pair: (u32, u32), least: u32) -> Result<(), String> {
    for size in [pair.0, pair.1] {
        if !(least..=MAX_WINDOW).contains(&size) {
            return Err(format!("{name} is {size}: it must be between {least} and {MAX_WINDOW}"));
        }
    }
    Ok(())
}

/// Places of a window of `extent` that moves by `stride` over `size` places with `padding` on each side.
fn places(size: u32, extent: u64, stride: u32, padding: u32, ceil: bool) -> Result<u32, u64> {
    let padded = u64::from(size) + 2 * u64::from(padding);
    let stride = u64::from(stride);
    let room = padded.checked_sub(extent).ok_or(padded)?;
    let mut count = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
    // Caffe's rule: a partial window must still start before the image's end.
    if ceil && (count - 1) * stride >= u64::from(size) + u64::from(padding) {
        count -= 1;
    }
    u32::try_from(count).map_err(|_| padded)
}

/// ⌊(size + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1 on each side.
fn conv_shape(conv: &Conv2d, input: Shape) -> Result<Shape, String> {
    check_window("kernel", conv.kernel, 1)?;
    check_window("stride", conv.stride, 1)?;
    check_window("padding", conv.padding, 0)?;
    check_window("dilation", conv.dilation, 1)?;
    let divides = |channels: u32| conv.groups > 0 && channels.is_multiple_of(conv.groups);
    if !divides(input.channels) || !divides(conv.out_channels) {
        return Err(format!(
            "groups is {}: it must divide the {} input channels and the {} output channels",
            conv.groups, input.channels, conv.out_channels
        ));
    }
    let side = |name, size, kernel: u32, stride, padding, dilation: u32| {
        let extent = u64::from(dilation) * u64::from(kernel - 1) + 1;
        places(size, extent, stride, padding, false).map_err(|padded| too_large(name, kernel, extent, padded, input))
    };
    Ok(Shape {
        channels: conv.out_channels,
        height: side("height", input.height, conv.kernel.0, conv.stride.0, conv.padding.0, conv.dilation.0)?,
        width: side("width", input.width, conv.kernel.1, conv.stride.1, conv.padding.1, conv.dilation.1)?,
    })
}

/// ⌊ or ⌈(size + 2·padding − kernel) / stride⌉ + 1 on each side.
fn pool_shape(pool: &Pool2d, input: Shape) -> Result<Shape, String> {
    check_window("kernel", pool.kernel, 1)?;
    check_window("stride", pool.stride, 1)?;
    check_window("padding", pool.padding, 0)?;
    let side = |name, size, kernel: u32, stride, padding| {
        if padding >= kernel {
            return Err(format!("padding is {padding}: it must be less than the kernel's {kernel}"));
        }
        places(size, u64::from(kernel), stride, padding, pool.ceil)
            .map_err(|padded| too_large(name, kernel, u64::from(kernel), padded, input))
    };
    Ok(Shape {
        channels: input.channels,
        height: side("height", input.height, pool.kernel.0, pool.stride.0, pool.padding.0)?,
        width: side("width", input.width, pool.kernel.1, pool.stride.1, pool.padding.1)?,
    })
}

/// The sum of the channels; heights and widths must agree.
fn concat_shape(inputs: &[Shape]) -> Result<Shape, String> {
    let first = inputs[0];
    if let Some(other) = inputs.iter().find(|shape| (shape.height, shape.width) != (first.height, first.width)) {
        return Err(format!("joins inputs of shapes {first} and {other}: heights and widths must be equal"));
    }
    let channels: u64 = inputs.iter().map(|shape| u64::from(shape.channels)).sum();
    let channels = u32::try_from(channels).map_err(|_| format!("{channels} channels are too many"))?;
    Ok(Shape { channels, ..first })
}

/// The message for a window that does not fit its input.
fn too_large(name: &str, kernel: u32, extent: u64, padded: u64, input: Shape) -> String {
    let spread = if extent == u64::from(kernel) { String::new() } else { format!(" (dilated to {extent})") };
    format!(
        "a kernel of {kernel}{spread} does not fit the {name} of its input {input} ({padded} with padding): use a \
         smaller kernel or more padding"
    )
}

#[cfg(test)]
mod tests;
