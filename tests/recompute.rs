//! Tests that activations that are dropped and computed again change no bit of what is trained, and save the memory that they
//! should.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::{Arenas, RunOptions, run};
use lockstep_models::memory::{Activations, Content, activations};
use lockstep_models::{Axis, Job, Mesh, Model, Op, Phase, PipelineSchedule, Recompute, Role, StageCut, random_model};
use lockstep_readers::{load_model, parse_model};
use lockstep_topology::{Dtype, ErrorPlace, InputError};
use proptest::prelude::*;

use crate::equivalence::{STEPS, numbers, optimizers};
use crate::stages::schedules;

/// A decoder of 6 positions and 12 tokens.
const DECODER: &str = r#"
name = "decoder"
input = { positions = 6, tokens = 12 }
layer = [
    { name = "embedding", kind = "embedding", entries = 12, out_features = 8 },
    { name = "positions", kind = "position_embedding" },
    { name = "layers", block = "layer", repeat = "$blocks" },
    { name = "norm", kind = "layer_norm" },
    { name = "head", kind = "linear_cross_entropy", out_features = 12 },
]
[block.layer]
layer = [
    { name = "attention_norm", kind = "layer_norm" },
    { name = "query", kind = "linear", out_features = 8 },
    { name = "key", kind = "linear", out_features = 8, inputs = "attention_norm" },
    { name = "value", kind = "linear", out_features = 8, inputs = "attention_norm" },
    { name = "attention", kind = "attention", heads = 4, inputs = ["query", "key", "value"] },
    { name = "output", kind = "linear", out_features = 8 },
    { name = "dropout", kind = "dropout", rate = 0.25 },
    { name = "attention_sum", kind = "add", inputs = ["input", "dropout"] },
    { name = "feed_forward_norm", kind = "layer_norm" },
    { name = "up", kind = "linear", out_features = 24 },
    { name = "activation", kind = "gelu" },
    { name = "down", kind = "linear", out_features = 8 },
    { name = "sum", kind = "add", inputs = ["attention_sum", "down"] },
]
[size]
blocks = BLOCKS
"#;

fn decoder(blocks: u32) -> Arc<Model> {
    Arc::new(parse_model("m.toml", &DECODER.replace("BLOCKS", &blocks.to_string())).unwrap())
}

fn settings() -> impl Strategy<Value = Recompute> {
    let all =
        ["full", "full:every=2", "full:every=3", "selective", "selective:layernorm+mlp", "selective:core_attn+mlp"];
    prop::sample::select(all.map(|text| text.parse().unwrap()).to_vec())
}

/// Whether the settings drop nothing of the model, as the error of a job says.
fn is_of_nothing(error: &InputError, is_decoder: bool) -> bool {
    let says = |part: &str| error.message.contains(part);
    error.place == ErrorPlace::Flag("recompute") && (says("drops nothing") || !is_decoder && says("has no layers of"))
}

/// All that training leaves, and the losses.
fn trained(job: &Job, options: &RunOptions<'_>) -> (String, Vec<u64>) {
    let program = job.program().unwrap_or_else(|error| panic!("{job:?}: {error}"));
    let samples = program.global_batch() * u64::from(STEPS);
    let (data, _) = Dataset::load(&format!("synthetic:{}", samples * 2), &job.model).unwrap();
    let run = run(&program, &data, options).unwrap();
    (run.state_sha256, run.losses.iter().map(|loss| loss.to_bits()).collect())
}

/// Tasks that run again, by role.
fn again(role: &Role) -> usize {
    role.tasks.iter().filter(|task| matches!(task.op, Op::Compute { phase: Phase::Recompute, .. })).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Weights, the optimizer's state, running statistics and losses stay what they are, on any axes. Memory that is dropped is
    /// poisoned.
    #[test]
    fn what_is_computed_again_changes_no_bit(
        model in prop_oneof![(0u64..300, any::<bool>()).prop_map(Ok), (1u32..=3).prop_map(Err)],
        recompute in settings(),
        (strategy, axes) in prop::sample::select(vec![
            ("ssgd", vec![(Axis::Data, 2)]),
            ("ssgd", vec![(Axis::Pipeline, 2)]),
            ("ssgd", vec![(Axis::Data, 2), (Axis::Pipeline, 3)]),
            ("zero-1", vec![(Axis::Pipeline, 2), (Axis::Data, 2)]),
            ("zero-3", vec![(Axis::Pipeline, 2), (Axis::Data, 2)]),
            ("zero-2", vec![(Axis::Data, 3)]),
            ("zero-3", vec![(Axis::Data, 2)]),
            ("zero-3:prefetch=2", vec![(Axis::Data, 2)]),
            ("zero-3:no-reshard", vec![(Axis::Data, 2)]),
            ("megatron", vec![(Axis::Tensor, 2)]),
            ("megatron:zero-1", vec![(Axis::Data, 2), (Axis::Tensor, 2)]),
            ("megatron", vec![(Axis::Pipeline, 2), (Axis::Tensor, 2)]),
            ("sequence-parallel", vec![(Axis::Tensor, 2)]),
            ("sequence-parallel", vec![(Axis::Data, 2), (Axis::Tensor, 4)]),
            ("local-sgd", vec![]),
            ("sma", vec![]),
        ]),
        schedule in schedules(),
        cut in prop::sample::select(vec![StageCut::Work, StageCut::Layers]),
        accumulate in 1u32..=3,
        optimizer in optimizers(),
        fuse: bool,
        (precision, gradients) in numbers(),
        seed: u64,
    ) {
        let is_decoder = model.is_err();
        let model = match model {
            Ok((model, with_batch_norm)) => Arc::new(random_model(model, with_batch_norm)),
            Err(blocks) => decoder(blocks),
        };
        let mesh = Mesh::new(&axes).ok().filter(|_| !axes.is_empty());
        let stages = mesh.as_ref().map_or(1, |mesh| mesh.size(Axis::Pipeline));
        let schedule = if stages > 1 { schedule } else { PipelineSchedule::OneForwardOneBackward };
        let accumulate = if mesh.is_none() { 1 } else if schedule.chunks() > 1 { accumulate * stages } else { accumulate };
        let plain = Job {
            strategy: strategy.parse().unwrap(), mesh: mesh.clone(), schedule, cut, accumulate, fuse, precision, gradients,
            rule: optimizer.rule, moments: optimizer.moments, clips: optimizer.clip_norm.is_some(),
            ..Job::new(model, mesh.map_or(2, |mesh| mesh.ranks()), 4)
        };
        prop_assume!(plain.program().is_ok());
        let job = Job { recompute, ..plain.clone() };
        let refused = job.program().err();
        // Chunks of few layers keep all that they have.
        prop_assume!(!refused.as_ref().is_some_and(|error| is_of_nothing(error, is_decoder)));
        prop_assert!(refused.is_none(), "{refused:?}");
        let arenas = Arenas { poison: true, ..Arenas::default() };
        let options = RunOptions { steps: STEPS, warm_up: 0, seed, optimizer, arenas, ..RunOptions::default() };
        prop_assert_eq!(trained(&job, &options), trained(&plain, &options), "{:?}", job);
    }
}

/// Layers of a block that run again: of all but its last output those that a backward pass, or another of them, reads; of modules
/// their own.
#[test]
fn layers_run_again_where_what_was_dropped_is_read() {
    for (blocks, (recompute, each)) in (1..=3).flat_map(|blocks| {
        let all = [("full", 11), ("selective:core_attn", 1), ("selective:layernorm", 2), ("selective:mlp", 2)];
        all.map(|of| (blocks, of))
    }) {
        let of = |recompute: &str, fuse| {
            let job = Job { recompute: recompute.parse().unwrap(), fuse, ..Job::new(decoder(blocks), 1, 2) };
            again(&job.program().unwrap().roles[0])
        };
        assert_eq!(of(recompute, false), blocks as usize * each, "{recompute} of {blocks} blocks");
        assert_eq!(of("none", false) + of("none", true), 0);
        assert!(of(recompute, true) <= blocks as usize * each);
    }
    // Of all blocks together the last sum alone is kept; the others are computed again, each with the layer before it.
    let job = Job { recompute: "full:every=3".parse().unwrap(), fuse: false, ..Job::new(decoder(3), 1, 2) };
    assert_eq!(again(&job.program().unwrap().roles[0]), 3 * 11 + 2 * 2);
}

/// An output layer that ranks share is no block, and its product of the whole vocabulary does not run again.
#[test]
fn parts_of_a_loss_do_not_run_again() {
    for (strategy, recompute) in ["megatron", "sequence-parallel"]
        .into_iter()
        .flat_map(|strategy| ["full", "full:every=9"].map(|of| (strategy, of)))
    {
        let mesh = Some(Mesh::new(&[(Axis::Tensor, 2)]).unwrap());
        let (strategy, recompute) = (strategy.parse().unwrap(), recompute.parse().unwrap());
        let program = Job { strategy, mesh, recompute, ..Job::new(decoder(2), 2, 2) }.program().unwrap();
        let reads_labels =
            |chain: usize| program.chains[chain].iter().any(|id| program.model.node(*id).layer.is_of_loss());
        let of_loss = |phase: Phase| {
            let tasks = program.roles[0].tasks.iter();
            let chains = tasks.filter_map(|task| match task.op {
                Op::Compute { chain, phase: of, .. } if of == phase => Some(chain),
                _ => None,
            });
            chains.filter(|chain| reads_labels(*chain)).count()
        };
        assert!(of_loss(Phase::Forward) >= 2, "the part and what merges parts");
        assert_eq!(of_loss(Phase::Recompute), 0);
    }
}

/// A further block keeps its last output, and what kernels keep for themselves.
#[test]
fn a_further_block_keeps_its_last_output() {
    let of = |blocks: u32, recompute: &str| {
        let job = Job { recompute: recompute.parse().unwrap(), ..Job::new(decoder(blocks), 1, 16) };
        let program = job.program().unwrap();
        let role = &program.roles[0];
        let tensors = activations(&program, role, Dtype::F32);
        let kept: u64 = tensors.iter().filter(|of| of.content == Content::Kept).map(|of| of.bytes()).sum();
        let last = tensors.iter().find(|of| of.name == "layers.1.sum").unwrap().bytes();
        (Activations::of_role(&program, role), kept, last)
    };
    for blocks in 1..6 {
        let [(fewer, kept, last), (more, with_more, _)] = [blocks, blocks + 1].map(|blocks| of(blocks, "full"));
        assert_eq!(more.live - fewer.live, last + with_more - kept, "{blocks} blocks");
        assert!(more.planned < of(blocks + 1, "none").0.planned);
        let selective = of(blocks + 1, "selective:mlp").0.planned;
        assert!(more.planned < selective && selective < of(blocks + 1, "none").0.planned);
    }
}

/// Layers that take samples of several ranks in turn, modules of other models, and models that keep nothing.
#[test]
fn what_cannot_be_computed_again_is_refused() {
    let refused = |model: Arc<Model>, strategy: &str, recompute: &str| {
        let (strategy, recompute) = (strategy.parse().unwrap(), recompute.parse().unwrap());
        let error = Job { strategy, recompute, ..Job::new(model, 2, 4) }.program().unwrap_err();
        assert_eq!(error.place, ErrorPlace::Flag("recompute"));
        error.message
    };
    let cnn = || Arc::new(load_model("vgg-16:image=32").unwrap());
    assert!(refused(cnn(), "ssgd", "selective:mlp").contains("has no layers of mlp"));
    assert!(refused(cnn(), "ssgd", "selective:core_attn+layernorm").contains("has no layers of core_attn"));
    let small = Arc::new(load_model("lenet").unwrap());
    assert!(refused(small, "ssgd", "full").contains("drops nothing of lenet"));
    assert!(refused(cnn(), "hybrid:b", "full").contains("runs layers in several passes"));
}
