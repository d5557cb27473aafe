//! Trains decoders from weights in safetensors files with every kind of strategy, and writes what they have trained.

use std::path::Path;

use lockstep_readers::WeightLayout;

use super::*;

/// Strategies, and how their ranks are laid out.
const STRATEGIES: [&str; 9] = [
    "strategy = \"ssgd\"\nranks = [1]",
    "strategy = \"ssgd\"\nranks = [2]",
    "strategy = \"zero-1\"\nranks = [2]",
    "strategy = \"zero-3\"\nranks = [3]",
    "strategy = \"megatron\"\nmesh = \"data=2,tensor=2\"",
    "strategy = \"sequence-parallel\"\nmesh = \"tensor=2\"",
    "strategy = \"ssgd\"\nmesh = \"data=2,pipeline=2\"\naccumulate = 2",
    "strategy = \"megatron\"\nmesh = \"pipeline=2,tensor=2\"\naccumulate = 2",
    "strategy = \"sma\"\nranks = [2]",
];

/// A decoder of two layers, by its name.
const DECODERS: [&str; 2] = [
    "gpt:vocabulary=32,positions=8,hidden=16,layers=2,heads=4",
    "llama-3.2-1b:vocabulary=32,positions=8,hidden=16,layers=2,heads=4,key_heads=2,head_width=4,feed_forward=24,tied=false",
];

/// The parameters that a run of `model` from the weights in `file` ends with.
fn run(model: &str, file: &Path, more: &str, rate: f64) -> Vec<f32> {
    let text = format!(
        "name = \"e\"\nmodel = {model:?}\nweights = {:?}\ndata = \"synthetic:64\"\nbatch_per_rank = 2\nsteps = 2\n{more}\n\
         [optimizer]\nlearning_rate = {rate:?}\n",
        file.display().to_string()
    );
    let experiment = Experiment::parse("e.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let mut parameters = Vec::new();
    rows(&experiment, &Operation::default(), &mut Launch::Threads, |_, measured| {
        parameters.clone_from(&measured.run.parameters);
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{model}, {more}: {error}"));
    parameters
}

/// Without a learning rate each strategy ends with the file's bits; what one has trained and written, the others load.
#[test]
fn every_strategy_begins_with_the_weights_of_a_file() {
    let kept = tempfile::tempdir().unwrap();
    for name in DECODERS {
        let model = lockstep_readers::load_model(name).unwrap();
        let layout = WeightLayout::of(&model).unwrap();
        let write = |file: &str, values: &[f32]| {
            let path = kept.path().join(file);
            layout.write(values, &mut std::fs::File::create(&path).unwrap()).unwrap();
            path
        };
        let values: Vec<f32> =
            (0..model.parameter_elements()).map(|at| (at * 7919 % 1009) as f32 / 5045.0 - 0.1).collect();
        let first = write("first.safetensors", &values);
        let trained = run(name, &first, STRATEGIES[4], 0.1);
        assert!(trained.iter().zip(&values).filter(|(now, before)| now != before).count() > values.len() / 2, "{name}");
        let second = write("second.safetensors", &trained);
        for more in STRATEGIES {
            assert_eq!(run(name, &first, more, 0.0), values, "{name}, {more}");
            assert_eq!(run(name, &second, more, 0.0), trained, "{name}, {more}");
        }
    }
}
