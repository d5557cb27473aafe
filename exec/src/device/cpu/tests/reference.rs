//! Computes the forward pass of every layer in f64 by plain loops, obvious rather than fast: the reference for the
//! kernels.

mod sequences;
mod sets;

use lockstep_data::random::{Purpose, stream_within};
use lockstep_models::{Conv2d, Dimension, ImageShape, Layer, LayerNorm, LocalResponseNorm, Pool2d, PoolKind, Shape};
use rand_chacha::rand_core::Rng;

use super::super::{Draw, size};

/// Index of an element in `[samples, shape]`, or `None` outside the image.
fn place(shape: Shape, sample: usize, channel: usize, y: i64, x: i64) -> Option<usize> {
    let (height, width) = shape.image().sides();
    let (height, width) = (i64::from(height), i64::from(width));
    let inside = (0..height).contains(&y) && (0..width).contains(&x);
    inside.then(|| sample * size(shape) + ((channel as i64 * height + y) * width + x) as usize)
}

/// The layer's output in training mode for `inputs` of `shapes`, the parameters as a kernel takes them.
pub(super) fn forward(
    layer: &Layer,
    shapes: &[Shape],
    samples: usize,
    inputs: &[Vec<f64>],
    parameters: &[f64],
) -> Vec<f64> {
    let (shape, x) = (shapes[0], &inputs[0]);
    let output = layer.output_shape(shapes).expect("the case's shapes fit");
    let outputs = |sample: usize| {
        let ImageShape { channels, height, width } = output.image();
        (0..channels as usize).flat_map(move |c| {
            (0..i64::from(height)).flat_map(move |h| (0..i64::from(width)).map(move |w| (sample, c, h, w)))
        })
    };
    let all = (0..samples).flat_map(outputs);
    if shape.has(Dimension::Position) && matches!(layer, Layer::LayerNorm(_) | Layer::Bias | Layer::Product) {
        return of_sequences(layer, shapes, samples, inputs, parameters);
    }
    match layer {
        Layer::Linear(_) | Layer::PositionEmbedding | Layer::Attention(_) | Layer::RmsNorm(_) | Layer::Rotary(_) => {
            of_sequences(layer, shapes, samples, inputs, parameters)
        }
        Layer::Embedding(_) | Layer::Documents(_) => panic!("reads integers"),
        Layer::Conv2d(conv) => all.map(|(n, c, h, w)| conv_at(conv, shape, x, parameters, n, c, h, w)).collect(),
        Layer::Dense(dense) => {
            let (inputs, outputs) = (size(shape), dense.out_features as usize);
            all.map(|(n, o, _, _)| {
                let bias = if dense.bias { parameters[outputs * inputs + o] } else { 0.0 };
                (0..inputs).map(|i| x[n * inputs + i] * parameters[o * inputs + i]).sum::<f64>() + bias
            })
            .collect()
        }
        Layer::BatchNorm(norm) => {
            let (channels, plane) = (shape.features() as usize, shape.places() as usize);
            let of = |c: usize| {
                let count = (samples * plane) as f64;
                let values = || x.iter().enumerate().filter(move |(i, _)| i / plane % channels == c).map(|(_, x)| *x);
                let mean = values().sum::<f64>() / count;
                (mean, values().map(|x| (x - mean).powi(2)).sum::<f64>() / count)
            };
            let statistics: Vec<(f64, f64)> = (0..channels).map(of).collect();
            let normal = |(i, x): (usize, &f64)| {
                let c = i / plane % channels;
                let (mean, variance) = statistics[c];
                parameters[c] * (x - mean) / (variance + f64::from(norm.epsilon)).sqrt() + parameters[channels + c]
            };
            x.iter().enumerate().map(normal).collect()
        }
        Layer::Scale(scale) => {
            let (channels, plane) = (shape.features() as usize, shape.places() as usize);
            let one = |(i, x): (usize, &f64)| {
                let c = i / plane % channels;
                parameters[c] * x + if scale.bias { parameters[channels + c] } else { 0.0 }
            };
            x.iter().enumerate().map(one).collect()
        }
        Layer::Bias => {
            let (channels, plane) = (shape.features() as usize, shape.places() as usize);
            x.iter().enumerate().map(|(i, x)| x + parameters[i / plane % channels]).collect()
        }
        Layer::Relu => x.iter().map(|x| x.max(0.0)).collect(),
        Layer::Sigmoid => x.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        Layer::Square => x.iter().map(|x| x * x).collect(),
        Layer::Tanh => x.iter().map(|x| (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())).collect(),
        Layer::Silu => x.iter().map(|x| x / (1.0 + (-x).exp())).collect(),
        Layer::Gelu => {
            let bend = |x: f64| ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh();
            x.iter().map(|x| 0.5 * x * (1.0 + bend(*x))).collect()
        }
        Layer::ExactGelu => x.iter().map(|x| 0.5 * x * (1.0 + lockstep_models::layer::erf(x / 2f64.sqrt()))).collect(),
        Layer::Relu6 => x.iter().map(|x| x.clamp(0.0, 6.0)).collect(),
        Layer::LeakyRelu(leaky) => x.iter().map(|x| if *x > 0.0 { *x } else { f64::from(leaky.slope) * x }).collect(),
        Layer::HardSigmoid => x.iter().map(|x| (x / 6.0 + 0.5).clamp(0.0, 1.0)).collect(),
        Layer::HardSwish => x.iter().map(|x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)).collect(),
        Layer::Affine(of) => x.iter().map(|x| f64::from(of.factor) * x + f64::from(of.shift)).collect(),
        Layer::LayerNorm(norm) => all.map(|(n, c, h, w)| normal_at(norm, shape, x, parameters, n, c, h, w)).collect(),
        Layer::Product => all
            .zip(x)
            .map(|((n, c, h, w), x)| {
                let other = shapes[1];
                let at = |at: i64, size: u32| if size == 1 { 0 } else { at };
                let size = other.image();
                let c = at(c as i64, size.channels) as usize;
                x * place(other, n, c, at(h, size.height), at(w, size.width)).map_or(0.0, |at| inputs[1][at])
            })
            .collect(),
        Layer::Select(of) => all
            .map(|(n, c, h, w)| place(shape, n, of.source(c as u32) as usize, h, w).map_or(0.0, |at| x[at]))
            .collect(),
        Layer::Border(_) | Layer::BlurPool(_) | Layer::Resize(_) => {
            all.map(|(n, c, h, w)| resampled_at(layer, (shape, output), x, n, c, h, w)).collect()
        }
        Layer::Softmax(_) | Layer::GroupNorm(_) | Layer::ResponseNorm(_) => (0..samples)
            .flat_map(|n| sets::of_sample(layer, shape, &x[n * size(shape)..][..size(shape)], parameters))
            .collect(),
        Layer::LocalResponseNorm(norm) => all.map(|(n, c, h, w)| response_at(norm, shape, x, n, c, h, w)).collect(),
        Layer::Dropout(dropout) => {
            let (size, draw) = (size(shape), Draw::default());
            let falls = |sample: usize| {
                let mut random = stream_within(draw.seed, Purpose::Dropout, sample as u64, draw.layer.into());
                (0..size).map(move |_| f64::from(random.next_u32()) < f64::from(dropout.rate) * 4_294_967_296.0)
            };
            let kept = 1.0 - f64::from(dropout.rate);
            (0..samples).flat_map(falls).zip(x).map(|(falls, x)| if falls { 0.0 } else { x / kept }).collect()
        }
        Layer::Pool2d(pool) => all.map(|(n, c, h, w)| pool_at(pool, shape, x, n, c, h, w)).collect(),
        Layer::GlobalPool => {
            let plane = shape.places() as usize;
            x.chunks(plane).map(|plane| plane.iter().sum::<f64>() / plane.len() as f64).collect()
        }
        Layer::Add => (0..x.len()).map(|i| inputs.iter().map(|x| x[i]).sum()).collect(),
        Layer::Concat => (0..samples)
            .flat_map(|n| {
                shapes
                    .iter()
                    .zip(inputs)
                    .flat_map(move |(shape, x)| x[n * size(*shape)..(n + 1) * size(*shape)].to_vec())
            })
            .collect(),
        Layer::Flatten | Layer::Reshape(_) => x.clone(),
        // Losses and their parts are tested by themselves.
        Layer::Input(_) | Layer::Relayout(_) => panic!("no kernel of a chain"),
        Layer::SoftmaxCrossEntropy | Layer::LogisticCrossEntropy | Layer::LinearCrossEntropy(_) => panic!("a loss"),
        Layer::PartialSoftmax(_) | Layer::LinearPartialSoftmax(_) | Layer::MergedCrossEntropy(_) => panic!("of a loss"),
    }
}

/// Sample by sample.
fn of_sequences(layer: &Layer, shapes: &[Shape], samples: usize, inputs: &[Vec<f64>], parameters: &[f64]) -> Vec<f64> {
    let of_sample = |sample: usize| {
        let part =
            |(x, shape): (&'_ Vec<f64>, &Shape)| -> Vec<f64> { x[sample * size(*shape)..][..size(*shape)].to_vec() };
        let parts: Vec<Vec<f64>> = inputs.iter().zip(shapes).map(part).collect();
        let parts: Vec<&[f64]> = parts.iter().map(Vec::as_slice).collect();
        sequences::of_sample(layer, shapes[0], &parts, parameters)
    };
    (0..samples).flat_map(of_sample).collect()
}

#[expect(clippy::too_many_arguments, reason = "a place has four coordinates")]
fn conv_at(conv: &Conv2d, shape: Shape, x: &[f64], parameters: &[f64], n: usize, o: usize, h: i64, w: i64) -> f64 {
    let (out, groups) = (conv.out_channels as usize, conv.groups as usize);
    let (channels, height, width) =
        (shape.features() as usize / groups, conv.kernel.0 as usize, conv.kernel.1 as usize);
    let mut total = if conv.bias { parameters[out * channels * height * width + o] } else { 0.0 };
    for c in 0..channels {
        for i in 0..height {
            for j in 0..width {
                let y =
                    h * i64::from(conv.stride.0) + i as i64 * i64::from(conv.dilation.0) - i64::from(conv.padding.0);
                let z =
                    w * i64::from(conv.stride.1) + j as i64 * i64::from(conv.dilation.1) - i64::from(conv.padding.1);
                if let Some(at) = place(shape, n, o / (out / groups) * channels + c, y, z) {
                    total += x[at] * parameters[((o * channels + c) * height + i) * width + j];
                }
            }
        }
    }
    total
}

#[expect(clippy::too_many_arguments, reason = "a place has four coordinates")]
fn normal_at(norm: &LayerNorm, shape: Shape, x: &[f64], parameters: &[f64], n: usize, c: usize, h: i64, w: i64) -> f64 {
    let channels = shape.features() as usize;
    let at = |channel: usize| place(shape, n, channel, h, w).map_or(0.0, |at| x[at]);
    let mean = (0..channels).map(at).sum::<f64>() / channels as f64;
    let variance = (0..channels).map(|c| (at(c) - mean).powi(2)).sum::<f64>() / channels as f64;
    parameters[c] * (at(c) - mean) / (variance + f64::from(norm.epsilon)).sqrt() + parameters[channels + c]
}

fn response_at(norm: &LocalResponseNorm, shape: Shape, x: &[f64], n: usize, c: usize, h: i64, w: i64) -> f64 {
    let at = |channel: i64| {
        let inside = (0..i64::from(shape.features())).contains(&channel);
        if inside { place(shape, n, channel as usize, h, w).map_or(0.0, |at| x[at]) } else { 0.0 }
    };
    let half = i64::from(norm.size / 2);
    let squares: f64 = (c as i64 - half..=c as i64 + half).map(|channel| at(channel).powi(2)).sum();
    at(c as i64) / (f64::from(norm.k) + f64::from(norm.alpha) * squares).powf(f64::from(norm.beta))
}

fn resampled_at(layer: &Layer, (shape, output): (Shape, Shape), x: &[f64], n: usize, c: usize, h: i64, w: i64) -> f64 {
    let (height, width) = shape.image().sides();
    let (height, width) = (i64::from(height), i64::from(width));
    match layer {
        Layer::Border(of) => {
            let (y, z) = (h - i64::from(of.before.0), w - i64::from(of.before.1));
            // The edge is not repeated: −1 is 1, and the size is the size − 2.
            let mirror = |at: i64, size: i64| {
                if at < 0 {
                    -at
                } else if at >= size {
                    2 * size - 2 - at
                } else {
                    at
                }
            };
            let (y, z) = if of.reflect { (mirror(y, height), mirror(z, width)) } else { (y, z) };
            place(shape, n, c, y, z).map_or(0.0, |at| x[at])
        }
        Layer::Resize(_) => {
            let (rows, columns) = output.image().sides();
            let (y, z) = (h * height / i64::from(rows), w * width / i64::from(columns));
            place(shape, n, c, y, z).map_or(0.0, |at| x[at])
        }
        Layer::BlurPool(of) => {
            let choose =
                |k: i64| (0..k).map(|i| (i64::from(of.kernel) - 1 - i) as f64 / (i + 1) as f64).product::<f64>();
            let mut total = 0.0;
            for i in 0..i64::from(of.kernel) {
                for j in 0..i64::from(of.kernel) {
                    let y = h * i64::from(of.stride.0) + i - i64::from(of.padding.0);
                    let z = w * i64::from(of.stride.1) + j - i64::from(of.padding.1);
                    total += choose(i) * choose(j) * place(shape, n, c, y, z).map_or(0.0, |at| x[at]);
                }
            }
            total / 4f64.powi(of.kernel as i32 - 1)
        }
        _ => panic!("resamples nothing"),
    }
}

fn pool_at(pool: &Pool2d, shape: Shape, x: &[f64], n: usize, c: usize, h: i64, w: i64) -> f64 {
    // Places of the padding count as zeros, those beyond it not at all.
    let counts = |at: i64, size: u32, padding: u32| at < i64::from(size) + i64::from(padding);
    let (rows, columns) = shape.image().sides();
    let (mut values, mut padded) = (Vec::new(), 0);
    for i in 0..i64::from(pool.kernel.0) {
        for j in 0..i64::from(pool.kernel.1) {
            let y = h * i64::from(pool.stride.0) + i - i64::from(pool.padding.0);
            let z = w * i64::from(pool.stride.1) + j - i64::from(pool.padding.1);
            values.extend(place(shape, n, c, y, z).map(|at| x[at]));
            padded += usize::from(counts(y, rows, pool.padding.0) && counts(z, columns, pool.padding.1));
        }
    }
    match pool.kind {
        PoolKind::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        PoolKind::Average if pool.count_padding => values.iter().sum::<f64>() / padded as f64,
        PoolKind::Average => values.iter().sum::<f64>() / values.len() as f64,
    }
}
