//! Tests pipelines and meshes of several axes on GPUs: stages, replicas and split layers train like one rank of the
//! same device, to the bit.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::device::Devices;
use lockstep_exec::{RunOptions, run};
use lockstep_models::{Axis, Job, Mesh, PipelineSchedule, Precision, StageCut, random_model};
use proptest::prelude::*;

use crate::programs::{buckets, property, trained, trains_as_its_reference};
use crate::{cpus, gpus, near, same, scene, scene_of_several};

fn schedules() -> impl Strategy<Value = PipelineSchedule> {
    let names = ["gpipe", "1f1b", "interleaved:2", "interleaved:3", "zb-h1"];
    prop::sample::select(names.to_vec()).prop_map(|name| name.parse().expect("a schedule"))
}

fn mesh(axes: &[(Axis, u32)]) -> Mesh {
    let several: Vec<(Axis, u32)> = axes.iter().copied().filter(|(_, size)| *size > 1).collect();
    Mesh::new(&several).expect("a mesh")
}

/// Random pipelines with replicas, whose optimizer state may be shared out.
fn stages_accumulate() {
    let devices = gpus(Precision::F32);
    let sizes = (0u64..300, any::<bool>(), 2u32..=4, 1u32..=2, 1u32..=4);
    let strategies = prop::sample::select(vec![("ssgd", 1), ("ssgd", 2), ("zero-1", 1), ("zero-1", 2)]);
    let cuts = prop::sample::select(vec![StageCut::Work, StageCut::Layers]);
    let lists = (strategies, schedules(), cuts, buckets(), 1u32..=3, any::<(bool, bool)>(), any::<u64>());
    property((sizes, lists), 24, |((model, norm, stages, data, accumulate), list)| {
        let ((strategy, device), schedule, cut, bucket, concurrent_exchanges, (fuse, inner), seed) = list;
        let mut axes = [(Axis::Pipeline, stages), (Axis::Data, data), (Axis::Device, device)];
        axes[..2].rotate_left(inner.into());
        let mesh = mesh(&axes);
        // Micro-batches fill the chunks of interleaved stages.
        let accumulate = if schedule.chunks() > 1 { accumulate * stages } else { accumulate };
        let strategy = strategy.parse().expect("a strategy");
        let job = Job {
            strategy,
            schedule,
            cut,
            bucket,
            accumulate,
            concurrent_exchanges,
            fuse,
            ..Job::new(Arc::new(random_model(model, norm)), mesh.ranks(), 2)
        };
        let job = Job { mesh: Some(mesh), ..job };
        // Small models do not have enough layers for all cuts.
        if job.stages().is_ok() {
            trains_as_its_reference(&job, seed, &devices);
        }
    });
}

#[test]
fn stages_on_gpus_train_like_one_that_accumulates() {
    let name = "stages::stages_on_gpus_train_like_one_that_accumulates";
    scene(name, &[("PRETEND_SEED", "11")], stages_accumulate);
}

/// As above, with ranks on three GPUs.
#[test]
fn stages_on_several_gpus_train_like_one_that_accumulates() {
    let settings = [("PRETEND_DEVICES", "3"), ("PRETEND_SEED", "12")];
    scene_of_several("stages::stages_on_several_gpus_train_like_one_that_accumulates", &settings, stages_accumulate);
}

/// A model in which cutting a chain of layers in two changes no rounding.
const LAYERS: &str = "name = \"net\"\ninput = [2, 8, 8]\nlayer = [
{ kind = \"conv2d\", out_channels = 6, kernel = 3 },
{ kind = \"relu\" },
{ name = \"block\", kind = \"conv2d\", out_channels = 5, kernel = 3 },
{ kind = \"conv2d\", out_channels = 5, kernel = 3, padding = 1 },
{ kind = \"add\", inputs = [\"conv2d3\", \"block\"] },
{ kind = \"relu\" },
{ kind = \"dense\", out_features = 9 },
{ kind = \"tanh\" },
{ kind = \"dense\", out_features = 4 },
{ kind = \"softmax_cross_entropy\" },
]
";

/// The same in bf16, with channels last: weights are rounded and samples transposed for each micro-batch in flight, and
/// images cross stage borders in their layout.
#[test]
fn stages_in_bf16_train_like_one_that_accumulates() {
    scene("stages::stages_in_bf16_train_like_one_that_accumulates", &[("PRETEND_SEED", "13")], || {
        let devices = gpus(Precision::Bf16);
        let model = Arc::new(lockstep_readers::parse_model("net.toml", LAYERS).expect("a model"));
        let sizes = (2u32..=4, 1u32..=2, 1u32..=4, schedules(), buckets());
        let cut = prop::sample::select(vec![StageCut::Work, StageCut::Layers]);
        property((sizes, cut, any::<u64>()), 12, |((stages, data, accumulate, schedule, bucket), cut, seed)| {
            let mesh = mesh(&[(Axis::Pipeline, stages), (Axis::Data, data)]);
            let accumulate = if schedule.chunks() > 1 { accumulate * stages } else { accumulate };
            let job = Job { schedule, cut, bucket, accumulate, ..Job::new(model.clone(), mesh.ranks(), 3) };
            let job = Job { mesh: Some(mesh), ..job };
            if job.stages().is_ok() {
                trains_as_its_reference(&job, seed, &devices);
            }
        });
    });
}

/// Parts along `device` are summed over replicas along `data`.
#[test]
fn replicas_of_shared_state_give_the_bits_of_one_rank() {
    let settings = [("PRETEND_DEVICES", "2"), ("PRETEND_SEED", "14")];
    scene("stages::replicas_of_shared_state_give_the_bits_of_one_rank", &settings, || {
        let devices = gpus(Precision::F32);
        let sizes = (0u64..200, any::<bool>(), 2u32..=3, 2u32..=3, 2u32..=3);
        let strategies = prop::sample::select(vec!["zero-1", "zero-2", "zero-3", "zero-3:no-reshard"]);
        let cuts = (strategies, buckets(), 1u32..=3, any::<(bool, bool)>(), any::<u64>());
        property((sizes, cuts), 16, |((model, norm, replicas, workers, batch), cut)| {
            let (strategy, bucket, concurrent_exchanges, (fuse, pad), seed) = cut;
            let (mesh, model) =
                (mesh(&[(Axis::Data, replicas), (Axis::Device, workers)]), Arc::new(random_model(model, norm)));
            let strategy = strategy.parse().expect("a strategy");
            let job = Job { strategy, bucket, concurrent_exchanges, fuse, pad, ..Job::new(model, mesh.ranks(), batch) };
            trains_as_its_reference(&Job { mesh: Some(mesh), ..job }, seed, &devices);
        });
    });
}

/// Layers split along `tensor` train as on the CPU, to rounding, and reordering the passes changes no bit.
#[test]
fn stages_of_split_layers_train_as_on_the_cpu() {
    let settings = [("PRETEND_DEVICES", "2"), ("PRETEND_SEED", "15")];
    scene("stages::stages_of_split_layers_train_as_on_the_cpu", &settings, || {
        let devices = gpus(Precision::F32);
        let model = Arc::new(lockstep_readers::parse_model("net.toml", LAYERS).expect("a model"));
        let few = [("megatron", 1, 2, true), ("megatron", 2, 1, false), ("model-parallel", 2, 2, true)];
        for (strategy, data, stages, fuse) in few {
            let job = |schedule: &str| {
                let mesh = mesh(&[(Axis::Data, data), (Axis::Pipeline, stages), (Axis::Tensor, 2)]);
                let (strategy, schedule) =
                    (strategy.parse().expect("a strategy"), schedule.parse().expect("a schedule"));
                let job = Job { strategy, schedule, accumulate: 4, fuse, ..Job::new(model.clone(), mesh.ranks(), 2) };
                Job { mesh: Some(mesh), ..job }
            };
            let trained = |schedule: &str, devices: &Arc<dyn Devices>| trained(&job(schedule), 5, devices).parameters;
            let what = |schedule: &str| format!("{strategy}, {stages} stages, {schedule}");
            let first = trained("gpipe", &devices);
            near(1e-5, &first, &trained("gpipe", &cpus()), &what("gpipe"));
            same(&trained("1f1b", &devices), &first, &what("1f1b"));
            same(&trained("zb-h1", &devices), &first, &what("zb-h1"));
            if stages > 1 {
                let schedule = "interleaved:2";
                near(1e-5, &trained(schedule, &devices), &trained(schedule, &cpus()), &what(schedule));
            }
        }
    });
}

/// Once lists have been captured, passes of micro-batches in flight launch graphs. Their commands differ by the tensors
/// that they name; those of one micro-batch are the same in every step.
#[test]
fn each_micro_batch_in_flight_has_its_graphs() {
    scene("stages::each_micro_batch_in_flight_has_its_graphs", &[("PRETEND_FAULT", "")], || {
        let launches = || {
            // SAFETY: the pretend libraries are loaded and have this function.
            unsafe {
                let library = libloading::Library::new("libpretend.so").expect("the pretend libraries");
                library.get::<unsafe extern "C" fn() -> u64>(b"pretend_graph_launches\0").expect("its function")()
            }
        };
        let devices = gpus(Precision::F32);
        let model = Arc::new(lockstep_readers::parse_model("net.toml", LAYERS).expect("a model"));
        for (accumulate, schedule) in [(4, "1f1b"), (6, "gpipe"), (5, "gpipe")] {
            let (mesh, schedule) = (mesh(&[(Axis::Pipeline, 2)]), schedule.parse().expect("a schedule"));
            let job = Job { schedule, accumulate, ..Job::new(model.clone(), 2, 1) };
            let program = Job { mesh: Some(mesh), ..job }.program().expect("a program");
            let data = Dataset::load("synthetic:160", &program.model).expect("samples").0;
            let of_run = |steps| {
                let before = launches();
                let options = RunOptions { steps, warm_up: 0, devices: devices.clone(), ..RunOptions::default() };
                run(&program, &data, &options).expect("a run");
                launches() - before
            };
            // A pass is a list of its own where it ends with a message; how many there are in a step depends on when
            // messages arrive.
            let (graphs, least) = (of_run(12) - of_run(6), 6 * 2 * u64::from(accumulate));
            assert!(graphs >= least, "{accumulate} micro-batches, {schedule}: {graphs} graphs, {least} at least");
        }
    });
}
