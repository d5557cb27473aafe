//! Compares output shapes with counting: a table of cases worked by hand, and a window that is moved position by
//! position.

use super::{
    BatchNorm, Conv2d, Dense, Dimension, Dropout, Layer, LocalResponseNorm, Pool2d, PoolKind, RmsNorm, Rotary,
    RotaryPairing, RotaryScaling, Scale, Shape,
};

fn shape(channels: u32, height: u32, width: u32) -> Shape {
    Shape::of_image(channels, height, width)
}

fn conv(out_channels: u32, kernel: u32, stride: u32, padding: u32, dilation: u32, groups: u32) -> Layer {
    Layer::Conv2d(Conv2d {
        out_channels,
        kernel: (kernel, kernel),
        stride: (stride, stride),
        padding: (padding, padding),
        dilation: (dilation, dilation),
        groups,
        bias: true,
    })
}

fn pool(kernel: u32, stride: u32, padding: u32, ceil: bool) -> Layer {
    Layer::Pool2d(Pool2d {
        kind: PoolKind::Max,
        kernel: (kernel, kernel),
        stride: (stride, stride),
        padding: (padding, padding),
        ceil,
        count_padding: false,
    })
}

/// Starts at 0, stride, 2·stride … of windows that are inside the padded image; with `ceil` also one that only
/// begins there.
fn places_counted(size: u32, extent: u32, stride: u32, padding: u32, ceil: bool) -> u32 {
    let (mut start, mut count) = (0, 0);
    loop {
        let fits = start + extent <= size + 2 * padding;
        let previous_left_some = count > 0 && start - stride + extent < size + 2 * padding;
        let partly = ceil && previous_left_some && start < size + padding;
        if !(fits || partly) {
            return count;
        }
        count += 1;
        start += stride;
    }
}

#[test]
fn window_counts_equal_enumeration() {
    for size in 1..=9 {
        for kernel in 1..=4 {
            for stride in 1..=4 {
                for padding in 0..=3 {
                    for dilation in 1..=2 {
                        let extent = dilation * (kernel - 1) + 1;
                        let counted = places_counted(size, extent, stride, padding, false);
                        let got = conv(2, kernel, stride, padding, dilation, 1).output_shape(&[shape(3, size, size)]);
                        assert_eq!(got.ok(), (counted > 0).then(|| shape(2, counted, counted)));
                    }
                    for ceil in [false, true] {
                        let counted = places_counted(size, kernel, stride, padding, ceil);
                        let got = pool(kernel, stride, padding, ceil).output_shape(&[shape(3, size, size)]);
                        let fits = counted > 0 && padding < kernel;
                        let case = format!("{size} {kernel} {stride} {padding} {ceil}");
                        assert_eq!(got.ok(), fits.then(|| shape(3, counted, counted)), "{case}");
                    }
                }
            }
        }
    }
}

fn response(size: u32, alpha: f32, beta: f32, k: f32) -> Layer {
    Layer::LocalResponseNorm(LocalResponseNorm { size, alpha, beta, k })
}

#[test]
fn known_networks() {
    // Each line: layer, inputs, output, from the published tables of the networks.
    let cases: Vec<(Layer, Vec<Shape>, Shape)> = vec![
        (conv(32, 5, 1, 0, 1, 1), vec![shape(1, 28, 28)], shape(32, 24, 24)), // LeNet
        (conv(64, 7, 2, 3, 1, 1), vec![shape(3, 224, 224)], shape(64, 112, 112)), // ResNet-50 stem
        (pool(3, 2, 1, false), vec![shape(64, 112, 112)], shape(64, 56, 56)), // ResNet-50 stem
        (pool(3, 2, 0, true), vec![shape(192, 56, 56)], shape(192, 28, 28)),  // GoogLeNet in Caffe
        (conv(256, 5, 1, 2, 1, 2), vec![shape(96, 27, 27)], shape(256, 27, 27)), // AlexNet
        (Layer::Dense(Dense { out_features: 10, bias: true }), vec![shape(4, 3, 2)], shape(10, 1, 1)),
        (Layer::BatchNorm(BatchNorm { epsilon: 1e-5, momentum: 0.9 }), vec![shape(4, 3, 2)], shape(4, 3, 2)),
        (Layer::Relu, vec![shape(4, 3, 2)], shape(4, 3, 2)),
        (Layer::Sigmoid, vec![shape(4, 3, 2)], shape(4, 3, 2)),
        (Layer::Tanh, vec![shape(4, 3, 2)], shape(4, 3, 2)),
        (Layer::Scale(Scale { bias: true }), vec![shape(4, 3, 2)], shape(4, 3, 2)),
        (Layer::Dropout(Dropout { rate: 0.5 }), vec![shape(4, 3, 2)], shape(4, 3, 2)),
        (response(5, 1e-4, 0.75, 2.0), vec![shape(96, 55, 55)], shape(96, 55, 55)), // AlexNet
        (Layer::GlobalPool, vec![shape(4, 3, 2)], shape(4, 1, 1)),
        (Layer::Flatten, vec![shape(4, 3, 2)], shape(24, 1, 1)),
        (Layer::Add, vec![shape(4, 3, 2); 3], shape(4, 3, 2)),
        (Layer::Concat, vec![shape(4, 3, 2), shape(1, 3, 2)], shape(5, 3, 2)),
        (Layer::SoftmaxCrossEntropy, vec![shape(10, 1, 1)], shape(1, 1, 1)),
        (Layer::LogisticCrossEntropy, vec![shape(10, 1, 1)], shape(1, 1, 1)),
        (Layer::input(shape(1, 28, 28)), vec![], shape(1, 28, 28)),
    ];
    for (layer, inputs, output) in cases {
        assert_eq!(layer.output_shape(&inputs), Ok(output), "{layer:?}");
    }
}

#[test]
fn sides_are_vertical_then_horizontal() {
    let layer = Layer::Conv2d(Conv2d {
        out_channels: 1,
        kernel: (3, 1),
        stride: (1, 2),
        padding: (0, 1),
        dilation: (2, 1),
        groups: 1,
        bias: false,
    });
    // Height: 7 − 2·2 = 3. Width: ⌊(4 + 2 − 1) / 2⌋ + 1 = 3.
    assert_eq!(layer.output_shape(&[shape(1, 7, 4)]), Ok(shape(1, 3, 3)));
    assert_eq!(layer.output_shape(&[shape(1, 9, 4)]), Ok(shape(1, 5, 3)));
}

fn sequence(positions: u32, features: u32) -> Shape {
    Shape::new(&[(Dimension::Position, positions), (Dimension::Feature, features)])
}

fn llama3(low_freq_factor: f32, high_freq_factor: f32) -> RotaryScaling {
    let original_max_position_embeddings = 8192;
    RotaryScaling::Llama3 { factor: 8.0, low_freq_factor, high_freq_factor, original_max_position_embeddings }
}

/// Of two heads.
fn rotary(theta: f32, fraction: f32, scaling: RotaryScaling) -> Layer {
    Layer::Rotary(Rotary { heads: 2, theta, fraction, pairing: RotaryPairing::Halves, scaling })
}

/// Frequencies by hand: without scaling powers of theta; Llama's divide long waves by the factor and keep short ones; those of
/// YaRN too, by the place of the pair.
#[test]
fn rotary_frequencies_by_hand() {
    let of = |scaling| {
        let rotary = Rotary { heads: 2, theta: 10_000.0, fraction: 0.5, pairing: RotaryPairing::Halves, scaling };
        (rotary.frequencies(16), rotary.magnitude())
    };
    let near = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12 * b), "{found:?} {expected:?}");
    };
    let plain = [1.0, 0.1, 0.01, 0.001]; // 10000^(−2j/8)
    near(&of(RotaryScaling::None).0, &plain);
    near(&of(RotaryScaling::Linear { factor: 4.0 }).0, &plain.map(|f| f / 4.0));
    // Waves in 8192 positions: 1304, 130.4, 13.04, 1.304. The last is (1.304 − 1) / 3 of the way from divided to kept.
    let waves = 8192.0 * 0.001 / (2.0 * std::f64::consts::PI);
    let kept = (waves - 1.0) / 3.0;
    near(&of(llama3(1.0, 4.0)).0, &[1.0, 0.1, 0.01, 0.001 * (kept + (1.0 - kept) / 8.0)]);
    let (beta_fast, beta_slow, original_max_position_embeddings) = (32.0, 1.0, 8192);
    let yarn = of(RotaryScaling::Yarn { factor: 4.0, beta_fast, beta_slow, original_max_position_embeddings });
    // The pair that turns 32 times is 8 · ln(8192 / 64π) / 2 ln 10000 = 1.61, that which turns once 3.11: from 1 to 4.
    near(&yarn.0, &[1.0, 0.1, 0.01 * (2.0 / 3.0 + 1.0 / 12.0), 0.001 * (1.0 / 3.0 + 2.0 / 12.0)]);
    assert!((yarn.1 - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-15);
}

#[test]
fn errors_name_the_numbers() {
    let rms = |epsilon, heads| Layer::RmsNorm(RmsNorm { epsilon, unit_offset: false, heads });
    let norm = |epsilon, momentum| Layer::BatchNorm(BatchNorm { epsilon, momentum });
    let cases: Vec<(Layer, Vec<Shape>, &str)> = vec![
        (conv(4, 5, 1, 0, 1, 1), vec![shape(1, 4, 8)], "a kernel of 5 does not fit the height of its input 1×4×8"),
        (conv(4, 3, 1, 0, 2, 1), vec![shape(1, 8, 4)], "(dilated to 5) does not fit the width"),
        (conv(4, 3, 0, 0, 1, 1), vec![shape(1, 8, 8)], "stride is 0"),
        (conv(4, 1, 1, u32::MAX, 1, 1), vec![shape(1, 8, 8)], "padding is 4294967295"),
        (conv(4, 1, 1, 0, 1, 3), vec![shape(6, 8, 8)], "groups is 3: it must divide the 6 input channels and the 4"),
        (conv(4, 1, 1, 0, 1, 0), vec![shape(6, 8, 8)], "groups is 0"),
        (conv(0, 1, 1, 0, 1, 1), vec![shape(6, 8, 8)], "0×8×8: every size must be at least 1"),
        (conv(u32::MAX, 1, 1, 0, 1, 1), vec![shape(6, 8, 8)], "elements per sample"),
        (pool(2, 2, 2, false), vec![shape(6, 8, 8)], "padding is 2: it must be less than the kernel's 2"),
        (pool(9, 1, 0, true), vec![shape(6, 8, 8)], "a kernel of 9 does not fit"),
        (Layer::Add, vec![shape(1, 2, 3), shape(1, 3, 2)], "1×2×3 and 1×3×2"),
        (Layer::Add, vec![shape(1, 2, 3)], "has 1 inputs: add takes two or more"),
        (Layer::Concat, vec![shape(1, 2, 3), shape(1, 3, 2)], "1×2×3 and 1×3×2"),
        (Layer::Concat, vec![shape(u32::MAX, 1, 1); 2], "8589934590 channels are too many"),
        (Layer::Relu, vec![shape(1, 2, 3); 2], "has 2 inputs: relu takes exactly one"),
        (Layer::Flatten, vec![shape(u32::MAX, 2, 1)], "too many"),
        (Layer::SoftmaxCrossEntropy, vec![shape(10, 2, 1)], "its input is 10×2×1: put a dense layer before it"),
        (Layer::SoftmaxCrossEntropy, vec![shape(1, 1, 1)], "two classes or more"),
        (Layer::input(shape(u32::MAX, u32::MAX, u32::MAX)), vec![], "elements per sample"),
        (Layer::LogisticCrossEntropy, vec![shape(1, 1, 1)], "two classes or more"),
        (response(4, 1e-4, 0.75, 2.0), vec![shape(8, 1, 1)], "size is 4: it must be odd"),
        (response(5, -1.0, 0.75, 2.0), vec![shape(8, 1, 1)], "alpha is -1"),
        (response(5, 1e-4, f32::INFINITY, 2.0), vec![shape(8, 1, 1)], "beta is inf"),
        (response(5, 1e-4, 0.75, 0.0), vec![shape(8, 1, 1)], "k is 0: it must be positive"),
        (Layer::Dropout(Dropout { rate: 1.0 }), vec![shape(8, 1, 1)], "rate is 1: it must lie in 0 to 1"),
        (Layer::Dropout(Dropout { rate: f32::NAN }), vec![shape(8, 1, 1)], "rate is NaN"),
        (rms(0.0, 1), vec![sequence(4, 6)], "epsilon is 0"),
        (rms(1e-5, 4), vec![sequence(4, 6)], "divides 6 features among 4 heads"),
        (rms(1e-5, 1), vec![shape(6, 2, 2)], "its input is an image of 6×2×2"),
        (rotary(1.0, 1.0, RotaryScaling::None), vec![sequence(4, 8)], "theta is 1: it must be above 1"),
        (rotary(1e4, 0.3, RotaryScaling::None), vec![sequence(4, 8)], "fraction is 0.3: it turns 1 of the 4 features"),
        (rotary(1e4, 1.5, RotaryScaling::None), vec![sequence(4, 8)], "fraction is 1.5"),
        (rotary(1e4, 1.0, RotaryScaling::Linear { factor: 0.0 }), vec![sequence(4, 8)], "factor is 0"),
        (rotary(1e4, 1.0, llama3(4.0, 1.0)), vec![sequence(4, 8)], "low_freq_factor is 4 and high_freq_factor 1"),
        (Layer::Product, vec![sequence(4, 8), sequence(4, 1)], "sequences must have one shape"),
        (Layer::SoftmaxCrossEntropy, vec![sequence(4, 1)], "two classes or more"),
        (Layer::LogisticCrossEntropy, vec![sequence(4, 8)], "use softmax_cross_entropy"),
        (norm(0.0, 0.9), vec![shape(1, 1, 1)], "epsilon is 0"),
        (norm(1e-5, f32::NAN), vec![shape(1, 1, 1)], "momentum is NaN"),
    ];
    for (layer, inputs, wanted) in cases {
        let message = layer.output_shape(&inputs).expect_err(wanted);
        assert!(message.contains(wanted), "{message:?} lacks {wanted:?}");
    }
}
