//! Times layers of sequences alone, forward and backward: milliseconds, medians of alternating passes.
//!
//! `cargo run --release -p lockstep-benches --bin sequence_bench -- THREADS SECONDS [LAYER…]` prints a line for each layer, of
//! four sequences of 512 positions with 768 features (12 heads of 64). `benches/pytorch_layers.py` holds them beside PyTorch.

use std::time::Instant;

use lockstep_exec::device::cpu::{ChainLayer, Kernel, LinearCrossEntropy, Mode, Threads, Workspace};
use lockstep_models::{
    Attention, Dimension, Layer, LayerNorm, Linear, LinearCrossEntropy as OutputLayer, RmsNorm, Rotary, RotaryPairing,
    RotaryScaling, Shape,
};

const SAMPLES: usize = 4;
const POSITIONS: usize = 512;
const FEATURES: usize = 768;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &str| arguments.get(index).cloned().unwrap_or(default.to_owned());
    let (threads, seconds) = (Threads::new(argument(0, "1").parse()?)?, argument(1, "2").parse::<f64>()?);
    let wanted = |name: &str| arguments.len() < 3 || arguments[2..].iter().any(|other| other == name);
    let (pairing, scaling) = (RotaryPairing::Halves, RotaryScaling::None);
    let layers = [
        ("attention", Layer::Attention(Attention::new(12, 12, true)), 3, FEATURES),
        ("attention-full", Layer::Attention(Attention::new(12, 12, false)), 3, FEATURES),
        (
            "attention-window",
            Layer::Attention(Attention { window: Some(128), ..Attention::new(12, 12, true) }),
            3,
            FEATURES,
        ),
        ("layer_norm", Layer::LayerNorm(LayerNorm { epsilon: 1e-5 }), 1, FEATURES),
        ("rms_norm", Layer::RmsNorm(RmsNorm { epsilon: 1e-5, unit_offset: false, heads: 1 }), 1, FEATURES),
        ("rotary", Layer::Rotary(Rotary { heads: 12, theta: 1e4, fraction: 1.0, pairing, scaling }), 1, FEATURES),
        ("gelu", Layer::Gelu, 1, 4 * FEATURES),
        ("silu", Layer::Silu, 1, 4 * FEATURES),
        ("linear", Layer::Linear(Linear { out_features: 4 * FEATURES as u32, bias: true, tie: None }), 1, FEATURES),
    ];
    for (name, layer, inputs, features) in layers.into_iter().filter(|(name, ..)| wanted(name)) {
        let [forward, backward] = of_layer(&layer, inputs, features, &threads, seconds)?;
        println!("{name} {forward:.3} {backward:.3}");
    }
    if wanted("linear_cross_entropy") {
        let [forward, backward] = of_output_layer(50257, &threads, seconds);
        println!("linear_cross_entropy {forward:.3} {backward:.3}");
    }
    Ok(())
}

/// Values between −1 and 1.
fn values(len: usize) -> Vec<f32> {
    (0..len).map(|at| (at * 7919 % 2003) as f32 / 1001.0 - 1.0).collect()
}

/// Medians in milliseconds of two passes that alternate for some seconds.
fn medians(seconds: f64, mut passes: impl FnMut(usize)) -> [f64; 2] {
    let (mut times, start) = ([Vec::new(), Vec::new()], Instant::now());
    while start.elapsed().as_secs_f64() < seconds || times[0].len() < 4 {
        for (pass, times) in times.iter_mut().enumerate() {
            let began = Instant::now();
            passes(pass);
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.map(|mut times| {
        times.remove(0); // memory is touched for the first time
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

fn of_layer(
    layer: &Layer,
    inputs: usize,
    features: usize,
    threads: &Threads,
    seconds: f64,
) -> Result<[f64; 2], Box<dyn std::error::Error>> {
    let shape = Shape::new(&[(Dimension::Position, POSITIONS as u32), (Dimension::Feature, features as u32)]);
    let shapes = vec![shape; inputs];
    let signature = layer.signature(&shapes)?;
    let parameters = values(signature.parameter_shapes().map(|shape| shape.elements() as usize).sum());
    let xs: Vec<Vec<f32>> = shapes.iter().map(|shape| values(SAMPLES * shape.elements() as usize)).collect();
    let xs: Vec<&[f32]> = xs.iter().map(Vec::as_slice).collect();
    let elements = SAMPLES * signature.output_shape().elements() as usize;
    let (mut y, dy) = (vec![0.0; elements], values(elements));
    let mut kernel = Kernel::new(&[ChainLayer { layer, inputs: &shapes }], SAMPLES, threads);
    let mut dxs: Vec<Vec<f32>> = xs.iter().map(|x| vec![0.0; x.len()]).collect();
    let mut dw = vec![0.0; parameters.len()];
    Ok(medians(seconds, |pass| match pass {
        0 => kernel.forward(Mode::Train, &xs, &parameters, &mut [], &mut y),
        _ => {
            let mut wanted: Vec<_> = dxs.iter_mut().map(|d| Some((d.as_mut_slice(), false))).collect();
            let d_parameters = (!dw.is_empty()).then_some((&mut dw[..], false));
            kernel.backward(&xs, &y, &parameters, &dy, &mut wanted, d_parameters);
        }
    }))
}

fn of_output_layer(classes: usize, threads: &Threads, seconds: f64) -> [f64; 2] {
    let layer = OutputLayer { out_features: classes as u32, bias: false, tie: None, soft_cap: None };
    let mut loss = LinearCrossEntropy::new(&layer, FEATURES, POSITIONS, threads);
    let rows = SAMPLES * POSITIONS;
    let (x, mut w) = (values(rows * FEATURES), values(classes * FEATURES));
    w.iter_mut().for_each(|w| *w *= 0.05);
    let labels: Vec<u32> = (0..rows).map(|row| (row * 31 % classes) as u32).collect();
    let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; w.len()]);
    let mut workspace = Workspace::default();
    medians(seconds, |pass| match pass {
        0 => loss.take_labels(&labels),
        _ => {
            loss.backward(0.25, (&x, &w), Some((&mut dx, false)), Some((&mut dw, false)), &mut workspace);
        }
    })
}
