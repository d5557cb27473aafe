//! Tests models in which two layers read one parameter: its gradient is the sum of both, ranks train like one that accumulates, and
//! what cannot have it says so.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::device::cpu::{Threads, add_into};
use lockstep_exec::replica::Replica;
use lockstep_models::{Axis, Buffer, Exchange, Job, LayerId, Mesh, Model, Moments, Op, Optimizer, Pass, UpdateRule};
use lockstep_readers::parse_model;
use lockstep_topology::InputError;
use proptest::prelude::*;

use crate::equivalence::{assert_equal_bits, both, buckets, optimizers};
use crate::reference;
use crate::split_samples::trains_like;
use crate::stages::schedules;

const TOKENS: usize = 7;
const FEATURES: usize = 6;

/// A decoder with the layers of today's: grouped keys, normalised queries and keys, rotary positions, a window, packed documents, a
/// gated unit, dropout, and an output layer with its loss.
pub(crate) const DECODER: &str = r#"
name = "decoder"
input = { positions = 6, tokens = 11 }
layer = [
    { name = "embedding", kind = "embedding", entries = 11, out_features = 8, weight_init = { gaussian = 0.3 } },
    { name = "documents", kind = "documents", separator = 3, inputs = "input" },
    { name = "norm", kind = "rms_norm", inputs = "embedding" },
    { kind = "linear", out_features = 16, bias = false },
    { kind = "rms_norm", heads = 4, unit_offset = true },
    { name = "queries", kind = "rotary", heads = 4 },
    { kind = "linear", out_features = 8, bias = false, inputs = "norm" },
    { kind = "rms_norm", heads = 2 },
    { name = "keys", kind = "rotary", heads = 2, pairing = "neighbours", scaling = "linear", factor = 2.0 },
    { name = "values", kind = "linear", out_features = 8, inputs = "norm" },
    { kind = "attention", heads = 4, key_heads = 2, window = 3, soft_cap = 4.0, inputs = ["queries", "keys", "values", "documents"] },
    { name = "out", kind = "linear", out_features = 8, bias = false },
    { name = "sum", kind = "add", inputs = ["embedding", "out"] },
    { name = "norm2", kind = "rms_norm" },
    { kind = "linear", out_features = 12, bias = false },
    { name = "gate", kind = "silu" },
    { name = "up", kind = "linear", out_features = 12, bias = false, inputs = "norm2" },
    { kind = "product", inputs = ["gate", "up"] },
    { name = "down", kind = "linear", out_features = 8, bias = false },
    { name = "dropped", kind = "dropout", rate = 0.25 },
    { kind = "add", inputs = ["sum", "dropped"] },
    { kind = "rms_norm" },
    { kind = "linear_cross_entropy", out_features = 11, tie = "embedding", soft_cap = 5.0 },
]
"#;

/// An embedding, layers, and at the end one with the same weight or one of its own.
fn model(tie: Option<&str>) -> Result<Model, InputError> {
    let tie = tie.map_or_else(String::new, |tie| format!(", tie = {tie:?}"));
    let text = format!(
        "name = \"m\"\ninput = {{ positions = 3, tokens = {TOKENS} }}\nlayer = [\n\
         {{ name = \"first\", kind = \"embedding\", entries = {TOKENS}, out_features = {FEATURES} }},\n\
         {{ name = \"norm\", kind = \"rms_norm\" }},\n\
         {{ kind = \"linear\", out_features = {FEATURES} }},\n{{ kind = \"gelu\" }},\n\
         {{ name = \"scores\", kind = \"linear\", out_features = {TOKENS}, bias = false{tie} }},\n\
         {{ kind = \"softmax_cross_entropy\" }},\n]\n"
    );
    parse_model("m.toml", &text)
}

fn tied() -> Arc<Model> {
    Arc::new(model(Some("first")).expect("a model"))
}

#[test]
fn the_parameter_is_there_once() {
    let (tied, apart) = (tied(), model(None).expect("a model"));
    let weight = (TOKENS * FEATURES) as u64;
    assert_eq!(tied.parameter_elements() + weight, apart.parameter_elements());
    let tie = tied.tie().expect("a tie");
    assert_eq!((tie.owner, tie.reader), (LayerId(1), LayerId(5)));
    assert_eq!(tied.parameters_read_by(tie.reader), tied.parameters_read_by(tie.owner));
    // The reader computes as much as one with a weight of its own.
    let work = |model: &Model| model.node(LayerId(5)).work(Pass::BackwardWeight, 4);
    assert_eq!(work(&tied), work(&apart));
}

/// The gradient is, to the bit, that of the output layer plus that of the first layer of a model in which both have weights of
/// their own with equal values; where gradients accumulate, the sum is added at once.
#[test]
fn the_gradient_is_that_of_the_reader_plus_that_of_the_owner() {
    let weight = TOKENS * FEATURES;
    let (tied, apart) = (tied(), Arc::new(model(None).expect("a model")));
    let (data, _) = Dataset::load("synthetic:8", &tied).expect("tokens");
    let of = |model: &Arc<Model>, parameters: Option<&[f32]>, accumulate: u32| {
        let program = Job { accumulate, ..Job::new(model.clone(), 1, 4) }.program().expect("a program");
        let mut replica = Replica::new(&program, 1, &Threads::one());
        if let Some(parameters) = parameters {
            replica.set_parameters(parameters).expect("as many");
        }
        let parameters = replica.parameters().expect("values");
        replica.load(&data, &[0, 1, 2, 3], 0).expect("samples");
        (parameters, reference::gradients(&program, 4, &mut replica).expect("gradients"))
    };
    for accumulate in [1, 2] {
        let (parameters, found) = of(&tied, None, accumulate);
        let equal = [&parameters[..], &parameters[..weight]].concat();
        let (_, expected) = of(&apart, Some(&equal), 1);
        let (own, of_reader) = expected.split_at(expected.len() - weight);
        let mut sum = of_reader.to_vec();
        add_into(&mut sum, &own[..weight]);
        assert_equal_bits(&found[..weight], &sum, "the shared weight");
        assert_equal_bits(&found[weight..], &own[weight..], "the others");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn decoders_train_on_ranks_like_on_one(
        strategy in prop::sample::select(vec!["ssgd", "zero-1", "zero-2", "zero-3"]),
        workers in 1u32..=4,
        accumulate in 1u32..=2,
        bucket in buckets(),
        optimizer in optimizers(),
        fuse: bool,
        seed: u64,
    ) {
        let model = Arc::new(parse_model("m.toml", DECODER).expect("a model"));
        let strategy = strategy.parse().expect("a strategy");
        let job = Job { strategy, accumulate, bucket, fuse, ..Job::new(model, workers, 2) };
        // Some strategies refuse a bucket.
        if job.program().is_ok() {
            let (trained, expected) = both(&job, seed, &optimizer);
            assert_equal_bits(&trained, &expected, &format!("{job:?}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn ranks_train_like_one(
        strategy in prop::sample::select(vec![
            "ssgd", "zero-1", "zero-2", "zero-3", "zero-3:prefetch=0", "zero-3:no-reshard", "local-sgd", "sma", "ea-sgd",
        ]),
        workers in 1u32..=4,
        accumulate in 1u32..=3,
        bucket in buckets(),
        optimizer in optimizers(),
        fuse: bool,
        pad: bool,
        seed: u64,
    ) {
        let learns_apart = ["local-sgd", "sma", "ea-sgd"].contains(&strategy);
        let (accumulate, optimizer) = match learns_apart {
            true => (1, Optimizer { rule: UpdateRule::Sgd, clip_norm: None, moments: Moments::F32, learning_rate: 0.05, ..optimizer }),
            false => (accumulate, optimizer),
        };
        let strategy = strategy.parse().expect("a strategy");
        let job = Job { strategy, accumulate, bucket, fuse, pad, ..Job::new(tied(), workers, 2) };
        // Some strategies refuse a bucket.
        if job.program().is_ok() {
            let (trained, expected) = both(&job, seed, &optimizer);
            assert_equal_bits(&trained, &expected, &format!("{job:?}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// On stages each of which has one of the two layers, beside other axes: the stages add up what they have made in a step, so
    /// that only the order of additions differs from one rank's.
    #[test]
    fn stages_that_share_a_parameter_train_like_one_rank(
        (data, tensor, stages) in (1u32..=2, 1u32..=2, 2u32..=3),
        (strategy, shares_state) in (prop::sample::select(vec!["ssgd", "zero-1", "zero-3", "megatron", "sequence-parallel"]), any::<bool>()),
        (accumulate, schedule) in (1u32..=3, schedules()),
        bucket in buckets(),
        (fuse, fused_output, clips) in any::<(bool, bool, bool)>(),
        seed: u64,
    ) {
        let output = "kind = \"linear_cross_entropy\", out_features = 11, tie = \"embedding\"";
        let apart = "name = \"scores\", kind = \"linear\", out_features = 11, tie = \"embedding\" },\n{ kind = \"softmax_cross_entropy\"";
        let text = if fused_output { DECODER.to_owned() } else { DECODER.replace(&format!("{output}, soft_cap = 5.0"), apart) };
        let model = Arc::new(parse_model("m.toml", &text).expect("a model"));
        let accumulate = if schedule.chunks() > 1 { accumulate.min(2) * stages } else { accumulate };
        let splits = ["megatron", "sequence-parallel"].contains(&strategy);
        let tensor = if splits { tensor } else { 1 };
        let ssgd = Job { accumulate, bucket, fuse, clips, ..Job::new(model, data, 2 * tensor) };
        let mesh = Mesh::new(&[(Axis::Data, data), (Axis::Tensor, tensor), (Axis::Pipeline, stages)]).expect("a mesh");
        let strategy = format!("{strategy}{}", if splits && shares_state { ":zero-1" } else { "" });
        let strategy = strategy.parse().expect("a strategy");
        let staged = Job { strategy, workers: mesh.ranks(), mesh: Some(mesh), schedule, ..ssgd.clone() };
        let refused = |error: &InputError| error.to_string().contains("has the weight of") || error.to_string().contains("axis");
        prop_assume!(!staged.program().is_err_and(|error| refused(&error)));
        trains_like(&ssgd, &staged, seed)?;
    }
}

/// With a stage for each of the layers, the stages exchange the gradient once a step, whatever the micro-batches, and both update
/// the parameter, which counts once.
#[test]
fn stages_exchange_the_gradient_of_a_shared_parameter_once() {
    for accumulate in [1, 4] {
        let mesh = Some("data=2,pipeline=2".parse::<Mesh>().expect("a mesh"));
        let program = Job { mesh, accumulate, clips: true, ..Job::new(tied(), 4, 2) }.program().expect("a program");
        let shared = 0..(TOKENS * FEATURES) as u64;
        for role in &program.roles {
            let sums = |of: &&Exchange| of.buffer == Buffer::Gradients && of.range == shared;
            let sums: Vec<&Exchange> = role.exchanges().map(|(_, of)| of).filter(sums).collect();
            let between: Vec<Option<(u32, u32)>> = sums.iter().map(|of| of.between).collect();
            assert_eq!(between, [None, Some((0, 1))], "{}", role.name);
            let norms = role.exchanges().filter(|(_, of)| of.buffer == Buffer::Norm && of.between.is_none());
            assert_eq!(norms.count(), 1, "{}", role.name);
            let updates = role.tasks.iter().filter(|task| task.op.update().is_some_and(|of| of.range == shared));
            assert_eq!(updates.count(), 1, "{}", role.name);
            assert!(program.parameters_of(role).iter().any(|range| range.contains(&0)));
        }
        let squares = program.roles.iter().flat_map(|role| &role.tasks);
        let squares = squares.filter(|task| matches!(&task.op, Op::Squares(of) if of.range == shared));
        assert_eq!(squares.count(), 1, "it counts once in the norm");
    }
}

#[test]
fn what_cannot_share_says_so() {
    let cases = [
        (
            Job { strategy: "model-parallel".parse().expect("a strategy"), ..Job::new(tied(), 2, 2) },
            "scores has the weight of first",
        ),
        (
            Job {
                mesh: Some("pipeline=2".parse::<Mesh>().expect("a mesh")),
                schedule: "interleaved:2".parse().expect("a schedule"),
                cut: "at=norm,scores,softmax_cross_entropy1".parse().expect("a cut"),
                accumulate: 2,
                ..Job::new(tied(), 2, 2)
            },
            "two layers in two of its chunks",
        ),
    ];
    for (job, wanted) in cases {
        let error = job.program().expect_err(wanted).to_string();
        assert!(error.contains(wanted) && error.contains("use ssgd, zero-1 to zero-3, megatron"), "{error}");
    }
    for (tie, wanted) in [("last", "no layer before it has that name"), ("norm", "whose weight is 6, and needs 7×6")] {
        let error = model(Some(tie)).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
