//! Tests the zoo from its files to a step: every model becomes a program that is simulated, and is trained if its
//! images are small.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::Arenas;
use lockstep_models::{Job, Optimizer, Program};
use lockstep_sim::{Platform, Roofline, simulate};
use lockstep_topology::{Cluster, Hosting, HostingRule, Placement, PlacementRule};

use crate::reference;

fn program(name: &str, workers: u32, batch: u32) -> Program {
    let model = lockstep_readers::load_model(name).unwrap_or_else(|error| panic!("{error}"));
    Job::new(Arc::new(model), workers, batch).program().unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Seconds of a step on two nodes of Big Basin.
fn simulated_step_s(name: &str) -> f64 {
    let program = program(name, 16, 4);
    let cluster = Cluster::load("big-basin-50gbe").unwrap();
    let placement = Placement::new(&cluster, program.ranks(), &PlacementRule::Pack).unwrap();
    let hosting = Hosting::new(&placement, &HostingRule::PerHost).unwrap();
    let platform = Platform::new(&cluster, &placement, &hosting, &Roofline);
    let options = lockstep_sim::SimOptions { warm_up: 0, counted: 1, ..Default::default() };
    let prediction = simulate(&program, &platform, options.driver(), &options).unwrap();
    prediction.timeline.spans.iter().map(|span| span.end.as_secs_f64()).fold(0.0, f64::max)
}

#[test]
fn every_model_is_simulated_and_larger_ones_take_longer() {
    let seconds: Vec<(String, f64)> =
        lockstep_readers::zoo().into_iter().map(|name| (name.clone(), simulated_step_s(&name))).collect();
    let of = |wanted: &str| seconds.iter().find(|(name, _)| name == wanted).map(|(_, seconds)| *seconds).unwrap();
    assert!(seconds.iter().all(|(_, seconds)| *seconds > 0.0), "{seconds:?}");
    // More work and larger exchanges take longer on the same machine.
    for (less, more) in [
        ("mlp", "lenet"),
        ("lenet", "nin"),
        ("nin", "alexnet"),
        ("googlenet", "googlenet:auxiliary"),
        ("resnet-50:stride-1x1", "resnet-50"),
        ("resnet-50", "resnet-101"),
        ("vgg-16", "vgg-19"),
    ] {
        assert!(of(less) < of(more), "{less} {} {more} {}", of(less), of(more));
    }
}

/// Sizes of small decoders.
const GPT: &str = "layers=2,hidden=16,heads=2,vocabulary=50,positions=8";
const LLAMA: &str = "layers=2,hidden=16,heads=4,key_heads=2,feed_forward=24,vocabulary=50,positions=8";
const QWEN: &str = "layers=2,hidden=16,heads=4,key_heads=2,head_width=6,feed_forward=24,vocabulary=50,positions=8";

/// Small images and few classes, so that a step takes a fraction of a second without optimisation.
const SETTINGS: [(&str, &str); 40] = [
    ("alexnet", "image=64,classes=10"),
    ("alexnet:ungrouped", "image=64,classes=10"),
    ("alexnet-one-tower", "image=64,classes=10"),
    ("alexnet-one-tower:footnote", "image=64,classes=10"),
    ("googlenet", "image=64,classes=10"),
    ("googlenet:auxiliary", "image=80,classes=10"),
    ("googlenet-bn", "image=64,classes=10"),
    ("gpt", GPT),
    ("gpt2", GPT),
    ("gpt2-char", GPT),
    ("gpt2-large", GPT),
    ("gpt2-medium", GPT),
    ("gpt2-xl", GPT),
    ("gpt3-175b", GPT),
    ("inception-v3", "image=80,classes=10"),
    ("lenet", ""),
    ("llama-2-13b", LLAMA),
    ("llama-2-70b", LLAMA),
    ("llama-2-7b", LLAMA),
    ("llama-3-405b", LLAMA),
    ("llama-3-70b", LLAMA),
    ("llama-3-8b", LLAMA),
    ("llama-3.2-1b", LLAMA),
    ("mistral-7b", LLAMA),
    ("mlp", ""),
    ("msft-speech", "hidden=2,classes=10"),
    ("msft-speech:seide", "hidden=2,classes=10"),
    ("nin", "image=64,classes=10"),
    ("qwen3-0.6b", QWEN),
    ("qwen3-8b", QWEN),
    ("resnet-101", "image=32,classes=10"),
    ("resnet-101:stride-1x1", "image=32,classes=10"),
    ("resnet-152", "image=32,classes=10"),
    ("resnet-152:stride-1x1", "image=32,classes=10"),
    ("resnet-32", ""),
    ("resnet-50", "image=32,classes=10"),
    ("resnet-50:stride-1x1", "image=32,classes=10"),
    ("vgg-16", "image=32,classes=10"),
    ("vgg-16-cifar", "classes=10"),
    ("vgg-19", "image=32,classes=10"),
];

/// Models whose layers others have too.
const ALIKE: [&str; 9] = [
    "alexnet:ungrouped",
    "alexnet-one-tower:footnote",
    "googlenet:auxiliary",
    "msft-speech:seide",
    "resnet-101",
    "resnet-152",
    "resnet-32",
    "vgg-16",
    "vgg-19",
];

#[test]
fn every_model_has_a_setting() {
    let names: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, lockstep_readers::zoo());
}

// Two tests, so that they share the cores: they are last, when nothing else is left to run.

#[test]
fn every_model_trains_a_step() {
    train_a_step(SETTINGS.iter().step_by(2));
}

#[test]
fn every_other_model_trains_a_step() {
    train_a_step(SETTINGS.iter().skip(1).step_by(2));
}

fn train_a_step<'a>(settings: impl Iterator<Item = &'a (&'a str, &'a str)>) {
    // Models that differ by a stride, a width or by more of the same layers are left to a thorough run.
    let thorough = std::env::var_os("LOCKSTEP_THOROUGH").is_some();
    for &(name, sizes) in settings {
        if !thorough && (name.ends_with(":stride-1x1") || ALIKE.contains(&name)) {
            continue;
        }
        let separator = if name.contains(':') { "," } else { ":" };
        let called = if sizes.is_empty() { name.to_owned() } else { format!("{name}{separator}{sizes}") };
        let program = program(&called, 1, 2);
        let (data, _) = Dataset::load("synthetic:10", &program.model).unwrap();
        let optimizer = Optimizer { learning_rate: 1e-3, momentum: 0.0, weight_decay: 0.0, ..Optimizer::default() };
        let arenas = Arenas { poison: true, ..Arenas::default() };
        let options = lockstep_exec::RunOptions { steps: 1, warm_up: 0, optimizer, arenas, ..Default::default() };
        let run = lockstep_exec::run(&program, &data, &options).unwrap_or_else(|error| panic!("{called}: {error}"));
        assert!(run.losses[0].is_finite() && run.losses[0] > 0.0, "{called}: {:?}", run.losses);
        // The reference has a place for every tensor.
        let expected = reference::train(&program, &data, 1, 1, &options.optimizer).unwrap();
        assert!(
            expected.iter().zip(&run.parameters).all(|(a, b)| a.to_bits() == b.to_bits()),
            "{called}: the arena shows"
        );
        let start = lockstep_exec::init::parameters(&program.model, 1);
        for parameter in program.model.layers().iter().flat_map(|node| &node.parameters) {
            let range = parameter.range.start as usize..parameter.range.end as usize;
            let (old, new) = (&start[range.clone()], &run.parameters[range]);
            assert!(new.iter().all(|value| value.is_finite()), "{called}: {}", parameter.name);
            assert!(old != new, "{called}: {} has not moved", parameter.name);
        }
    }
}
