//! Generates random chains of layers: every kind of fused chain, and every layer alone.

use lockstep_models::{
    Affine, BatchNorm, BlurPool, Border, Conv2d, Dense, Dimension, Dropout, GroupNorm, ImageShape, Layer, LayerNorm,
    LeakyRelu, LocalResponseNorm, Pool2d, PoolKind, Reshape, Resize, ResponseNorm, Scale, Select, Shape, Softmax,
};
use proptest::prelude::*;

use crate::{any_batch, size};

/// A chain and its batch.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) layers: Vec<Layer>,
    pub(crate) inputs: Vec<Shape>,
    pub(crate) samples: u32,
}

impl Chain {
    /// The input shapes of each layer, then the output's; `None` where they do not fit.
    pub(crate) fn shapes(&self) -> Option<Vec<Vec<Shape>>> {
        let mut shapes = vec![self.inputs.clone()];
        for layer in &self.layers {
            let output = layer.output_shape(shapes.last()?).ok()?;
            shapes.push(vec![output]);
        }
        Some(shapes)
    }

    /// Number of learnable parameters, all of which belong to the first computing layer.
    pub(crate) fn parameters(&self) -> usize {
        let channels = self.inputs[0].features();
        let of = |layer: &Layer| match layer {
            Layer::Conv2d(conv) => {
                let taps = conv.kernel.0 * conv.kernel.1 * channels / conv.groups;
                (conv.out_channels * (taps + u32::from(conv.bias))) as usize
            }
            Layer::Dense(dense) => dense.out_features as usize * (size(self.inputs[0]) + usize::from(dense.bias)),
            Layer::BatchNorm(_) | Layer::LayerNorm(_) | Layer::GroupNorm(_) | Layer::ResponseNorm(_) => {
                2 * channels as usize
            }
            Layer::Bias => channels as usize,
            Layer::Scale(scale) => (1 + usize::from(scale.bias)) * channels as usize,
            _ => 0,
        };
        self.layers.iter().map(of).sum()
    }

    pub(crate) fn has(&self, is: impl Fn(&Layer) -> bool) -> bool {
        self.layers.iter().any(is)
    }
}

fn pair(range: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = (u32, u32)> {
    (range.clone(), range)
}

fn any_pool(kind: PoolKind) -> impl Strategy<Value = Layer> {
    let sizes = (pair(1..=3), pair(1..=3), pair(0..=1), any::<bool>());
    sizes.prop_map(move |(kernel, stride, padding, ceil)| {
        Layer::Pool2d(Pool2d { kind, kernel, stride, padding, ceil, count_padding: kind == PoolKind::Average && ceil })
    })
}

/// A convolution alone, with a ReLU, with a max pooling, with both.
pub(crate) fn convolutions() -> impl Strategy<Value = Chain> {
    let sizes = (1..3u32, 1..4u32, 1..4u32, pair(3..=8), 1..4u32);
    let filter = (pair(1..=3), pair(1..=3), pair(0..=2), pair(1..=2), any::<bool>());
    let tail = (any::<bool>(), proptest::option::of(any_pool(PoolKind::Max)));
    let chain = (sizes, filter, tail).prop_map(|((groups, ins, outs, side, samples), filter, (relu, pool))| {
        let (kernel, stride, padding, dilation, bias) = filter;
        let out_channels = outs * groups;
        let first = Layer::Conv2d(Conv2d { out_channels, kernel, stride, padding, dilation, groups, bias });
        let layers = [first].into_iter().chain(relu.then_some(Layer::Relu)).chain(pool).collect();
        Chain { layers, inputs: vec![Shape::of_image(ins * groups, side.0, side.1)], samples }
    });
    chain.prop_filter("shapes that fit", |chain| chain.shapes().is_some())
}

/// A dense layer with or without a ReLU, with a flattening before or after.
pub(crate) fn dense() -> impl Strategy<Value = Chain> {
    (any_batch(), 1..20u32, any::<[bool; 4]>()).prop_map(
        |((samples, shape), out_features, [bias, relu, before, behind])| {
            let dense = Layer::Dense(Dense { out_features, bias });
            let first = before.then_some(Layer::Flatten).into_iter().chain([dense]);
            let layers = first.chain(relu.then_some(Layer::Relu)).chain(behind.then_some(Layer::Flatten)).collect();
            Chain { layers, inputs: vec![shape], samples }
        },
    )
}

/// Kinds of [`norms`].
pub(crate) const NORMS: u32 = 3;

/// A batch normalisation with or without a ReLU, a group's or a layer's normalisation: of these kinds, over enough elements
/// for a meaningful deviation.
pub(crate) fn norms(which: impl Strategy<Value = u32>) -> impl Strategy<Value = Chain> {
    (which, 2..5u32, 1..12u32, pair(2..=8), any::<bool>()).prop_map(
        |(which, samples, channels, (height, width), relu)| {
            let epsilon = 1e-3;
            // Of few channels the gradient of a layer normalisation is rounding error.
            let channels = if which == 2 { channels + 4 } else { channels };
            let first = match which {
                0 => Layer::BatchNorm(BatchNorm { epsilon, momentum: 0.9 }),
                1 => Layer::GroupNorm(GroupNorm { groups: if relu { 1 } else { divisor(channels) }, epsilon }),
                _ => Layer::LayerNorm(LayerNorm { epsilon }),
            };
            let relu = relu && which == 0;
            let layers = [first].into_iter().chain(relu.then_some(Layer::Relu)).collect();
            Chain { layers, inputs: vec![Shape::of_image(channels, height, width)], samples }
        },
    )
}

/// Kinds of [`others`].
pub(crate) const KINDS: u32 = 29;

/// Layers that work element by element or channel by channel, and flattening, which is free after them: of these kinds, with
/// and without what a kind has as an option.
pub(crate) fn others(
    which: impl Strategy<Value = u32>,
    relu: impl Strategy<Value = bool>,
) -> impl Strategy<Value = Chain> {
    let which = (which, 2..4usize, 0..10u32, relu, any::<bool>());
    (any_batch(), which).prop_map(|((samples, shape), (which, many, more, relu, flat))| {
        let wider = shape.with_features(more + 1);
        let local = LocalResponseNorm { size: 2 * (more % 4) + 1, alpha: 0.3, beta: 0.5 + more as f32 / 20.0, k: 1.5 };
        let (layer, inputs) = match which {
            0 => (Layer::Relu, vec![shape]),
            1 => (Layer::Sigmoid, vec![shape]),
            2 => (Layer::Tanh, vec![shape]),
            3 => (Layer::Add, vec![shape; many]),
            4 => (Layer::Concat, if relu { vec![shape, wider, shape] } else { vec![wider, shape] }),
            5 => (Layer::Scale(Scale { bias: relu }), vec![shape]),
            6 => (Layer::LocalResponseNorm(local), vec![shape]),
            7 => (Layer::Dropout(Dropout { rate: more as f32 / 12.0 }), vec![shape]),
            8 => (Layer::Gelu, vec![shape]),
            9 => (Layer::Silu, vec![shape]),
            10 => (Layer::Bias, vec![shape]),
            12 => (Layer::ExactGelu, vec![shape]),
            13 => (Layer::Relu6, vec![shape]),
            14 => (Layer::HardSigmoid, vec![shape]),
            15 => (Layer::HardSwish, vec![shape]),
            16 => (Layer::LeakyRelu(LeakyRelu { slope: more as f32 / 20.0 }), vec![shape]),
            17 => (Layer::Affine(Affine { factor: 0.5 - more as f32 / 7.0, shift: 0.25 }), vec![shape]),
            18 => {
                let side = |bit: u32, size: u32| if more & bit == 0 { 1 } else { size };
                let ImageShape { channels, height, width } = shape.image();
                let second = Shape::of_image(side(1, channels), side(2, height), side(4, width));
                (Layer::Product, vec![shape, second])
            }
            19 => {
                let channels = shape.features().div_ceil(2);
                let groups = if relu && channels % 2 == 0 { 2 } else { 1 };
                (Layer::Select(Select { first: shape.features() - channels, channels, groups }), vec![shape])
            }
            20 => {
                let (before, after) = ((more % 3, 1), (0, more % 2));
                // A reflection is narrower than the image.
                let ImageShape { channels, height, width } = shape.image();
                let wide = Shape::of_image(channels, height.max(3), width.max(2));
                (Layer::Border(Border { before, after, reflect: relu }), vec![if relu { wide } else { shape }])
            }
            27 => (Layer::Square, vec![shape]),
            21 => (Layer::Resize(Resize { height: more + 1, width: shape.size(Dimension::Column) * 2 }), vec![shape]),
            22 => {
                (Layer::Resize(Resize { height: shape.size(Dimension::Row).div_ceil(2), width: more + 2 }), vec![shape])
            }
            23 => {
                // As many zeros on each side as keep the image.
                let (kernel, padding) = (2 * (more % 3) + 1, (more % 3, more % 3));
                (Layer::BlurPool(BlurPool { kernel, stride: (1 + more % 2, 1), padding }), vec![shape])
            }
            24 => (
                Layer::Softmax(Softmax { parts: if relu { shape.features() } else { divisor(shape.features()) } }),
                vec![shape],
            ),
            25 => (Layer::ResponseNorm(ResponseNorm { epsilon: 1e-3 }), vec![shape]),
            26 => {
                let row = Shape::of_image(1, 1, shape.features());
                (Layer::Reshape(Reshape { shape: row }), vec![Shape::flat(shape.features())])
            }
            _ => (Layer::Flatten, vec![shape]),
        };
        let relu = relu && layer == Layer::Add;
        let layers = [layer].into_iter().chain(relu.then_some(Layer::Relu)).chain(flat.then_some(Layer::Flatten));
        Chain { layers: layers.collect(), inputs, samples }
    })
}

/// The smallest divisor of `number` above 1, or 1.
fn divisor(number: u32) -> u32 {
    (2..=number).find(|divisor| number.is_multiple_of(*divisor)).unwrap_or(1)
}

/// Poolings.
pub(crate) fn pools() -> impl Strategy<Value = Chain> {
    let pool = prop_oneof![any_pool(PoolKind::Max), any_pool(PoolKind::Average), Just(Layer::GlobalPool)];
    let chain = (any_batch(), pool).prop_map(|((samples, shape), pool)| Chain {
        layers: vec![pool],
        inputs: vec![shape],
        samples,
    });
    chain.prop_filter("shapes that fit", |chain| chain.shapes().is_some())
}
