//! Tests that k ranks train like one rank that accumulates k micro-batches, to the bit, whatever the model, the cut or
//! the algorithm.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::{Arenas, Evaluations, RunOptions, run};
use lockstep_models::memory::Reuse;
use lockstep_models::{
    Bucket, Decay, Gradients, Job, Moments, MomentumForm, Optimizer, Precision, Sampling, Scaling, Strategy as Spread,
    Target, UpdateRule, WarmUp, random_model,
};
use lockstep_topology::{Algorithm, Bytes, Collective, Group, Schedule};
use proptest::prelude::*;

use crate::reference;

pub(crate) const STEPS: u32 = 3;

/// Buckets of a layer, of the whole gradient, of a tensor, of a few bytes.
pub(crate) fn buckets() -> impl Strategy<Value = Bucket> {
    let sizes = (1u64..4000).prop_map(|bytes| Bucket::Size(Bytes(bytes)));
    prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Tensor), sizes]
}

/// All algorithms of an allreduce by messages, and forms that differ from a registry's example.
fn algorithms() -> Vec<Algorithm> {
    let forms = [
        "tree:3",
        "multi-color:2",
        "parameter-server:2",
        "parameter-server:1:dedicated",
        "parameter-server:2:dedicated",
        "hierarchical:halving-doubling",
        "hierarchical:multi-color:2",
    ];
    let serves = |algorithm: &Algorithm| algorithm.serves(&Collective::AllReduce) && algorithm.library().is_none();
    Algorithm::all().filter(serves).chain(forms.map(|form| form.parse().unwrap())).collect()
}

/// A constant rate and momentum.
pub(crate) fn plain() -> Optimizer {
    Optimizer { learning_rate: 0.05, ..Optimizer::default() }
}

/// The numbers that CPUs store: fp32, activations in bf16, or gradients too.
pub(crate) fn numbers() -> impl Strategy<Value = (Precision, Gradients)> {
    let all = [(Precision::F32, Gradients::F32), (Precision::Bf16, Gradients::F32), (Precision::Bf16, Gradients::Half)];
    prop::sample::select(all.to_vec())
}

/// Every rule, clipped or not, moments of both formats, rates that change within the few steps of these runs, and every form of SGD's update.
pub(crate) fn optimizers() -> impl Strategy<Value = Optimizer> {
    let forms = [MomentumForm::Separate, MomentumForm::Absorbed, MomentumForm::Corrected];
    let decays = [Decay::Constant, Decay::Every { factor: 0.5, epochs: 0.5 }, Decay::Cosine];
    let scalings = [Scaling::None, Scaling::Linear { batch: 8 }, Scaling::SquareRoot { batch: 8 }];
    let ramp = WarmUp::Gradual { epochs: 1.0, from: Some(0.001) };
    let pick = (prop::sample::select(forms.to_vec()), prop::sample::select(decays.to_vec()), any::<bool>());
    let rest = (prop::sample::select(scalings.to_vec()), prop::sample::select(vec![WarmUp::None, ramp]), any::<bool>());
    let rules = prop::sample::select(UpdateRule::ALL.to_vec());
    let clips = prop::sample::select(vec![None, Some(0.5), Some(100.0)]);
    let moments = prop::sample::select(Moments::ALL.to_vec());
    ((rules, clips, moments), pick, rest).prop_map(
        |((rule, clip_norm, moments), (form, decay, nesterov), (scaling, warm_up, decay_batch_norm))| Optimizer {
            rule,
            clip_norm,
            moments,
            learning_rate: if rule == UpdateRule::Sgd { plain().learning_rate } else { 0.002 },
            form,
            decay,
            nesterov,
            scaling,
            warm_up,
            decay_batch_norm,
            weight_decay: 1e-3,
            ..plain()
        },
    )
}

/// Learnable parameters of the distributed run and of its one-rank reference.
pub(crate) fn both(job: &Job, seed: u64, optimizer: &Optimizer) -> (Vec<f32>, Vec<f32>) {
    let (rule, moments, clips) = (optimizer.rule, optimizer.moments, optimizer.clip_norm.is_some());
    let job = &Job { rule, moments, clips, ..job.clone() };
    let program = job.program().unwrap_or_else(|error| panic!("{job:?}: {error}"));
    let samples = program.global_batch() * 2;
    let (data, _) = Dataset::load(&format!("synthetic:{}", samples * 2), &job.model).unwrap();
    // Augmentation of a sample does not depend on the rank that draws it.
    let data = if seed.is_multiple_of(2) { data } else { data.augmented("scale,crop=1,flip".parse().unwrap()) };
    let stall_limit = std::time::Duration::from_secs(10);
    let optimizer = optimizer.clone();
    // The reference has a place for every tensor, the run one arena with NaN in dead memory.
    let arenas = Arenas { poison: true, ..Arenas::default() };
    let options =
        RunOptions { steps: STEPS, warm_up: 0, seed, optimizer, stall_limit, arenas, ..RunOptions::default() };
    let distributed = run(&program, &data, &options).unwrap();
    let expected = reference::train(&program, &data, STEPS, seed, &options.optimizer).unwrap();
    (distributed.parameters, expected)
}

pub(crate) fn assert_equal_bits(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len());
    let differing = a.iter().zip(b).filter(|(x, y)| x.to_bits() != y.to_bits()).count();
    assert_eq!(differing, 0, "{differing} of {} parameters differ: {what}", a.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn k_ranks_equal_one_that_accumulates(
        model in 0u64..200,
        with_batch_norm: bool,
        workers in 1u32..=8,
        batch_per_rank in 2u32..=4,
        accumulate in 1u32..=3,
        bucket in buckets(),
        algorithm in prop::sample::select(algorithms()),
        chunk in prop_oneof![Just(None), (4u64..600).prop_map(|bytes| Some(Bytes(bytes)))],
        concurrent_exchanges in 1u32..=3,
        first_node in 1u32..=8,
        sampling in prop_oneof![Just(Sampling::OneShuffle), Just(Sampling::PerNode)],
        optimizer in optimizers(),
        fuse: bool,
        pad: bool,
        numbers in numbers(),
        seed: u64,
    ) {
        let (precision, gradients) = numbers;
        let servers = if workers > 1 { algorithm.servers() } else { 0 };
        let ranks = workers + servers;
        let serves = Schedule::new(&Collective::AllReduce, &algorithm, &Group::flat(ranks), 1, 0).is_ok();
        if !serves && algorithm.servers() == 0 {
            return Ok(());
        }
        let first = first_node.min(ranks);
        let node_sizes = if first == ranks { vec![ranks] } else { vec![first, ranks - first] };
        let model = Arc::new(random_model(model, with_batch_norm));
        let job = Job {
            accumulate, bucket, algorithm, chunk, concurrent_exchanges, fuse, pad, sampling, node_sizes: Some(node_sizes),
            precision, gradients, ..Job::new(model, workers, batch_per_rank)
        };
        let (distributed, expected) = both(&job, seed, &optimizer);
        assert_equal_bits(&distributed, &expected, &format!("{job:?}"));
    }
}

/// Without the reduction order the property is false: the test above is not vacuous.
#[test]
fn plain_accumulation_has_other_bits() {
    let model = Arc::new(random_model(3, false));
    let ring = Job { bucket: Bucket::Whole, ..Job::new(model.clone(), 5, 3) };
    let one = Job { accumulate: 5, ..Job::new(model, 1, 3) };
    let (data, _) = Dataset::load("synthetic:60", &ring.model).unwrap();
    let train = |job: &Job| {
        let options = RunOptions { steps: STEPS, warm_up: 0, seed: 7, optimizer: plain(), ..RunOptions::default() };
        run(&job.program().unwrap(), &data, &options).unwrap().parameters
    };
    let (ring, one) = (train(&ring), train(&one));
    let largest = ring.iter().zip(&one).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    assert!(ring.iter().zip(&one).any(|(x, y)| x.to_bits() != y.to_bits()), "ring and sequence would bracket alike");
    assert!(largest < 1e-4, "equal but for rounding, yet they differ by {largest}");
}

/// Evaluation and recomputed statistics use the arena too, with every form of memory reuse.
#[test]
fn the_memory_plan_changes_no_bit() {
    for (model, fuse) in (20..32).flat_map(|model| [(model, false), (model, true)]) {
        let job = Job { fuse, accumulate: 2, ..Job::new(Arc::new(random_model(model, true)), 2, 3) };
        let program = job.program().unwrap();
        let (data, held_out) = Dataset::load("synthetic:50", &job.model).unwrap();
        let train = |reuse, poison| {
            let arenas = Arenas { reuse, poison, ..Arenas::default() };
            let evaluations = Some(Evaluations {
                held_out: &held_out,
                last_epochs: 2,
                recompute_bn: true,
                target: Target::default(),
            });
            let options = RunOptions { steps: 6, optimizer: plain(), evaluations, arenas, ..RunOptions::default() };
            let mut run = run(&program, &data, &options).unwrap();
            let made = options.arenas.pool.made();
            assert!(
                (1..=3).contains(&made),
                "{made}: an arena for each learner at most, and one for the last evaluation"
            );
            (run.state_sha256.clone(), run.evaluations.clone(), run.evaluate(&held_out).unwrap())
        };
        let apart = train(Reuse::Nothing, false);
        assert!(!apart.1.is_empty() && apart.2.mean_loss.is_finite());
        for reuse in [Reuse::InPlace, Reuse::Shared, Reuse::Full] {
            assert_eq!(train(reuse, true), apart, "model {model}, fused: {fuse}, {reuse:?}");
        }
    }
}

/// Two runs of one seed are equal; another seed is another run.
#[test]
fn a_run_repeats_to_the_bit() {
    let job =
        Job { algorithm: "halving-doubling".parse().unwrap(), ..Job::new(Arc::new(random_model(11, true)), 3, 4) };
    let program = job.program().unwrap();
    let (data, _) = Dataset::load("synthetic:60", &job.model).unwrap();
    let train = |seed, threads_per_rank| {
        let options = RunOptions { steps: 4, seed, threads_per_rank, ..RunOptions::default() };
        let run = run(&program, &data, &options).unwrap();
        (run.weights_sha256, run.state_sha256)
    };
    let first = train(1, 1);
    assert_eq!(first, train(1, 1));
    assert_eq!(first, train(1, 2), "kernels give the same bits for any thread count");
    assert_ne!(first.0, train(2, 1).0);
    assert_ne!(first.0, first.1);
}

/// Three losses on the same scores with weights of ½, ½ and 1 have twice the gradient of one: at half the rate the same
/// bits, since factors of two do not round.
#[test]
fn losses_add_their_gradients_times_their_weights() {
    let text = |losses: &str| {
        format!(
            "name = \"m\"\ninput = [1, 6, 6]\nlayer = [\n{{ kind = \"conv2d\", out_channels = 4, kernel = 3 }},\n\
             {{ kind = \"relu\" }},\n{{ name = \"scores\", kind = \"dense\", out_features = 3 }},\n{losses}\n\
             {{ kind = \"softmax_cross_entropy\", inputs = \"scores\" }},\n]\n"
        )
    };
    let auxiliary = "{ kind = \"softmax_cross_entropy\", loss_weight = 0.5, inputs = \"scores\" },\n".repeat(2);
    let trained = |losses: &str, learning_rate: f64, workers: u32| {
        let job = Job::new(Arc::new(lockstep_readers::parse_model("m.toml", &text(losses)).unwrap()), workers, 4);
        let optimizer = Optimizer { learning_rate, momentum: 0.5, ..plain() };
        let (data, _) = Dataset::load("synthetic:64", &job.model).unwrap();
        let options = RunOptions { steps: STEPS, warm_up: 0, seed: 3, optimizer, ..RunOptions::default() };
        let run = run(&job.program().unwrap(), &data, &options).unwrap();
        (run.parameters, run.losses)
    };
    for workers in [1, 2] {
        let ((one, one_losses), (three, three_losses)) =
            (trained("", 0.25, workers), trained(&auxiliary, 0.125, workers));
        assert_equal_bits(&one, &three, "three losses against one");
        // The reported loss is the last one alone.
        assert_eq!(one_losses, three_losses);
    }
}

/// How close a strategy's k ranks are to one that accumulates k micro-batches.
#[derive(Debug, PartialEq)]
enum Claim {
    /// The same bits.
    Bits,
    /// The same weights up to rounding: sums within a layer are split differently.
    Rounding,
    /// A different training.
    Nothing,
}

/// A new strategy declares its equivalence here, and is in the list below.
fn claim(strategy: &Spread) -> Claim {
    let text = strategy.to_string();
    match strategy {
        Spread::Ssgd(_) | Spread::Zero1(_) | Spread::Zero2(_) | Spread::Zero3(_) | Spread::FirstDeviceTable(_) => {
            Claim::Bits
        }
        Spread::Hybrid(_) if text.contains("variable-batch") => Claim::Nothing,
        Spread::ModelParallel(_) | Spread::Megatron(_) | Spread::Hybrid(_) => Claim::Rounding,
        Spread::SequenceParallel(_) | Spread::AllToAll(_) => Claim::Rounding,
        Spread::Sma(_) | Spread::EaSgd(_) | Spread::LocalSgd(_) => Claim::Nothing,
    }
}

/// Every strategy is exactly as close to accumulated gradients as declared; properties for random models are in the
/// tests of each.
#[test]
fn each_strategy_is_as_equivalent_as_it_claims() {
    let text = "name = \"m\"\ninput = [1, 6, 6]\nlayer = [\n{ kind = \"conv2d\", out_channels = 4, kernel = 3 },\n\
                { kind = \"relu\" },\n{ kind = \"dense\", out_features = 16 },\n{ kind = \"relu\" },\n\
                { kind = \"dense\", out_features = 4 },\n{ kind = \"softmax_cross_entropy\" },\n]\n";
    let model = Arc::new(lockstep_readers::parse_model("m.toml", text).unwrap());
    let optimizer = Optimizer { momentum: 0.5, ..plain() };
    let (data, _) = Dataset::load("synthetic:400", &model).unwrap();
    let on = |strategy: &str, learners| Job {
        strategy: strategy.parse().unwrap(),
        learners,
        bucket: Bucket::Whole,
        node_sizes: Some(vec![2, 2]),
        ..Job::new(model.clone(), 4, 4)
    };
    let ssgd = on("ssgd", 1).program().unwrap();
    let options = RunOptions { steps: 6, warm_up: 0, seed: 7, optimizer: optimizer.clone(), ..RunOptions::default() };
    let expected = reference::train(&ssgd, &data, 6, 7, &optimizer).unwrap();
    for (strategy, learners) in [
        ("ssgd", 1),
        ("zero-1", 1),
        ("zero-2", 1),
        ("zero-3", 1),
        ("first-device-table", 1),
        ("model-parallel", 1),
        ("megatron", 1),
        ("sequence-parallel", 1),
        ("all-to-all", 1),
        ("hybrid:a", 1),
        ("hybrid:b", 1),
        ("hybrid:c", 1),
        ("hybrid:g=2", 1),
        ("hybrid:b:variable-batch", 1),
        ("sma", 1),
        ("sma:reference-models", 2),
        ("sma:round-robin", 1),
        ("ea-sgd", 1),
        ("ea-sgd:first-come", 1),
        ("local-sgd:tau=2", 1),
        ("local-sgd:tau=2:momentum=0.5", 1),
    ] {
        let job = on(strategy, learners);
        let trained = run(&job.program().unwrap(), &data, &options).unwrap().parameters;
        let apart = trained.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        let bits = trained.iter().zip(&expected).all(|(x, y)| x.to_bits() == y.to_bits());
        let found = match apart {
            _ if bits => Claim::Bits,
            apart if apart < 1e-4 => Claim::Rounding,
            _ => Claim::Nothing,
        };
        assert_eq!(found, claim(&job.strategy), "{strategy}: {apart}");
    }
}
