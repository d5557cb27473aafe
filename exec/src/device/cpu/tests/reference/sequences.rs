//! Computes layers of sequences: what each position has of its features, and attention between positions.

use lockstep_models::{Attention, Layer, Rotary, RotaryPairing, Shape};

/// The output for one sample, from the sample's part of each input.
pub(super) fn of_sample(layer: &Layer, shape: Shape, inputs: &[&[f64]], parameters: &[f64]) -> Vec<f64> {
    let (features, x) = (shape.features() as usize, inputs[0]);
    match layer {
        Layer::Linear(linear) => {
            let outputs = linear.out_features as usize;
            let bias = |o: usize| if linear.bias { parameters[outputs * features + o] } else { 0.0 };
            let product = |x: &[f64], o: usize| {
                x.iter().zip(&parameters[o * features..]).map(|(x, w)| x * w).sum::<f64>() + bias(o)
            };
            x.chunks(features).flat_map(|x| (0..outputs).map(|o| product(x, o)).collect::<Vec<_>>()).collect()
        }
        Layer::PositionEmbedding => x.iter().zip(parameters).map(|(x, w)| x + w).collect(),
        Layer::LayerNorm(norm) => {
            let normal = |row: &[f64]| {
                let mean = row.iter().sum::<f64>() / features as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / features as f64;
                let deviation = (variance + f64::from(norm.epsilon)).sqrt();
                let one = |(at, x): (usize, &f64)| parameters[at] * (x - mean) / deviation + parameters[features + at];
                row.iter().enumerate().map(one).collect::<Vec<_>>()
            };
            x.chunks(features).flat_map(normal).collect()
        }
        Layer::Bias => x.iter().enumerate().map(|(at, x)| x + parameters[at % features]).collect(),
        Layer::RmsNorm(norm) => {
            let width = features / norm.heads as usize;
            let factor = |at: usize| parameters[at] + if norm.unit_offset { 1.0 } else { 0.0 };
            let normal = |row: &[f64]| {
                let square = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
                let root = (square + f64::from(norm.epsilon)).sqrt();
                row.iter().enumerate().map(|(at, x)| factor(at) * x / root).collect::<Vec<_>>()
            };
            x.chunks(width).flat_map(normal).collect()
        }
        Layer::Product => x.iter().zip(inputs[1]).map(|(a, b)| a * b).collect(),
        Layer::Rotary(of) => turned(of, features, x),
        Layer::Attention(of) => attended(of, shape, inputs),
        _ => panic!("of images"),
    }
}

/// Each query's mean of the values that it sees.
fn attended(of: &Attention, shape: Shape, inputs: &[&[f64]]) -> Vec<f64> {
    let (heads, positions) = (of.heads as usize, shape.places() as usize);
    let width = shape.features() as usize / heads;
    let [queries, keys, values] = [0, 1, 2].map(|input| inputs[input]);
    let row = |values: &[f64], heads: usize, at: usize, head: usize| {
        values[(at * heads + head) * width..(at * heads + head + 1) * width].to_vec()
    };
    let groups = of.key_heads as usize;
    let mut output = Vec::new();
    for (query, head) in (0..positions).flat_map(|query| (0..heads).map(move |head| (query, head))) {
        let group = head / (heads / groups);
        let first = of.window.map_or(0, |window| (query + 1).saturating_sub(window as usize));
        let seen = if of.causal { first..query + 1 } else { 0..positions };
        let q = row(queries, heads, query, head);
        let weight = |key: usize| {
            let product: f64 = q.iter().zip(row(keys, groups, key, group)).map(|(q, k)| q * k).sum();
            let score = of.scale.map_or(product / (width as f64).sqrt(), |scale| f64::from(scale) * product);
            of.soft_cap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh()).exp()
        };
        let sum: f64 = seen.clone().map(weight).sum();
        let value =
            |at: usize| seen.clone().map(|key| weight(key) / sum * row(values, groups, key, group)[at]).sum::<f64>();
        output.extend((0..width).map(value));
    }
    output
}

/// Each pair as a complex number times e^(i·angle).
fn turned(of: &Rotary, features: usize, x: &[f64]) -> Vec<f64> {
    let width = features / of.heads as usize;
    let (frequencies, mut output) = (of.frequencies(width as u32), x.to_vec());
    for (row, head) in output.chunks_mut(width).enumerate() {
        let position = (row / of.heads as usize) as f64;
        for (pair, frequency) in frequencies.iter().enumerate() {
            let (a, b) = match of.pairing {
                RotaryPairing::Halves => (pair, pair + frequencies.len()),
                RotaryPairing::Neighbours => (2 * pair, 2 * pair + 1),
            };
            let (radius, angle) = (head[a].hypot(head[b]), head[b].atan2(head[a]) + position * frequency);
            (head[a], head[b]) = (of.magnitude() * radius * angle.cos(), of.magnitude() * radius * angle.sin());
        }
    }
    output
}
