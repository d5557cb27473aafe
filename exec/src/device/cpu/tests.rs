//! Tests every layer against its f64 reference and its central differences. Results are the same bits for any number of
//! threads, fused or not, with passes together or apart.

use lockstep_models::{
    Affine, BatchNorm, BlurPool, Border, Conv2d, Dense, Dimension, Dropout as DropoutLayer, GroupNorm, Layer,
    LayerNorm, LeakyRelu, LocalResponseNorm, Pool2d, PoolKind, Reshape, Resize, ResponseNorm, Scale as ScaleLayer,
    Select, Shape, Softmax,
};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::convolution::Convolution;
use super::interleaved::tests::by_each_method;
use super::layout::for_each_group;
use super::*;
use random_cases::{any_case, any_conv};
use sequences::any_sequence;

mod chains;
mod dropping;
mod layouts;
mod losses;
mod parts_of_losses;
mod random_cases;
mod reference;
mod sequences;

/// A layer, its input shapes and a number of samples.
#[derive(Debug, Clone)]
struct Case {
    layer: Layer,
    inputs: Vec<Shape>,
    samples: usize,
}

fn shape(channels: u32, height: u32, width: u32) -> Shape {
    Shape::of_image(channels, height, width)
}

fn parameters_of(layer: &Layer, inputs: &[Shape]) -> usize {
    match layer {
        Layer::Conv2d(conv) => {
            let taps = conv.kernel.0 * conv.kernel.1 * inputs[0].features() / conv.groups;
            (conv.out_channels * (taps + u32::from(conv.bias))) as usize
        }
        Layer::Dense(dense) => dense.out_features as usize * (size(inputs[0]) + usize::from(dense.bias)),
        Layer::BatchNorm(_) | Layer::LayerNorm(_) | Layer::GroupNorm(_) | Layer::ResponseNorm(_) => {
            2 * inputs[0].features() as usize
        }
        Layer::Linear(linear) => {
            linear.out_features as usize * (inputs[0].features() as usize + usize::from(linear.bias))
        }
        Layer::RmsNorm(norm) => (inputs[0].features() / norm.heads) as usize,
        Layer::PositionEmbedding => size(inputs[0]),
        Layer::Embedding(table) => (table.entries * table.out_features) as usize,
        Layer::Bias => inputs[0].features() as usize,
        Layer::Scale(scale) => (1 + usize::from(scale.bias)) * inputs[0].features() as usize,
        _ => 0,
    }
}

/// Shuffled values, no two nearer than 2 / len and none nearer to 0 than 1 / len, so that no kink is near.
fn spread(len: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let mut values: Vec<f32> = (0..len).map(|i| (2 * i + 1) as f32 / len as f32 - 1.0 + 0.25 / len as f32).collect();
    for i in (1..len).rev() {
        values.swap(i, rng.random_range(0..=i));
    }
    values
}

/// All results of a pass.
#[derive(Debug, Clone, PartialEq)]
struct Pass {
    output: Vec<u32>,
    d_inputs: Vec<Vec<u32>>,
    d_parameters: Vec<u32>,
    statistics: Vec<u32>,
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn floats(bits: &[u32]) -> Vec<f64> {
    bits.iter().map(|bits| f64::from(f32::from_bits(*bits))).collect()
}

/// The tensors of a case.
struct Data {
    inputs: Vec<Vec<f32>>,
    parameters: Vec<f32>,
    d_output: Vec<f32>,
}

/// The input shapes of each layer of a chain and its output's, and tensors for it.
fn chain(layers: &[Layer], inputs: &[Shape], samples: usize) -> (Vec<Vec<Shape>>, Data) {
    let rng = &mut ChaCha8Rng::seed_from_u64(layers.len() as u64);
    let mut shapes = vec![inputs.to_vec()];
    for layer in layers {
        let output = layer.output_shape(&shapes[shapes.len() - 1]).expect("the chain's shapes fit");
        shapes.push(vec![output]);
    }
    let parameters: usize = layers.iter().zip(&shapes).map(|(layer, inputs)| parameters_of(layer, inputs)).sum();
    let data = Data {
        inputs: inputs.iter().map(|shape| spread(samples * size(*shape), rng)).collect(),
        parameters: spread(parameters, rng),
        d_output: spread(samples * size(shapes[layers.len()][0]), rng),
    };
    (shapes, data)
}

impl Case {
    fn data(&self, seed: u64) -> Data {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let output = self.layer.output_shape(&self.inputs).expect("the case's shapes fit");
        Data {
            inputs: self.inputs.iter().map(|shape| spread(self.samples * size(*shape), rng)).collect(),
            parameters: spread(parameters_of(&self.layer, &self.inputs), rng),
            d_output: spread(self.samples * size(output), rng),
        }
    }

    fn kernel(&self, threads: &Threads) -> Kernel {
        Kernel::new(&[ChainLayer { layer: &self.layer, inputs: &self.inputs }], self.samples, threads)
    }

    fn pass(&self, data: &Data, threads: usize) -> Pass {
        run(&mut self.kernel(&Threads::new(threads).expect("a few threads")), data)
    }

    /// Whether the kernel's output and gradients are near the reference's.
    fn agrees_with_reference(&self, seed: u64) {
        let data = self.data(seed);
        let pass = self.pass(&data, 1);
        let wide = |values: &Vec<f32>| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        let mut inputs: Vec<Vec<f64>> = data.inputs.iter().map(wide).collect();
        let mut parameters = wide(&data.parameters);
        let expected = |inputs: &[Vec<f64>], parameters: &[f64]| {
            reference::forward(&self.layer, &self.inputs, self.samples, inputs, parameters)
        };
        near(&floats(&pass.output), &expected(&inputs, &parameters), &format!("{self:?} forward"));
        let step = 1e-5;
        let loss = |inputs: &[Vec<f64>], parameters: &[f64]| -> f64 {
            expected(inputs, parameters).iter().zip(&data.d_output).map(|(y, d)| y * f64::from(*d)).sum()
        };
        for which in 0..inputs.len() {
            let mut gradients = Vec::new();
            for at in 0..inputs[which].len() {
                let value = inputs[which][at];
                inputs[which][at] = value + step;
                let above = loss(&inputs, &parameters);
                inputs[which][at] = value - step;
                gradients.push((above - loss(&inputs, &parameters)) / (2.0 * step));
                inputs[which][at] = value;
            }
            near(&floats(&pass.d_inputs[which]), &gradients, &format!("{self:?} towards input {which}"));
        }
        let mut gradients = Vec::new();
        for at in 0..parameters.len() {
            let value = parameters[at];
            parameters[at] = value + step;
            let above = loss(&inputs, &parameters);
            parameters[at] = value - step;
            gradients.push((above - loss(&inputs, &parameters)) / (2.0 * step));
            parameters[at] = value;
        }
        near(&floats(&pass.d_parameters), &gradients, &format!("{self:?} towards parameters"));
    }

    /// Results are the same bits for any number of threads, for separate passes, and for accumulation as a separate
    /// sum.
    fn is_repeatable(&self, seed: u64) {
        let data = self.data(seed);
        let pass = self.pass(&data, 1);
        for threads in 2..4 {
            assert!(self.pass(&data, threads) == pass, "{self:?} with {threads} threads");
        }
        let mut kernel = self.kernel(&Threads::one());
        run(&mut kernel, &data);
        let inputs: Vec<&[f32]> = data.inputs.iter().map(Vec::as_slice).collect();
        let output: Vec<f32> = pass.output.iter().map(|bits| f32::from_bits(*bits)).collect();
        let start = |bits: &Vec<u32>| (0..bits.len()).map(|i| (i % 7) as f32 * 0.37).collect::<Vec<f32>>();
        let mut d_inputs: Vec<Vec<f32>> = pass.d_inputs.iter().map(start).collect();
        let mut wanted: Vec<_> = d_inputs.iter_mut().map(|d| Some((d.as_mut_slice(), true))).collect();
        let (w, dy) = (&data.parameters, &data.d_output);
        kernel.backward(&inputs, &output, w, dy, &mut wanted, None);
        let mut d_parameters = start(&pass.d_parameters);
        kernel.backward(&inputs, &output, w, dy, &mut [], Some((&mut d_parameters[..], true)));
        let added = |gradient: &Vec<u32>| {
            let sum = |(start, bits): (&f32, &u32)| (*start + f32::from_bits(*bits)).to_bits();
            start(gradient).iter().zip(gradient).map(sum).collect::<Vec<u32>>()
        };
        assert_eq!(bits(&d_parameters), added(&pass.d_parameters), "{self:?} accumulates parameters");
        for (got, gradient) in d_inputs.iter().zip(&pass.d_inputs) {
            assert_eq!(bits(got), added(gradient), "{self:?} accumulates inputs");
        }
    }
}

/// Forward, backward, and both backward passes separately, which must agree.
fn run(kernel: &mut Kernel, data: &Data) -> Pass {
    let inputs: Vec<&[f32]> = data.inputs.iter().map(Vec::as_slice).collect();
    let mut statistics = vec![0.5; data.parameters.len()];
    let mut output = vec![f32::NAN; data.d_output.len()];
    // A kernel must not depend on what others have left in the workspace.
    let mut dirty = Workspace::default();
    dirty.parts([1 << 18]);
    dirty.fill(f32::NAN);
    kernel.swap_workspace(&mut dirty);
    kernel.forward(Mode::Train, &inputs, &data.parameters, &mut statistics, &mut output);
    let mut passes: Vec<(Vec<Vec<f32>>, Vec<f32>)> = Vec::new();
    for together in [true, false] {
        let mut d_inputs: Vec<Vec<f32>> = data.inputs.iter().map(|input| vec![f32::NAN; input.len()]).collect();
        let mut wanted: Vec<_> = d_inputs.iter_mut().map(|d| Some((d.as_mut_slice(), false))).collect();
        let mut gradient = vec![f32::NAN; data.parameters.len()];
        let (w, dy) = (&data.parameters, &data.d_output);
        kernel.workspace.fill(f32::NAN);
        if together {
            kernel.backward(&inputs, &output, w, dy, &mut wanted, Some((&mut gradient[..], false)));
        } else {
            kernel.backward(&inputs, &output, w, dy, &mut wanted, None);
            kernel.backward(&inputs, &output, w, dy, &mut [], Some((&mut gradient[..], false)));
        }
        passes.push((d_inputs, gradient));
    }
    let of = |(d_inputs, gradient): &(Vec<Vec<f32>>, Vec<f32>)| Pass {
        output: bits(&output),
        d_inputs: d_inputs.iter().map(|d| bits(d)).collect(),
        d_parameters: bits(gradient),
        statistics: bits(&statistics),
    };
    assert!(of(&passes[0]) == of(&passes[1]), "the backward passes differ apart");
    of(&passes[0])
}

/// |got − expected| ≤ 1e-5 · |expected| as vectors.
fn near(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let error = norm(&mut got.iter().zip(expected).map(|(g, e)| g - e));
    let scale = norm(&mut expected.iter().copied()).max(1e-2);
    assert!(error <= 1e-5 * scale, "{what}: {error:e} of {scale:e}\n{got:?}\n{expected:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn layers_agree_with_their_references(case in any_case(), seed in any::<u64>()) {
        case.agrees_with_reference(seed);
    }

    #[test]
    fn layers_of_sequences_agree_with_their_references(case in any_sequence(), seed in any::<u64>()) {
        case.agrees_with_reference(seed);
        case.is_repeatable(seed);
    }

    #[test]
    fn images_side_by_side_agree_with_unfolded_ones(case in any_conv(), samples in 6..36usize, seed in any::<u64>()) {
        let case = Case { samples, ..case };
        let (Layer::Conv2d(layer), Ok(output)) = (&case.layer, case.layer.output_shape(&case.inputs)) else { return Ok(()) };
        let input = case.inputs[0];
        if layer.groups > 1 {
            return Ok(());
        }
        let data = case.data(seed);
        let by_image = Convolution::new(layer, input, output, Tail::default(), samples, &Threads::one());
        let by_image = run(&mut boxed(by_image).into(), &data);
        for_each_group!({
            let heads = |threads: usize| {
                by_each_method::<N>(layer, input, output, &Threads::new(threads).expect("a few threads"))
            };
            for ((name, head), (_, threaded)) in heads(1).into_iter().zip(heads(3)) {
                let pass = run(&mut head.into(), &data);
                let what = format!("{case:?}, {name}, groups of {N}");
                assert!(run(&mut threaded.into(), &data) == pass, "{what}: three threads give other bits");
                near(&floats(&pass.output), &floats(&by_image.output), &format!("{what} forward"));
                near(&floats(&pass.d_inputs[0]), &floats(&by_image.d_inputs[0]), &format!("{what} towards the input"));
                near(&floats(&pass.d_parameters), &floats(&by_image.d_parameters), &format!("{what} towards parameters"));
            }
        });
    }

    #[test]
    fn layers_are_repeatable(case in any_case(), seed in any::<u64>()) {
        case.is_repeatable(seed);
    }
}

fn conv(out_channels: u32, filter: u32, stride: u32, padding: u32, groups: u32) -> Layer {
    let (kernel, stride, padding) = ((filter, filter), (stride, stride), (padding, padding));
    Layer::Conv2d(Conv2d { out_channels, kernel, stride, padding, dilation: (1, 1), groups, bias: true })
}

/// Krizhevsky, Sutskever, Hinton 2012, §3.3.
fn alexnet_norm() -> Layer {
    Layer::LocalResponseNorm(LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, k: 2.0 })
}

fn max_pool(filter: u32, stride: u32, padding: u32) -> Layer {
    let (kernel, stride, padding) = ((filter, filter), (stride, stride), (padding, padding));
    Layer::Pool2d(Pool2d { kind: PoolKind::Max, kernel, stride, padding, ceil: false, count_padding: false })
}

/// Layers large enough for several tiles, groups, segments and blocks of rows.
#[test]
fn large_layers_are_right_and_repeatable() {
    let norm = Layer::BatchNorm(BatchNorm { epsilon: 1e-5, momentum: 0.9 });
    let cases = [
        (conv(4, 3, 1, 1, 1), shape(8, 48, 48), 2),
        (conv(6, 1, 1, 0, 2), shape(4, 260, 260), 1),
        (conv(8, 5, 2, 2, 1), shape(3, 24, 24), 37),
        (Layer::Dense(Dense { out_features: 530, bias: true }), shape(600, 1, 1), 9),
        (norm, shape(5, 40, 33), 8),
        (Layer::Relu, shape(3, 100, 100), 2),
        (Layer::Sigmoid, shape(3, 100, 100), 2),
        (Layer::Dropout(DropoutLayer { rate: 0.5 }), shape(3, 100, 100), 4),
        (Layer::Scale(ScaleLayer { bias: true }), shape(5, 40, 33), 8),
        (alexnet_norm(), shape(96, 13, 13), 5),
        (max_pool(3, 2, 1), shape(4, 100, 100), 3),
        (Layer::GlobalPool, shape(40, 20, 20), 3),
    ];
    for (layer, input, samples) in cases {
        let case = Case { layer, inputs: vec![input], samples };
        case.is_repeatable(7);
        let (data, pass) = (case.data(7), case.pass(&case.data(7), 2));
        let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        let (x, mut parameters, d) = (wide(&data.inputs[0]), wide(&data.parameters), wide(&data.d_output));
        let expected = |p: &[f64]| reference::forward(&case.layer, &case.inputs, samples, std::slice::from_ref(&x), p);
        near(&floats(&pass.output), &expected(&parameters), &format!("{case:?} forward"));
        // A convolution and a dense layer are linear in x and, with the bias, in w: ⟨d, y⟩ = ⟨dw, w⟩, and ⟨d, y − b⟩ = ⟨dx, x⟩.
        if matches!(case.layer, Layer::Conv2d(_) | Layer::Dense(_)) {
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let size = dot(&d, &d).sqrt() * dot(&expected(&parameters), &expected(&parameters)).sqrt();
            let along_w = dot(&floats(&pass.d_parameters), &parameters) - dot(&d, &expected(&parameters));
            assert!(along_w.abs() < 1e-5 * size, "{case:?}: {along_w:e} of {size:e} along the parameters");
            let out = case.layer.output_shape(&case.inputs).expect("shapes fit").features() as usize;
            let biases = parameters.len() - out;
            parameters[biases..].fill(0.0);
            let along_x = dot(&floats(&pass.d_inputs[0]), &x) - dot(&d, &expected(&parameters));
            assert!(along_x.abs() < 1e-5 * size, "{case:?}: {along_x:e} of {size:e} along the input");
        }
    }
}

/// Batch normalisation by hand: 1, 3 has mean 2, biased variance 1, unbiased 2; with momentum ¾ the running values move by ¼.
#[test]
fn running_statistics_by_hand() {
    let norm = Layer::BatchNorm(BatchNorm { epsilon: 1e-30, momentum: 0.75 });
    let case = Case { layer: norm, inputs: vec![shape(1, 1, 1)], samples: 2 };
    let mut kernel = case.kernel(&Threads::one());
    let (mut statistics, mut output) = ([0.0, 1.0], [0.0; 2]);
    kernel.forward(Mode::Train, &[&[1.0, 3.0]], &[2.0, 0.5], &mut statistics, &mut output);
    assert_eq!((output, statistics), ([-1.5, 2.5], [0.5, 1.25]));
    // Means of (1, 3) and (5, 9): 2 and 7, unbiased variances 2 and 8, whatever the earlier values.
    statistics = [99.0, 99.0];
    kernel.forward(Mode::Statistics { batch: 0 }, &[&[1.0, 3.0]], &[2.0, 0.5], &mut statistics, &mut output);
    kernel.forward(Mode::Statistics { batch: 1 }, &[&[5.0, 9.0]], &[2.0, 0.5], &mut statistics, &mut output);
    assert_eq!((output, statistics), ([-1.5, 2.5], [4.5, 5.0]));
    statistics = [1.0, 4.0];
    kernel.forward(Mode::Evaluate, &[&[1.0, 3.0]], &[2.0, 0.5], &mut statistics, &mut output);
    assert_eq!((output, statistics), ([0.5, 2.5], [1.0, 4.0]));
}

/// A batch smaller than the kernel was made for gives the same outputs for its samples.
#[test]
fn shorter_batches() {
    let case = Case { layer: conv(4, 3, 1, 1, 1), inputs: vec![shape(3, 6, 6)], samples: 9 };
    let (data, pass) = (case.data(3), case.pass(&case.data(3), 1));
    let mut kernel = case.kernel(&Threads::one());
    let mut output = vec![0.0; 2 * 4 * 36];
    kernel.forward(Mode::Evaluate, &[&data.inputs[0][..2 * 3 * 36]], &data.parameters, &mut [], &mut output);
    near(&floats(&bits(&output)), &floats(&pass.output[..output.len()]), "the first two of nine samples");
}
