//! Runs random programs on GPUs: ranks train like one that accumulates, and learners like the published algorithm, to
//! the bit.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use lockstep_data::Dataset;
use lockstep_exec::device::Devices;
use lockstep_exec::{Arenas, Run, RunOptions, run};
use lockstep_models::{Bucket, Job, Precision, Recompute, random_model};
use lockstep_topology::{Algorithm, Bytes};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::reference;
use crate::{gentle, gpus, same, scene, scene_of_several};

const STEPS: u32 = 3;

/// Runs a property on `cases` random cases.
pub(crate) fn property<S: Strategy>(strategy: S, cases: u32, test: impl Fn(S::Value))
where
    S::Value: Debug + Clone,
{
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let found = TestRunner::new(config).run(&strategy, |case| {
        test(case);
        Ok(())
    });
    if let Err(failure) = found {
        panic!("{failure}");
    }
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let names =
        ["ring", "halving-doubling", "binomial-tree", "multi-color:2", "parameter-server:1", "hierarchical:ring"];
    prop::sample::select(names.to_vec()).prop_map(|name| name.parse().expect("an algorithm"))
}

pub(crate) fn buckets() -> impl Strategy<Value = Bucket> {
    let sizes = (1u64..4000).prop_map(|bytes| Bucket::Size(Bytes(bytes)));
    prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), sizes]
}

fn data(job: &Job) -> Dataset {
    let samples = 4 * u64::from(job.workers * job.accumulate.max(4) * job.batch_per_rank);
    Dataset::load(&format!("synthetic:{samples}"), &job.model).expect("samples").0
}

/// A job on GPUs; dead memory is filled with NaN.
pub(crate) fn trained(job: &Job, seed: u64, devices: &Arc<dyn Devices>) -> Run {
    let program = job.program().expect("a program");
    let arenas = Arenas { poison: true, ..Arenas::default() };
    let (devices, stall_limit) = (devices.clone(), Duration::from_secs(120));
    let options = RunOptions {
        steps: STEPS,
        warm_up: 0,
        seed,
        devices,
        optimizer: gentle(),
        stall_limit,
        arenas,
        ..RunOptions::default()
    };
    run(&program, &data(job), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// A job has the bits of its reference, a rank of the same devices that accumulates all micro-batches.
pub(crate) fn trains_as_its_reference(job: &Job, seed: u64, devices: &Arc<dyn Devices>) {
    let distributed = trained(job, seed, devices);
    let program = job.program().expect("a program");
    let expected =
        reference::train_on(&**devices, &program, &data(job), STEPS, seed, &gentle(), &[]).expect("a reference");
    let what = format!("{}, {:?}, {}, {}, {}", job.strategy, job.mesh, job.schedule, job.algorithm, job.bucket);
    same(&distributed.parameters, &expected, &what);
}

fn ranks_accumulate(precision: Precision) {
    let devices = gpus(precision);
    let sizes = (0u64..200, any::<bool>(), 1u32..=4, 2u32..=4, 1u32..=3);
    let cuts = (buckets(), algorithms(), 1u32..=3, any::<(bool, bool)>(), any::<u64>());
    property((sizes, cuts), 24, |((model, norm, workers, batch, accumulate), cut)| {
        let (bucket, algorithm, concurrent_exchanges, (fuse, pad), seed) = cut;
        let model = Arc::new(random_model(model, norm));
        let job =
            Job { accumulate, bucket, algorithm, concurrent_exchanges, fuse, pad, ..Job::new(model, workers, batch) };
        trains_as_its_reference(&job, seed, &devices);
    });
}

#[test]
fn ranks_on_gpus_train_like_one_that_accumulates() {
    let name = "programs::ranks_on_gpus_train_like_one_that_accumulates";
    scene(name, &[("PRETEND_SEED", "3")], || ranks_accumulate(Precision::F32));
}

/// The same in bf16, with channels last.
#[test]
fn ranks_in_bf16_train_like_one_that_accumulates() {
    scene("programs::ranks_in_bf16_train_like_one_that_accumulates", &[("PRETEND_SEED", "4")], || {
        ranks_accumulate(Precision::Bf16);
    });
}

/// Passes that run again draw the same masks and leave running statistics as they are: no bit of the state differs.
#[test]
fn recomputed_passes_change_no_bit() {
    scene("programs::recomputed_passes_change_no_bit", &[("PRETEND_SEED", "12")], || {
        let mut compared = 0;
        for (precision, model, norm) in
            (0..24u64).map(|n| (if n % 3 == 0 { Precision::Bf16 } else { Precision::F32 }, 7 * n, n % 2 == 0))
        {
            let devices = gpus(precision);
            let plain = Job { accumulate: 2, precision, ..Job::new(Arc::new(random_model(model, norm)), 2, 3) };
            let again = Job { recompute: Recompute::Full { every: 2 }, ..plain.clone() };
            // Of some models nothing is dropped.
            if again.program().is_ok() {
                let [plain, again] = [plain, again].map(|job| trained(&job, model, &devices).state_sha256);
                assert_eq!(plain, again, "model {model} in {precision}");
                compared += 1;
            }
        }
        assert!(compared > 6, "{compared}");
    });
}

/// Flattening permutes the elements of an image with channels last, which the ReLU before it still needs for its
/// gradient: these models flatten a ReLU of a convolution.
#[test]
fn flattening_keeps_the_image_for_its_gradient() {
    scene("programs::flattening_keeps_the_image_for_its_gradient", &[("PRETEND_SEED", "9")], || {
        let devices = gpus(Precision::Bf16);
        for model in [96, 120, 122] {
            let job =
                Job { bucket: Bucket::Layer, fuse: false, ..Job::new(Arc::new(random_model(model, false)), 1, 2) };
            let program = job.program().expect("a program");
            let expected =
                reference::train_on(&*devices, &program, &data(&job), STEPS, 0, &gentle(), &[]).expect("a reference");
            same(&trained(&job, 0, &devices).parameters, &expected, &format!("model {model}"));
        }
    });
}

/// As above, with ranks on three GPUs.
#[test]
fn ranks_on_several_gpus_train_like_one_that_accumulates() {
    let settings = [("PRETEND_DEVICES", "3"), ("PRETEND_SEED", "8")];
    scene_of_several("programs::ranks_on_several_gpus_train_like_one_that_accumulates", &settings, || {
        ranks_accumulate(Precision::F32);
    });
}

/// Sharing the optimizer's state and reusing the memory of gradients change no bit either.
#[test]
fn shared_state_and_memory_give_the_bits_of_one_rank() {
    let settings = [("PRETEND_DEVICES", "2"), ("PRETEND_SEED", "6")];
    scene("programs::shared_state_and_memory_give_the_bits_of_one_rank", &settings, || {
        let devices = gpus(Precision::F32);
        let sizes = (0u64..200, any::<bool>(), 2u32..=4, 2u32..=3);
        let cuts = (
            prop::sample::select(vec!["zero-1", "zero-2", "zero-3", "zero-3:no-reshard"]),
            buckets(),
            1u32..=3,
            any::<(bool, bool)>(),
            (1u32..=3, any::<u64>()),
        );
        property(
            (sizes, cuts),
            16,
            |((model, norm, workers, batch), (text, bucket, concurrent_exchanges, (fuse, pad), (accumulate, seed)))| {
                let (strategy, model) = (text.parse().expect("a strategy"), Arc::new(random_model(model, norm)));
                let job = Job {
                    strategy,
                    bucket,
                    concurrent_exchanges,
                    accumulate,
                    fuse,
                    pad,
                    ..Job::new(model, workers, batch)
                };
                trains_as_its_reference(&job, seed, &devices);
            },
        );
    });
}

#[test]
fn learners_on_a_gpu_equal_the_flat_algorithm() {
    scene("programs::learners_on_a_gpu_equal_the_flat_algorithm", &[("PRETEND_SEED", "5")], || {
        let devices = gpus(Precision::F32);
        let sizes = (0u64..200, any::<bool>(), 1u32..=8, 2u32..=3, 1u32..=3);
        let rule = (prop::sample::select(vec!["", ":first-come"]), any::<bool>(), buckets(), any::<u64>());
        property((sizes, rule), 16, |((model, norm, learners, batch, tau), (assignment, momentum, bucket, seed))| {
            let momentum = if momentum { "" } else { ":momentum=0" };
            let text = format!("sma:tau={tau}{momentum}{assignment}");
            let strategy = text.parse().expect("a strategy");
            let model = Arc::new(random_model(model, norm));
            let job = Job { strategy, bucket, ..Job::new(model, learners, batch) };
            let distributed = trained(&job, seed, &devices);
            let program = job.program().expect("a program");
            let claims = &distributed.claims;
            let expected = reference::train_on(&*devices, &program, &data(&job), STEPS, seed, &gentle(), claims)
                .expect("a reference");
            same(&distributed.parameters, &expected, &text);
        });
    });
}
