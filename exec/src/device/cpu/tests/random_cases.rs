//! Generates random layers with random shapes.

use super::*;

fn upto(range: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = (u32, u32)> {
    (range.clone(), range)
}

pub(super) fn any_conv() -> impl Strategy<Value = Case> {
    let sizes = (1..3u32, 1..4u32, 1..4u32, upto(1..=7), 1..7usize);
    let filter = (upto(1..=3), upto(1..=3), upto(0..=2), upto(1..=2), any::<bool>());
    (sizes, filter).prop_map(|((groups, ins, outs, (h, w), samples), (kernel, stride, padding, dilation, bias))| Case {
        layer: Layer::Conv2d(Conv2d { out_channels: outs * groups, kernel, stride, padding, dilation, groups, bias }),
        inputs: vec![shape(ins * groups, h, w)],
        samples,
    })
}

fn any_pool() -> impl Strategy<Value = Case> {
    let filter = (upto(1..=3), upto(1..=3), upto(0..=1), any::<bool>(), any::<bool>());
    (upto(1..=8), 1..4u32, filter).prop_map(|((h, w), channels, (kernel, stride, padding, ceil, max))| {
        let kind = if max { PoolKind::Max } else { PoolKind::Average };
        let layer = Layer::Pool2d(Pool2d {
            kind,
            kernel,
            stride,
            padding,
            ceil,
            count_padding: !max && ceil != (kernel.0 > 1),
        });
        Case { layer, inputs: vec![shape(channels, h, w)], samples: 2 }
    })
}

fn any_other() -> impl Strategy<Value = Case> {
    let image = (1..20u32, upto(1..=5), 1..4usize).prop_map(|(c, (h, w), samples)| (shape(c, h, w), samples));
    (image, 0..33, 1..20u32, any::<bool>()).prop_map(|((shape, samples), which, more, bias)| {
        let wider = shape.with_features(more);
        let norm = Layer::BatchNorm(BatchNorm { epsilon: 1e-3, momentum: 0.9 });
        let (layer, inputs) = match which {
            0 => (Layer::Dense(Dense { out_features: more, bias }), vec![shape]),
            // For two values the gradient is pure rounding error: they are normalised to 1 and -1 whatever they were.
            1 if samples * shape.places() as usize != 2 => (norm, vec![shape]),
            1 | 2 => (Layer::Relu, vec![shape]),
            3 => (Layer::GlobalPool, vec![shape]),
            4 => (Layer::Add, vec![shape; 2 + usize::from(bias)]),
            5 => (Layer::Concat, vec![shape, wider, shape]),
            6 => (Layer::Sigmoid, vec![shape]),
            7 => (Layer::Tanh, vec![shape]),
            8 => (Layer::Scale(ScaleLayer { bias }), vec![shape]),
            9 => {
                let beta = if bias { 0.75 } else { 0.5 + more as f32 / 20.0 };
                // Also windows wider than the channels, and an α large enough to matter.
                let size = 2 * (more % 5) + 1;
                (Layer::LocalResponseNorm(LocalResponseNorm { size, alpha: 0.3, beta, k: 1.5 }), vec![shape])
            }
            10 => (Layer::Dropout(DropoutLayer { rate: more as f32 / 20.0 }), vec![shape]),
            11 => (Layer::Gelu, vec![shape]),
            12 => (Layer::Silu, vec![shape]),
            13 => (Layer::Bias, vec![shape]),
            14 => (Layer::ExactGelu, vec![shape]),
            15 => (Layer::Relu6, vec![shape]),
            16 => (Layer::LeakyRelu(LeakyRelu { slope: more as f32 / 20.0 }), vec![shape]),
            17 => (Layer::HardSigmoid, vec![shape]),
            18 => (Layer::HardSwish, vec![shape]),
            19 => (Layer::Affine(Affine { factor: more as f32 / 7.0, shift: -0.5 }), vec![shape]),
            // Of one or two channels the gradient is rounding error, as above.
            20 if shape.features() > 2 => (Layer::LayerNorm(LayerNorm { epsilon: 1e-3 }), vec![shape]),
            21 => (Layer::Product, vec![shape, factor_of(shape, more)]),
            22 => {
                let channels = shape.features().div_ceil(2);
                let groups = if bias && channels % 2 == 0 { 2 } else { 1 };
                (Layer::Select(Select { first: shape.features() - channels, channels, groups }), vec![shape])
            }
            23 | 24 => {
                let reflect = which == 24;
                (Layer::Border(Border { before: (more % 3, 1), after: (0, more % 2), reflect }), vec![shape])
            }
            25 => {
                let blur =
                    BlurPool { kernel: more % 5 + 1, stride: (1 + more % 2, 2), padding: (more % 5 / 2, more % 2) };
                (Layer::BlurPool(blur), vec![shape])
            }
            26 => (Layer::Resize(Resize { height: more, width: shape.size(Dimension::Column) * 2 }), vec![shape]),
            27 => {
                let parts = if bias { shape.features() } else { divisor(shape.features(), more) };
                (Layer::Softmax(Softmax { parts }), vec![shape])
            }
            // Of few elements the gradient is rounding error, as above.
            28 if size(shape) / divisor(shape.features(), more) as usize > 2 => {
                let groups = divisor(shape.features(), more);
                (Layer::GroupNorm(GroupNorm { groups, epsilon: 1e-3 }), vec![shape])
            }
            29 => (Layer::ResponseNorm(ResponseNorm { epsilon: 1e-3 }), vec![shape]),
            31 => (Layer::Square, vec![shape]),
            30 => {
                let (from, to) = (Shape::flat(shape.features()), Shape::of_image(1, 1, shape.features()));
                let (from, to) = if bias { (from, to) } else { (to, from) };
                (Layer::Reshape(Reshape { shape: to }), vec![from])
            }
            _ => (Layer::Flatten, vec![shape]),
        };
        Case { layer, inputs, samples }
    })
}

/// The largest divisor of `number` that is at most `most`.
fn divisor(number: u32, most: u32) -> u32 {
    (1..=most).rev().find(|divisor| number.is_multiple_of(*divisor)).unwrap_or(1)
}

/// A shape that may multiply `shape`: any of its sides is 1.
fn factor_of(shape: Shape, which: u32) -> Shape {
    let side = |bit: u32, size: u32| if which & bit == 0 { 1 } else { size };
    let image = shape.image();
    Shape::of_image(side(1, image.channels), side(2, image.height), side(4, image.width))
}

pub(super) fn any_case() -> impl Strategy<Value = Case> {
    prop_oneof![2 => any_conv(), 1 => any_pool(), 2 => any_other()]
        .prop_filter("shapes that fit", |case| case.layer.output_shape(&case.inputs).is_ok())
}
