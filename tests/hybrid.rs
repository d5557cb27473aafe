//! Hybrid and model parallelism train like synchronous SGD, up to rounding: split sums are bracketed otherwise. With a
//! variable batch they do not, and what they then do is known where there are no convolutions.

use std::sync::Arc;

use lockstep_exec::{Options, Run, data::Dataset, run};
use lockstep_models::{Bucket, Job, Model, Optimizer, Scaling};
use proptest::prelude::*;

const STEPS: u32 = 3;

/// A model of convolutions, dense layers and whatever may stand between them.
#[derive(Debug, Clone)]
struct Net {
    convolutions: Vec<u32>,
    pool: bool,
    flatten: bool,
    dense: Vec<u32>,
    curve: &'static str,
    dropout: bool,
    classes: u32,
    loss: &'static str,
}

impl Net {
    fn model(&self) -> Arc<Model> {
        let mut layers = String::new();
        for channels in &self.convolutions {
            layers +=
                &format!("{{ kind = \"conv2d\", out_channels = {channels}, kernel = 3 }},\n{{ kind = \"relu\" }},\n");
        }
        if self.pool {
            layers += "{ kind = \"max_pool\", kernel = 2, stride = 2 },\n";
        }
        if self.flatten {
            layers += "{ kind = \"flatten\" },\n";
        }
        for features in &self.dense {
            layers +=
                &format!("{{ kind = \"dense\", out_features = {features} }},\n{{ kind = \"{}\" }},\n", self.curve);
            if self.dropout {
                layers += "{ kind = \"dropout\", rate = 0.25 },\n";
            }
        }
        layers +=
            &format!("{{ kind = \"dense\", out_features = {} }},\n{{ kind = \"{}\" }},\n", self.classes, self.loss);
        let text = format!("name = \"net\"\ninput = [2, 8, 8]\nlayer = [\n{layers}]\n");
        Arc::new(Model::parse("net.toml", &text).unwrap())
    }
}

fn nets() -> impl Strategy<Value = Net> {
    let sizes = (prop::collection::vec(5u32..9, 0..3), prop::collection::vec(5u32..17, 0..3), 5u32..8);
    let curve = prop::sample::select(vec!["relu", "sigmoid", "tanh"]);
    let loss = prop::sample::select(vec!["softmax_cross_entropy", "logistic_cross_entropy"]);
    (sizes, any::<[bool; 3]>(), curve, loss).prop_map(|((convolutions, dense, classes), flags, curve, loss)| {
        let [pool, flatten, dropout] = flags;
        Net { convolutions, pool, flatten, dense, curve, dropout, classes, loss }
    })
}

fn optimizer() -> Optimizer {
    Optimizer { learning_rate: 0.05, weight_decay: 1e-3, ..Optimizer::default() }
}

fn train(job: &Job, steps: u32, optimizer: Optimizer, seed: u64) -> Run {
    let program = job.program().unwrap_or_else(|error| panic!("{job:?}: {error}"));
    let (data, _) = Dataset::load("synthetic:400", &job.model).unwrap();
    let stall_limit = std::time::Duration::from_secs(20);
    let options = Options { steps, warm_up: 0, seed, optimizer, stall_limit, ..Options::default() };
    run(&program, &data, &options).unwrap_or_else(|error| panic!("{job:?}: {error}"))
}

/// The largest distance of a parameter tensor of two runs, in units of its norm, or of 1 where that is smaller.
fn distance(model: &Model, a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let of = |range: std::ops::Range<u64>| {
        let range = range.start as usize..range.end as usize;
        let both = a[range.clone()].iter().zip(&b[range.clone()]);
        let apart = norm(&mut both.map(|(x, y)| f64::from(*x) - f64::from(*y)));
        apart / norm(&mut a[range].iter().map(|x| f64::from(*x))).max(1.0)
    };
    let parameters = model.layers().iter().flat_map(|node| &node.parameters);
    parameters.map(|parameter| of(parameter.range.clone())).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Krizhevsky 2014 §4.2: schemes (b) and (c) are "completely equivalent" to synchronous SGD; so are (a), what lies between,
    /// and the model parallelism of every layer.
    #[test]
    fn split_layers_train_like_ssgd(
        net in nets(),
        ranks in 1u32..=5,
        batch_per_rank in 1u32..=5,
        scheme in prop::sample::select(vec!["hybrid:a", "hybrid:b", "hybrid:c", "hybrid:g=2", "model-parallel"]),
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Tensor)],
        algorithm in prop::sample::select(vec!["ring", "direct", "parameter-server:1"]),
        fuse: bool,
        seed: u64,
    ) {
        let ranks = if scheme == "hybrid:g=2" { ranks.div_ceil(2) * 2 } else { ranks };
        let ranks = if ranks > 5 { 4 } else { ranks };
        let model = net.model();
        let ssgd = Job {
            bucket, fuse, algorithm: algorithm.parse().unwrap(), ..Job::new(Arc::clone(&model), ranks, batch_per_rank)
        };
        let split = Job { strategy: scheme.parse().unwrap(), ..ssgd.clone() };
        let (one, other) = (train(&ssgd, STEPS, optimizer(), seed), train(&split, STEPS, optimizer(), seed));
        let apart = distance(&model, &one.parameters, &other.parameters);
        prop_assert!(apart < 1e-5, "{apart:e} apart");
        for (a, b) in one.losses.iter().zip(&other.losses) {
            prop_assert!((a - b).abs() < 1e-4 * a.abs(), "losses {a} and {b}");
        }
    }

    /// Without convolutions there is no part with the large batch: the dense layers take a step of SGD with each pass.
    #[test]
    fn a_variable_batch_of_dense_layers_is_sgd_with_the_small_batch(
        net in nets(),
        ranks in 2u32..=4,
        batch_per_rank in 1u32..=4,
        seed: u64,
    ) {
        let model = Net { convolutions: Vec::new(), ..net }.model();
        let optimizer = Optimizer { scaling: Scaling::Linear { batch: 4 }, ..optimizer() };
        let strategy = "hybrid:b:variable-batch".parse().unwrap();
        let varied = Job { strategy, ..Job::new(Arc::clone(&model), ranks, batch_per_rank) };
        let alone = Job::new(Arc::clone(&model), 1, batch_per_rank);
        let varied = train(&varied, 2, optimizer.clone(), seed).parameters;
        let alone = train(&alone, 2 * ranks, optimizer, seed).parameters;
        let apart = distance(&model, &varied, &alone);
        prop_assert!(apart < 1e-5, "{apart:e} apart");
    }
}

/// Krizhevsky 2014 §4.2: "the algorithm ceases to be a pure parallelization of SGD".
#[test]
fn a_variable_batch_does_not_train_like_ssgd() {
    let job = Job::new(Arc::new(Model::load("lenet").unwrap()), 2, 4);
    let with = |strategy: &str| {
        let job = Job { strategy: strategy.parse().unwrap(), ..job.clone() };
        let (data, _) = Dataset::load("synthetic:64", &job.model).unwrap();
        let options = Options { steps: STEPS, warm_up: 0, seed: 1, optimizer: optimizer(), ..Options::default() };
        run(&job.program().unwrap(), &data, &options).unwrap().parameters
    };
    let (ssgd, same, varied) = (with("ssgd"), with("hybrid:b"), with("hybrid:b:variable-batch"));
    let (same, varied) = (distance(&job.model, &ssgd, &same), distance(&job.model, &ssgd, &varied));
    assert!(same < 1e-5 && varied > 100.0 * same && varied > 1e-4, "{same:e} and {varied:e} apart");
}
