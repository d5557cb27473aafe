//! Images per second of LeNet's forward, backward and update on the CPU kernels alone, and each kernel's share.
//!
//! `cargo run --release -p lockstep-exec --example kernel_bench -- BATCH THREADS SECONDS [quiet]` prints a line per kernel and
//! pass (`quiet` leaves them out) and the rate of whole steps, over random images: the kernels' cost does not depend on them.

use std::time::Instant;

use lockstep_exec::device::cpu::{ChainLayer, CrossEntropy, Kernel, Mode, Threads, sgd_step};
use lockstep_models::{Conv2d, Dense, Layer, Pool2d, PoolKind, SgdStep, Shape};

/// A chain with its tensors.
struct Stage {
    name: &'static str,
    kernel: Kernel,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    velocity: Vec<f32>,
    output: Vec<f32>,
    d_output: Vec<f32>,
    /// Seconds in forward, backward and update.
    seconds: [f64; 3],
}

fn conv(out_channels: u32) -> Layer {
    let (one, zero) = ((1, 1), (0, 0));
    Layer::Conv2d(Conv2d {
        out_channels,
        kernel: (5, 5),
        stride: one,
        padding: zero,
        dilation: one,
        groups: 1,
        bias: true,
    })
}

fn dense(out_features: u32) -> Layer {
    Layer::Dense(Dense { out_features, bias: true })
}

/// Numbers in −1..1 from a linear congruence.
fn noise(len: usize, scale: f32) -> Vec<f32> {
    let mut state = len as u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next() * scale).collect()
}

fn stages(batch: usize, threads: &Threads) -> Vec<Stage> {
    let pool =
        Layer::Pool2d(Pool2d { kind: PoolKind::Max, kernel: (2, 2), stride: (2, 2), padding: (0, 0), ceil: false });
    let chains = [
        ("conv 5x5 32", vec![conv(32), Layer::Relu, pool.clone()], 25 * 32 + 32),
        ("conv 5x5 64", vec![conv(64), Layer::Relu, pool], 800 * 64 + 64),
        ("dense 1024", vec![dense(1024), Layer::Relu], 1024 * 1024 + 1024),
        ("dense 10", vec![dense(10)], 1024 * 10 + 10),
    ];
    let mut shape = Shape { channels: 1, height: 28, width: 28 };
    let mut stages = Vec::new();
    for (name, layers, parameters) in chains {
        let shapes: Vec<[Shape; 1]> = layers
            .iter()
            .map(|layer| {
                let input = [shape];
                shape = layer.output_shape(&input).expect("LeNet's shapes fit");
                input
            })
            .collect();
        let chain: Vec<ChainLayer<'_>> =
            layers.iter().zip(&shapes).map(|(layer, inputs)| ChainLayer { layer, inputs }).collect();
        let outputs = batch * (shape.channels * shape.height * shape.width) as usize;
        stages.push(Stage {
            name,
            kernel: Kernel::new(&chain, batch, threads),
            parameters: noise(parameters, 0.05),
            gradient: vec![0.0; parameters],
            velocity: vec![0.0; parameters],
            output: vec![0.0; outputs],
            d_output: vec![0.0; outputs],
            seconds: [0.0; 3],
        });
    }
    stages
}

fn step(stages: &mut [Stage], images: &[f32], labels: &[u32], loss: &mut CrossEntropy, sgd: SgdStep) -> f64 {
    for index in 0..stages.len() {
        let (before, rest) = stages.split_at_mut(index);
        let (stage, input) = (&mut rest[0], before.last().map_or(images, |stage| &stage.output));
        let start = Instant::now();
        stage.kernel.forward(Mode::Train, &[input], &stage.parameters, &mut [], &mut stage.output);
        stage.seconds[0] += start.elapsed().as_secs_f64();
    }
    let last = stages.last_mut().expect("LeNet has layers");
    let result = loss.forward(&last.output, labels);
    loss.backward(1.0 / labels.len() as f32, &mut last.d_output, false);
    for index in (0..stages.len()).rev() {
        let (before, rest) = stages.split_at_mut(index);
        let stage = &mut rest[0];
        let start = Instant::now();
        let (input, d_input) = match before.last_mut() {
            Some(before) => (before.output.as_slice(), Some(before.d_output.as_mut_slice())),
            None => (images, None),
        };
        let Stage { kernel, output, d_output, parameters, gradient, velocity, .. } = stage;
        kernel.backward(&[input], output, parameters, d_output, &mut [d_input], &[false], gradient, false);
        let middle = Instant::now();
        sgd_step(&sgd, parameters, velocity, gradient);
        stage.seconds[1] += (middle - start).as_secs_f64();
        stage.seconds[2] += middle.elapsed().as_secs_f64();
    }
    result.sum
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: f64| match arguments.get(index).map(|text| text.parse()) {
        None => default,
        Some(Ok(number)) => number,
        Some(Err(_)) => panic!("argument {} must be a number", index + 1),
    };
    let (batch, count, seconds) = (number(0, 64.0) as usize, number(1, 1.0) as usize, number(2, 2.0));
    let threads = Threads::new(count).expect("that many threads");
    let mut stages = stages(batch, &threads);
    let images = noise(batch * 28 * 28, 1.0);
    let labels: Vec<u32> = (0..batch as u32).map(|sample| sample % 10).collect();
    let mut loss = CrossEntropy::new(&Layer::SoftmaxCrossEntropy, 10, batch);
    let sgd = SgdStep::plain(0.01, 0.9);
    for _ in 0..5 {
        step(&mut stages, &images, &labels, &mut loss, sgd);
    }
    stages.iter_mut().for_each(|stage| stage.seconds = [0.0; 3]);
    let (start, mut steps) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < seconds {
        step(&mut stages, &images, &labels, &mut loss, sgd);
        steps += 1;
    }
    let elapsed = start.elapsed().as_secs_f64();
    if arguments.get(3).is_none() {
        println!("µs per image: forward, backward, update");
        for stage in &stages {
            let [forward, backward, update] = stage.seconds.map(|s| s * 1e6 / (steps * batch) as f64);
            println!("{:<12} {forward:8.1} {backward:8.1} {update:8.1}", stage.name);
        }
    }
    println!("batch {batch}, {count} thread(s): {:.0} images/s", (steps * batch) as f64 / elapsed);
}
