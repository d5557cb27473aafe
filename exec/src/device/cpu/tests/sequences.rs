//! Generates random layers of sequences; an embedding, attention over several blocks of queries, rows of several tiles.

use lockstep_models::{Attention, Embedding, Linear, RmsNorm, Rotary, RotaryPairing, RotaryScaling};
use lockstep_topology::Dtype;

use super::*;
use crate::bf16::{Bf16, narrow, widen};

pub(super) fn sequence(positions: u32, features: u32) -> Shape {
    Shape::new(&[(Dimension::Position, positions), (Dimension::Feature, features)])
}

pub(super) fn any_sequence() -> impl Strategy<Value = Case> {
    let sizes = (1..9u32, 1..12u32, 1..4usize, 1..9u32);
    (sizes, 0..13, any::<bool>()).prop_map(|((positions, features, samples, more), which, flag)| {
        let shape = sequence(positions, features);
        let (layer, inputs) = match which {
            0 | 1 => (Layer::Linear(Linear { out_features: more, bias: flag, tie: None }), vec![shape]),
            2 => (Layer::PositionEmbedding, vec![shape]),
            // Of few features the gradient is rounding error.
            3 => (Layer::LayerNorm(LayerNorm { epsilon: 1e-3 }), vec![sequence(positions, features + 4)]),
            4 => (if flag { Layer::Gelu } else { Layer::Bias }, vec![shape]),
            5 => {
                let (heads, unit_offset) = (1 + more % 3, flag);
                let layer = Layer::RmsNorm(RmsNorm { epsilon: 1e-3, unit_offset, heads });
                (layer, vec![sequence(positions, heads * (features + 2))])
            }
            6 | 7 => (rotary(more, flag), vec![sequence(positions, (1 + more % 3) * 4 * features.min(3))]),
            8 => (Layer::Product, vec![shape; 2]),
            9 => (Layer::Dropout(DropoutLayer { rate: more as f32 / 20.0 }), vec![shape]),
            // Of one position the gradients of queries and keys are rounding error.
            _ => {
                let positions = positions + 1;
                let (groups, each, width) = (1 + more % 3, 1 + features % 3, 1 + features);
                let layer = attention(groups * each, groups, flag, if which % 2 == 0 { more } else { 0 });
                let keys = sequence(positions, groups * width);
                (layer, vec![sequence(positions, groups * each * width), keys, keys])
            }
        };
        Case { layer, inputs, samples }
    })
}

/// Three heads at most, of four features and more, of which all or half are turned.
fn rotary(which: u32, halves: bool) -> Layer {
    let original_max_position_embeddings = 64;
    let scaling = match which % 4 {
        0 => RotaryScaling::None,
        1 => RotaryScaling::Linear { factor: 3.0 },
        2 => {
            let (low_freq_factor, high_freq_factor) = (1.0, 4.0);
            RotaryScaling::Llama3 { factor: 8.0, low_freq_factor, high_freq_factor, original_max_position_embeddings }
        }
        _ => {
            let (beta_fast, beta_slow) = (32.0, 1.0);
            RotaryScaling::Yarn { factor: 4.0, beta_fast, beta_slow, original_max_position_embeddings }
        }
    };
    let pairing = if halves { RotaryPairing::Halves } else { RotaryPairing::Neighbours };
    let fraction = if which.is_multiple_of(2) { 1.0 } else { 0.5 };
    Layer::Rotary(Rotary { heads: 1 + which % 3, theta: 100.0, fraction, pairing, scaling })
}

/// Attention with those of its options whose bit is set; two positions at least are seen.
fn attention(heads: u32, key_heads: u32, causal: bool, options: u32) -> Layer {
    let has = |bit: u32| options & bit != 0;
    Layer::Attention(Attention {
        window: (has(1) && causal).then_some(2 + options),
        soft_cap: has(2).then_some(0.75),
        scale: has(4).then_some(0.5),
        ..Attention::new(heads, key_heads, causal)
    })
}

/// 150 positions are three blocks, the last one shorter; a window of 70 skips the first keys of the last block.
#[test]
fn attention_of_several_blocks_is_right() {
    for (causal, options) in [(true, 0), (false, 0), (true, 69), (true, 6)] {
        let layer = attention(2, 1, causal, options);
        let (queries, keys) = (sequence(150, 6), sequence(150, 3));
        let case = Case { layer, inputs: vec![queries, keys, keys], samples: 2 };
        case.is_repeatable(5);
        let (data, pass) = (case.data(5), case.pass(&case.data(5), 2));
        let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        let inputs: Vec<Vec<f64>> = data.inputs.iter().map(|input| wide(input)).collect();
        let expected = |inputs: &[Vec<f64>]| reference::forward(&case.layer, &case.inputs, case.samples, inputs, &[]);
        near(&floats(&pass.output), &expected(&inputs), &format!("causal {causal} forward"));
        // Along a direction in all inputs at once, the loss ⟨d, y⟩ changes as the gradients say.
        let direction: Vec<Vec<f64>> =
            inputs.iter().map(|x| (0..x.len()).map(|at| (at % 5) as f64 - 2.0).collect()).collect();
        let moved = |by: f64| {
            let at = |(x, v): (&Vec<f64>, &Vec<f64>)| x.iter().zip(v).map(|(x, v)| x + by * v).collect::<Vec<f64>>();
            let output = expected(&inputs.iter().zip(&direction).map(at).collect::<Vec<_>>());
            output.iter().zip(wide(&data.d_output)).map(|(y, d)| y * d).sum::<f64>()
        };
        let step = 1e-5;
        let slope = (moved(step) - moved(-step)) / (2.0 * step);
        let along = |(d, v): (&Vec<u32>, &Vec<f64>)| floats(d).iter().zip(v).map(|(d, v)| d * v).sum::<f64>();
        let found: f64 = pass.d_inputs.iter().zip(&direction).map(along).sum();
        assert!((found - slope).abs() < 1e-3 * slope.abs().max(1.0), "causal {causal}: {found} and {slope}");
    }
}

/// Documents of one sequence give the outputs and gradients that they give in sequences of their own, to rounding; their numbers
/// come from tokens, of which the separator belongs to the document that it ends.
/// Numbers of two bytes hold the numbers of however many documents: none is that of its neighbour.
#[test]
fn numbers_of_documents_are_exact_in_bf16() {
    let layer = Layer::Documents(lockstep_models::Documents { separator: 9 });
    let shape = [Shape::new(&[(Dimension::Position, 600)])];
    let mut kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &shape }], 1, &Threads::one());
    kernel.take_integers(&[9; 600], Dtype::U8);
    let mut numbers = vec![f32::NAN; 600];
    kernel.forward(Mode::Train, &[&[]], &[], &mut [], &mut numbers);
    let mut stored = vec![Bf16::default(); 600];
    narrow(&numbers, &mut stored);
    let mut read = vec![f32::NAN; 600];
    widen(&stored, &mut read);
    assert_eq!(read, numbers);
    assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn documents_do_not_see_each_other() {
    let borders = [0..70, 70..71, 71..150];
    let mut tokens = vec![5u8; 150];
    (tokens[69], tokens[70]) = (9, 9);
    let layer = Layer::Documents(lockstep_models::Documents { separator: 9 });
    let shape = [Shape::new(&[(Dimension::Position, 150)])];
    let mut kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &shape }], 1, &Threads::one());
    kernel.take_integers(&tokens, Dtype::U8);
    let mut numbers = vec![f32::NAN; 150];
    kernel.forward(Mode::Train, &[&[]], &[], &mut [], &mut numbers);
    let of_border = |(number, border): (usize, &std::ops::Range<usize>)| vec![number as f32; border.len()];
    assert_eq!(numbers, borders.iter().enumerate().flat_map(of_border).collect::<Vec<f32>>());
    for (causal, options) in [(true, 0), (true, 31), (false, 0)] {
        let case = |positions: usize| {
            let queries = sequence(positions as u32, 6);
            let keys = sequence(positions as u32, 3);
            Case { layer: attention(2, 1, causal, options), inputs: vec![queries, keys, keys], samples: 1 }
        };
        let data = case(150).data(5);
        let mut together = case(150);
        together.inputs.push(sequence(150, 1));
        let mut kernel = together.kernel(&Threads::new(2).expect("threads"));
        let inputs = [&data.inputs[0][..], &data.inputs[1], &data.inputs[2], &numbers];
        let mut output = vec![f32::NAN; 150 * 6];
        kernel.forward(Mode::Train, &inputs, &[], &mut [], &mut output);
        let mut gradients: Vec<Vec<f32>> = data.inputs.iter().map(|input| vec![f32::NAN; input.len()]).collect();
        let wanted = gradients.iter_mut().map(|d| Some((d.as_mut_slice(), false)));
        let mut wanted: Vec<_> = wanted.chain([None]).collect();
        kernel.backward(&inputs, &output, &[], &data.d_output, &mut wanted, None);
        for border in &borders {
            let part = |values: &[f32], each: usize| values[border.start * each..border.end * each].to_vec();
            let own = Data {
                inputs: data.inputs.iter().zip([6, 3, 3]).map(|(input, each)| part(input, each)).collect(),
                parameters: Vec::new(),
                d_output: part(&data.d_output, 6),
            };
            let alone = case(border.len()).pass(&own, 1);
            let what = format!("causal {causal}, options {options}, {border:?}");
            near(&floats(&bits(&part(&output, 6))), &floats(&alone.output), &what);
            for ((d, each), own) in gradients.iter().zip([6, 3, 3]).zip(&alone.d_inputs) {
                near(&floats(&bits(&part(d, each))), &floats(own), &what);
            }
        }
    }
}

/// Three tokens of two bytes by hand; a token that occurs twice gets the sum of two gradients.
#[test]
fn an_embedding_by_hand() {
    let layer = Layer::Embedding(Embedding { entries: 300, out_features: 2 });
    let tokens = [Shape::new(&[(Dimension::Position, 3)])];
    let mut kernel = Kernel::new(&[ChainLayer { layer: &layer, inputs: &tokens }], 1, &Threads::one());
    let weights: Vec<f32> = (0..600).map(|at| at as f32).collect();
    kernel.take_integers(&[1, 0, 43, 1, 1, 0], Dtype::U16); // tokens 1, 299, 1
    let mut output = [0.0; 6];
    kernel.forward(Mode::Train, &[&[]], &weights, &mut [], &mut output);
    assert_eq!(output, [2.0, 3.0, 598.0, 599.0, 2.0, 3.0]);
    for (adds, start) in [(false, 0.0), (true, 0.5)] {
        let mut gradient = vec![0.5; 600];
        let d = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        kernel.backward(&[&[]], &output, &weights, &d, &mut [], Some((&mut gradient[..], adds)));
        let mut expected = vec![start; 600];
        expected[2..4].copy_from_slice(&[6.0 + start, 8.0 + start]);
        expected[598..].copy_from_slice(&[3.0 + start, 4.0 + start]);
        assert_eq!(gradient, expected);
    }
}

/// A rotation in place, and rows of several tiles.
#[test]
fn rows_of_several_tiles_are_right() {
    let norm = |heads| Layer::RmsNorm(RmsNorm { epsilon: 1e-5, unit_offset: false, heads });
    let layers = [rotary(2, true), norm(3), norm(1), Layer::LayerNorm(LayerNorm { epsilon: 1e-5 })];
    for layer in layers {
        let case = Case { layer, inputs: vec![sequence(200, 96)], samples: 4 };
        case.is_repeatable(5);
        let (data, pass) = (case.data(5), case.pass(&case.data(5), 2));
        let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        let (x, parameters) = (wide(&data.inputs[0]), wide(&data.parameters));
        let expected = reference::forward(&case.layer, &case.inputs, case.samples, &[x], &parameters);
        near(&floats(&pass.output), &expected, &format!("{case:?} forward"));
        if matches!(case.layer, Layer::Rotary(_)) {
            let mut kernel = case.kernel(&Threads::one());
            let mut output = data.inputs[0].clone();
            kernel.forward(Mode::Train, &[&[]], &[], &mut [], &mut output);
            assert_eq!(bits(&output), pass.output, "in place");
            // Turning back what was turned gives lengths of the start.
            let mut back = vec![0.0; output.len()];
            kernel.backward(&[], &[], &[], &output, &mut [Some((&mut back[..], false))], None);
            near(&floats(&bits(&back)), &wide(&data.inputs[0]), "back");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Rows of a linear layer, and gradients of its inputs, are the same bits however many rows there are: few are packed, of many
    /// the weights are. The library sums in another order where it makes at most 16 by 16 sums, or sums of two terms, so that each
    /// sample here has more.
    #[test]
    fn rows_of_linear_layers_do_not_depend_on_their_number(
        inputs in prop_oneof![Just(3u32), Just(700), 3..70u32], outputs in prop_oneof![Just(3u32), Just(300), 3..65u32],
        (samples, parts) in (2..5usize, 86..100u32), (bias, threads) in (any::<bool>(), 1..3usize),
    ) {
        let layer = Layer::Linear(Linear { out_features: outputs, bias, tie: None });
        let shapes = [sequence(parts, inputs)];
        let [input_size, output_size] = [inputs, outputs].map(|features| (parts * features) as usize);
        let number = |at: usize| ((at * 7919) % 2003) as f32 / 1001.0 - 1.0;
        let values = |count: usize| (0..count).map(number).collect::<Vec<f32>>();
        let (x, dy) = (values(samples * input_size), values(samples * output_size));
        let weights = values((inputs * outputs + if bias { outputs } else { 0 }) as usize);
        let run = |x: &[f32], dy: &[f32]| {
            let threads = Threads::new(threads).unwrap();
            let chain = [ChainLayer { layer: &layer, inputs: &shapes }];
            let mut kernel = Kernel::new(&chain, x.len() / input_size, &threads);
            let (mut y, mut dx) = (vec![f32::NAN; dy.len()], vec![f32::NAN; x.len()]);
            kernel.forward(Mode::Train, &[x], &weights, &mut [], &mut y);
            kernel.backward(&[x], &y, &weights, dy, &mut [Some((&mut dx, false))], None);
            [y, dx].map(|values| bits(&values))
        };
        let whole = run(&x, &dy);
        for (sample, (x, dy)) in x.chunks(input_size).zip(dy.chunks(output_size)).enumerate() {
            let [y, dx] = run(x, dy);
            prop_assert_eq!(&whole[0][sample * output_size..][..output_size], &y[..]);
            prop_assert_eq!(&whole[1][sample * input_size..][..input_size], &dx[..]);
        }
    }
}
