//! Tests that pipelines train like one rank that accumulates, to the bit, whatever the cut, the schedule and the other
//! axes.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::{Arenas, Evaluations, RunOptions, run};
use lockstep_models::memory::{Activations, Content, PlannedTensor, Reads, activations};
use lockstep_models::{
    Axis, Bucket, Job, LayerId, Mesh, Op, Optimizer, Phase, PipelineSchedule, PipelineStep, StageCut, Target, pipeline,
    random_model,
};
use lockstep_topology::Dtype;
use proptest::prelude::*;

use crate::equivalence::{assert_equal_bits, both, buckets, numbers, optimizers, plain};
use crate::tied::DECODER;

/// The schedules that papers name.
pub(crate) fn schedules() -> impl Strategy<Value = PipelineSchedule> {
    let all = ["gpipe", "1f1b", "interleaved:2", "interleaved:3", "zb-h1"].map(|schedule| schedule.parse().unwrap());
    prop::sample::select(all.to_vec())
}

/// Synchronous SGD of a random model over `stages` × `data` ranks in either order; micro-batches fill the chunks of interleaved stages.
pub(crate) fn job(
    model: u64,
    with_batch_norm: bool,
    (stages, data): (u32, u32),
    (schedule, accumulate, batch): (PipelineSchedule, u32, u32),
) -> Job {
    let mut axes = [(Axis::Pipeline, stages), (Axis::Data, data)];
    axes.rotate_left(model as usize % 2);
    let mesh = Mesh::new(&axes).unwrap();
    let accumulate = if schedule.chunks() > 1 { accumulate * stages } else { accumulate };
    let model = Arc::new(random_model(model, with_batch_norm));
    Job { mesh: Some(mesh), schedule, accumulate, ..Job::new(model, stages * data, batch) }
}

/// Samples are drawn per node, with two nodes such that ranks sharing samples are on one node, or with a single node.
fn on_nodes(job: Job) -> Job {
    let half = job.workers / 2;
    let of = |node_sizes| Job { sampling: "per-node".parse().unwrap(), node_sizes: Some(node_sizes), ..job.clone() };
    let halves = of(vec![half, job.workers - half]);
    if halves.program().is_ok() { halves } else { of(vec![job.workers]) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn stages_train_like_one_rank_that_accumulates(
        model in 0u64..300,
        with_batch_norm: bool,
        (stages, data) in (2u32..=4, 1u32..=4),
        schedule in schedules(),
        accumulate in 1u32..=5,
        cut in prop::sample::select(vec![StageCut::Work, StageCut::Layers]),
        (strategy, device) in prop::sample::select(vec![("ssgd", 1), ("ssgd", 2), ("zero-1", 1), ("zero-1", 2), ("zero-3", 1), ("zero-3", 2)]),
        algorithm in prop::sample::select(vec!["ring", "direct"]),
        per_node: bool,
        bucket in buckets(),
        concurrent_exchanges in 1u32..=3,
        optimizer in optimizers(),
        fuse: bool,
        (precision, gradients) in numbers(),
        seed: u64,
    ) {
        let job = job(model, with_batch_norm, (stages, data), (schedule, accumulate, 2));
        let mesh = job.mesh.as_ref().unwrap();
        let axes = mesh.outer_first().map(|axis| (axis, mesh.size(axis))).chain((device > 1).then_some((Axis::Device, device)));
        let mesh = Mesh::new(&axes.collect::<Vec<_>>()).unwrap();
        let job = Job {
            strategy: strategy.parse().unwrap(), algorithm: algorithm.parse().unwrap(), cut, bucket, concurrent_exchanges, fuse,
            workers: mesh.ranks(), mesh: Some(mesh), precision, gradients,
            ..job
        };
        let job = if per_node { on_nodes(job) } else { job };
        // Small models do not have enough layers for all cuts.
        prop_assume!(job.stages().is_ok());
        let (distributed, expected) = both(&job, seed, &optimizer);
        assert_equal_bits(&distributed, &expected, &format!("{job:?}"));
    }
}

/// With one rank per stage nothing is summed between ranks: weights, momentum, running statistics, losses and
/// evaluations are those of one rank, whatever the schedule.
#[test]
fn one_rank_per_stage_equals_one_rank() {
    for (model, stages) in [(21, 2), (23, 3), (27, 2), (31, 3)] {
        let alone = Job { accumulate: 6, ..Job::new(Arc::new(random_model(model, true)), 1, 3) };
        let (data, held_out) = Dataset::load("synthetic:120", &alone.model).unwrap();
        let train = |job: &Job| {
            let when =
                Evaluations { held_out: &held_out, last_epochs: 1, recompute_bn: false, target: Target::default() };
            let arenas = Arenas { poison: true, ..Arenas::default() };
            let options =
                RunOptions { steps: 6, optimizer: plain(), evaluations: Some(when), arenas, ..RunOptions::default() };
            let run = run(&job.program().unwrap(), &data, &options).unwrap();
            let losses: Vec<u64> = run.losses.iter().map(|loss| loss.to_bits()).collect();
            (run.weights_sha256, losses, run.evaluations)
        };
        let one = train(&alone);
        assert!(!one.2.is_empty());
        for schedule in ["gpipe", "1f1b", "interleaved:2", "zb-h1"] {
            let mesh = Some(Mesh::new(&[(Axis::Pipeline, stages)]).unwrap());
            let schedule: PipelineSchedule = schedule.parse().unwrap();
            let job = Job { mesh, schedule, workers: stages, ..alone.clone() };
            if job.stages().is_ok() {
                assert_eq!(train(&job), one, "model {model}, {stages} stages, {schedule}");
            }
        }
    }
}

/// The program's own lists are checked, not those that a schedule would have given.
#[test]
fn lists_that_deadlock_or_lack_a_pass_are_refused() {
    let job = job(21, false, (2, 1), ("1f1b".parse().unwrap(), 3, 2));
    let broken = |change: fn(&mut Vec<PipelineStep>)| {
        let mut program = job.program().unwrap();
        for task in &mut program.roles[1].tasks {
            if let Op::Schedule(order) = &mut task.op {
                change(&mut Arc::make_mut(order).steps);
            }
        }
        program.check().unwrap_err().to_string()
    };
    let swapped = broken(|steps| steps.swap(0, 1));
    assert!(swapped.contains("stage 1") && swapped.contains("waits forever"), "{swapped}");
    let shorter = broken(|steps| steps.truncate(5));
    assert!(shorter.contains("is not in the list"), "{shorter}");
    assert!(pipeline::check(&job.schedule.lists(2, 3).unwrap(), job.schedule.passes(), 1, 3).is_ok());
}

/// What pipelines do not support is refused with a cure.
#[test]
fn meshes_that_no_pipeline_supports_are_refused() {
    let refused = |job: Job| job.program().unwrap_err().to_string();
    let base = |schedule: &str| job(21, false, (2, 2), (schedule.parse().unwrap(), 1, 2));
    let mesh = |axes: &[(Axis, u32)]| Some(Mesh::new(axes).unwrap());
    let servers = refused(Job { algorithm: "parameter-server:1:dedicated".parse().unwrap(), ..base("1f1b") });
    assert!(servers.contains("dedicated servers"), "{servers}");
    let micro_batches = refused(Job { accumulate: 3, ..base("interleaved:2") });
    assert!(micro_batches.contains("multiple of 2"), "{micro_batches}");
    let deep = Job { mesh: mesh(&[(Axis::Pipeline, 64)]), workers: 64, ..base("1f1b") };
    assert!(refused(deep).contains("64 stages need 64 layers"));
    let split = Job { strategy: "hybrid:b".parse().unwrap(), ..base("1f1b") };
    assert!(refused(split).contains("has no axis pipeline"));
    let sampling = Job { sampling: "partitioned".parse().unwrap(), ..base("1f1b") };
    assert!(refused(sampling).contains("use one-shuffle or per-node"));
    // Stages are on different nodes, and neither draws samples for the other.
    let apart = |axes: &[(Axis, u32)]| Job {
        sampling: "per-node".parse().unwrap(),
        node_sizes: Some(vec![2, 2]),
        mesh: mesh(axes),
        ..base("1f1b")
    };
    assert!(refused(apart(&[(Axis::Pipeline, 2), (Axis::Data, 2)])).contains("data as the outermost axis"));
    assert_eq!(apart(&[(Axis::Data, 2), (Axis::Pipeline, 2)]).program().unwrap().pools, [1, 1]);
}

/// A stage has memory for its own layers and for the micro-batches in flight: with 1F1B these decrease from stage to
/// stage, with GPipe all are kept, and with ZB-H1 each stage has as many as the first one with 1F1B.
#[test]
fn memory_counts_the_micro_batches_in_flight() {
    let in_flight = |schedule: &str| -> Vec<u32> {
        let job = Job { bucket: Bucket::Layer, ..job(21, false, (3, 1), (schedule.parse().unwrap(), 8, 2)) };
        job.program().unwrap().roles.iter().map(|role| role.micro_batches_in_flight()).collect()
    };
    assert_eq!((in_flight("1f1b"), in_flight("gpipe")), (vec![3, 2, 1], vec![8, 8, 8]));
    assert_eq!(in_flight("zb-h1"), [3, 3, 3]);
}

/// Stages of unequal numbers of blocks, with embedding and loss on stages of their own or not.
#[test]
fn layouts_of_blocks_train_like_one_rank() {
    let small = "llama-3-8b:layers=3,hidden=16,heads=4,key_heads=2,feed_forward=24,vocabulary=19,positions=6";
    let model = Arc::new(lockstep_readers::load_model(small).unwrap());
    let (data, _) = Dataset::load("synthetic:60", &model).unwrap();
    let alone = Job { accumulate: 4, ..Job::new(model, 1, 2) };
    let options = RunOptions { steps: 3, warm_up: 0, optimizer: plain(), ..RunOptions::default() };
    let trained = |job: &Job| run(&job.program().unwrap(), &data, &options).unwrap().weights_sha256;
    let one = trained(&alone);
    for (cut, stages, schedule) in [
        ("Et*3|L", 2, "1f1b"),
        ("E|ttt|L", 3, "zb-h1"),
        ("Ett|tL", 2, "gpipe"),
        ("E|t|t|tL", 2, "interleaved:2"),
        ("blocks", 5, "zb-h1"),
    ] {
        let mesh = Some(Mesh::new(&[(Axis::Pipeline, stages)]).unwrap());
        let (cut, schedule) = (cut.parse().unwrap(), schedule.parse().unwrap());
        let job = Job { mesh, cut, schedule, workers: stages, ..alone.clone() };
        assert_eq!(trained(&job), one, "{} on {stages} stages", job.cut);
    }
}

/// Under ZB-H1 the activations and their gradients that a weight pass reads have a place until that pass, so a stage's arena for a
/// micro-batch is no smaller than under 1F1B.
#[test]
fn what_a_weight_pass_reads_lives_until_it() {
    for (seed, fuse) in [(21, false), (23, true), (31, false)] {
        let program = |schedule: &str| {
            Job { fuse, ..job(seed, true, (2, 1), (schedule.parse().unwrap(), 4, 2)) }.program().unwrap()
        };
        let [plain, apart] = ["1f1b", "zb-h1"].map(program);
        for (role, plain_role) in apart.roles.iter().zip(&plain.roles) {
            let [planned, of_plain] = [(&apart, role), (&plain, plain_role)]
                .map(|(program, role)| Activations::of_role(program, role).planned);
            assert!(planned >= of_plain, "{planned} and {of_plain}");
            let tensors = activations(&apart, role, Dtype::F32);
            for (at, task) in role.tasks.iter().enumerate() {
                let Op::Compute { chain, phase: Phase::BackwardWeight, .. } = task.op else { continue };
                let layers = &apart.chains[chain];
                let lives = |layer: LayerId, content: Content| {
                    let is_it = |tensor: &&PlannedTensor| (tensor.layer, tensor.content) == (layer, content);
                    tensors.iter().find(is_it).is_some_and(|tensor| tensor.first < at && at <= tensor.last)
                };
                assert!(lives(layers[layers.len() - 1], Content::Gradient), "{}", task.name);
                let inputs = apart.model.node(layers[0]).inputs.iter().filter(|id| **id != LayerId(0));
                let needed = Reads::of(&apart.model, layers, Phase::BackwardWeight).input;
                inputs.for_each(|id| assert!(!needed || lives(*id, Content::Output), "{}", task.name));
            }
        }
    }
}

/// Weight passes come in ascending micro-batch, so their sums are those of backward passes that make all gradients: the same bits
/// on all meshes, with layers split too, tied weights, clipping and shared optimizer state.
#[test]
fn delayed_weight_passes_change_no_bit() {
    let model = Arc::new(lockstep_readers::parse_model("m.toml", DECODER).unwrap());
    for (number, (mesh, strategy)) in [
        ("pipeline=2", "ssgd"),
        ("data=2,pipeline=3", "zero-1"),
        ("data=2,pipeline=3", "zero-3"),
        ("data=2,tensor=2,pipeline=2", "megatron"),
        ("pipeline=2,data=2,tensor=2", "megatron:zero-1"),
        ("data=1,tensor=2,pipeline=3", "sequence-parallel"),
    ]
    .into_iter()
    .enumerate()
    {
        let mesh: Mesh = mesh.parse().unwrap();
        let (fuse, clips) = (number % 2 == 0, number > 1);
        let trained = |schedule: &str| {
            let (strategy, schedule) = (strategy.parse().unwrap(), schedule.parse().unwrap());
            let job = Job {
                strategy,
                schedule,
                fuse,
                clips,
                accumulate: 5,
                mesh: Some(mesh.clone()),
                ..Job::new(model.clone(), mesh.ranks(), 2)
            };
            let (data, _) = Dataset::load("synthetic:100", &model).unwrap();
            let optimizer = Optimizer { clip_norm: clips.then_some(0.5), ..plain() };
            let arenas = Arenas { poison: true, ..Arenas::default() };
            let options = RunOptions { steps: 3, warm_up: 0, seed: 7, optimizer, arenas, ..RunOptions::default() };
            run(&job.program().unwrap(), &data, &options).unwrap()
        };
        let (plain, apart) = (trained("1f1b"), trained("zb-h1"));
        let what = format!("{strategy} over {mesh}");
        assert_equal_bits(&apart.parameters, &plain.parameters, &what);
        assert_eq!(apart.losses, plain.losses, "{what}");
    }
}
