//! Compares every kind of layer on a GPU with the CPU: a step of a net that has little else, at random inputs.

use std::sync::Arc;

use lockstep_cuda::Gpus;
use lockstep_data::Dataset;
use lockstep_exec::Arenas;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::device::{Cpus, Devices};
use lockstep_exec::replica::Replica;
use lockstep_models::{Job, Precision, Program};
use proptest::prelude::*;

use crate::programs::property;
use crate::scene;

/// Layers between a convolution, through which the gradient passes, and a dense layer, which reads the output. `left`
/// and `right` are two convolutions of the same shape.
const LAYERS: [&str; 19] = [
    r#"{ kind = "relu", inputs = "left" }"#,
    r#"{ kind = "sigmoid", inputs = "left" }"#,
    r#"{ kind = "tanh", inputs = "left" }"#,
    r#"{ kind = "batch_norm", inputs = "left" }"#,
    r#"{ kind = "batch_norm", inputs = "left" }, { kind = "relu" }"#,
    r#"{ kind = "scale", scale_init = 0.7, bias_init = 0.1, inputs = "left" }"#,
    r#"{ kind = "local_response_norm", alpha = 0.3, inputs = "left" }"#,
    r#"{ kind = "dropout", rate = 0.4, inputs = "left" }"#,
    r#"{ kind = "max_pool", kernel = 3, stride = 2, padding = 1, inputs = "left" }"#,
    r#"{ kind = "relu", inputs = "left" }, { kind = "max_pool", kernel = 2, ceil = true }"#,
    r#"{ kind = "average_pool", kernel = [2, 3], stride = [2, 1], inputs = "left" }"#,
    r#"{ kind = "global_pool", inputs = "left" }"#,
    r#"{ kind = "flatten", inputs = "left" }"#,
    r#"{ kind = "add", inputs = ["left", "right"] }, { kind = "relu" }"#,
    r#"{ name = "norm", kind = "batch_norm", inputs = "left" }, { kind = "add", inputs = ["norm", "right"] }, { kind = "relu" }"#,
    r#"{ kind = "concat", inputs = ["right", "input", "left"] }"#,
    r#"{ kind = "conv2d", out_channels = 6, kernel = 3, groups = 2, dilation = 2, padding = 2, inputs = "left" }, { kind = "relu" }"#,
    r#"{ kind = "conv2d", out_channels = 5, kernel = [3, 2], stride = 2, bias = false, inputs = "left" }"#,
    r#"{ kind = "dense", out_features = 11, inputs = "left" }, { kind = "relu" }"#,
];

/// Losses, gradients and running statistics of a step.
struct Found {
    losses: Vec<f64>,
    gradients: Vec<f32>,
    statistics: Vec<f32>,
}

/// A net's text: the input's channels and sides, twice `half` channels before the layer, and the kind of loss.
fn net(layer: &str, (channels, height, width): (u32, u32, u32), half: u32, logistic: bool) -> String {
    let loss = if logistic { "logistic" } else { "softmax" };
    let before = |name: &str| {
        format!(
            r#"{{ name = "{name}", kind = "conv2d", out_channels = {}, kernel = 3, padding = 1, inputs = "input" }}"#,
            2 * half
        )
    };
    // A model may have no unused outputs: both are used.
    let both = r#"{ name = "both", kind = "add", inputs = ["left", "right"] }"#;
    format!(
        "name = \"net\"\ninput = [{channels}, {height}, {width}]\nlayer = [\n{},\n{},\n{layer},\n{{ name = \"of_layer\", kind = \"dense\", \
         out_features = 7 }},\n{both},\n{{ name = \"of_both\", kind = \"dense\", out_features = 7 }},\n{{ kind = \"add\", inputs = \
         [\"of_layer\", \"of_both\"] }},\n{{ kind = \"{loss}_cross_entropy\" }},\n]\n",
        before("left"),
        before("right"),
    )
}

fn step(program: &Program, data: &Dataset, seed: u64, devices: &dyn Devices) -> Found {
    let arenas = Arenas { poison: true, ..Arenas::default() };
    let role = &program.roles[0];
    let mut replica = Replica::on(devices, program, role, &arenas, seed, &Threads::one()).expect("a replica");
    let indices: Vec<u32> = (0..program.batch_per_rank).collect();
    for op in role.tasks.iter().map(|task| &task.op).filter(|op| op.update().is_none()) {
        replica.alone(op, data, &indices).expect("a task");
    }
    Found {
        losses: replica.losses(program.chains.len() - 1).expect("losses"),
        gradients: replica.gradients().expect("gradients"),
        statistics: replica.statistics().expect("statistics"),
    }
}

/// |one − other| / |other|, as vectors.
fn distance(one: impl Iterator<Item = f64>, other: impl Iterator<Item = f64> + Clone) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let scale = norm(&mut other.clone());
    let error = norm(&mut one.zip(other).map(|(one, other)| one - other));
    // There may be no statistics.
    if error == 0.0 { 0.0 } else { error / scale }
}

fn wide(values: &[f32]) -> impl Iterator<Item = f64> + Clone + '_ {
    values.iter().map(|value| f64::from(*value))
}

/// Each kind of layer at random sizes: within `bound` of the norm in the best of three draws, since a gradient jumps
/// where rounding flips a ReLU or a maximum.
fn layers_agree(devices: &dyn Devices, bound: f64, cases: u32) {
    let sizes = ((1u32..=4, 5u32..=9, 5u32..=9), 1u32..=5, 2u32..=6, any::<bool>(), any::<u64>());
    property((0..LAYERS.len(), sizes), cases, |(layer, (input, half, batch, logistic, seed))| {
        let text = net(LAYERS[layer], input, half, logistic);
        let model = Arc::new(
            lockstep_readers::parse_model("net.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}")),
        );
        let program = Job::new(model, 1, batch).program().expect("a program");
        let (data, _) = Dataset::load(&format!("synthetic:{}", batch.max(4)), &program.model).expect("samples");
        let far = |seed: u64| {
            let [gpu, cpu] = [devices, &Cpus].map(|devices| step(&program, &data, seed, devices));
            let losses = distance(gpu.losses.iter().copied(), cpu.losses.iter().copied());
            let gradients = distance(wide(&gpu.gradients), wide(&cpu.gradients));
            losses.max(gradients).max(distance(wide(&gpu.statistics), wide(&cpu.statistics)))
        };
        // NaN is never close.
        let is_close = |far: &f64| *far <= bound;
        let mut found = Vec::new();
        while found.len() < 3 && !found.last().is_some_and(is_close) {
            found.push(far(seed ^ found.len() as u64));
        }
        assert!(found.last().is_some_and(is_close), "off by {found:?}, bound {bound:e}: {text}");
    });
}

#[test]
fn every_kind_of_layer_agrees_with_the_cpu() {
    scene("operations::every_kind_of_layer_agrees_with_the_cpu", &[("PRETEND_SEED", "2")], || {
        let gpus = |precision| Gpus::open(precision).expect("GPUs");
        layers_agree(&gpus(Precision::F32), 1e-5, 150);
        layers_agree(&gpus(Precision::F32).with_channels(true), 1e-5, 150);
    });
}

/// Factors of ten bits of mantissa, and of seven: correct results differ by rounding only, wrong ones by far more.
#[test]
fn reduced_precision_layers_nearly_agree_with_the_cpu() {
    scene("operations::reduced_precision_layers_nearly_agree_with_the_cpu", &[("PRETEND_SEED", "3")], || {
        for last in [false, true] {
            let gpus = |precision| Gpus::open(precision).expect("GPUs").with_channels(last);
            layers_agree(&gpus(Precision::Tf32), 5e-3, 100);
            layers_agree(&gpus(Precision::Bf16), 3e-2, 100);
        }
    });
}
