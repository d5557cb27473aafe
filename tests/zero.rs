//! Tests that ZeRO trains like one rank that accumulates, to the bit: with the optimizer's state shared out, and with
//! gradients that reuse memory.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::{Arenas, RunOptions, run};
use lockstep_models::memory::{ElementAddresses, Reuse};
use lockstep_models::{Axis, Bucket, Job, Mesh, Program, StageCut, random_model};
use lockstep_topology::Bytes;
use proptest::prelude::*;

use crate::equivalence::{STEPS, assert_equal_bits, both, buckets, numbers, optimizers, plain};
use crate::hybrid::nets;
use crate::stages::schedules;

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    /// A reduce-scatter and an allgather make up the allreduce of a ring, and of direct messages. So sharing the
    /// optimizer's state changes no bit, whatever the buckets, and however many parameters a rank updates; nor do
    /// gradients that share memory.
    #[test]
    fn shared_optimizer_state_gives_the_bits_of_ssgd(
        model in 0u64..200,
        with_batch_norm: bool,
        (replicas, workers) in prop_oneof![(Just(1u32), 1u32..=8), (2u32..=3, 2u32..=4)],
        batch_per_rank in 2u32..=4,
        accumulate in 1u32..=3,
        bucket in buckets(),
        algorithm in prop::sample::select(vec!["ring", "direct", "recursive-halving"]),
        chunk in prop_oneof![Just(None), (4u64..600).prop_map(|bytes| Some(Bytes(bytes)))],
        concurrent_exchanges in 1u32..=3,
        strategy in prop::sample::select(vec![
            "ssgd", "zero-1", "zero-2", "zero-3", "zero-3:prefetch=0", "zero-3:no-reshard", "zero-3:prefetch=3",
        ]),
        optimizer in optimizers(),
        fuse: bool,
        pad: bool,
        (precision, gradients) in numbers(),
        seed: u64,
    ) {
        let model = Arc::new(random_model(model, with_batch_norm));
        // Stages 2 and 3 do not wait for the whole backward pass.
        let waits = matches!(strategy, "ssgd" | "zero-1");
        let bucket = if !waits && bucket == Bucket::Tensor { Bucket::Layer } else { bucket };
        let ssgd = Job {
            accumulate, bucket, chunk, concurrent_exchanges, fuse, pad, algorithm: algorithm.parse().unwrap(),
            precision, gradients, ..Job::new(model, replicas * workers, batch_per_rank)
        };
        // With replicas, parts are along `device`, and each is summed along `data`; ssgd sums along both.
        let mesh = Mesh::new(&[(Axis::Data, replicas), (Axis::Device, workers)]).unwrap();
        let mesh = (replicas > 1).then_some(mesh);
        let zero = Job { strategy: strategy.parse().unwrap(), mesh, ..ssgd.clone() };
        let (shared, expected) = both(&zero, seed, &optimizer);
        assert_equal_bits(&shared, &expected, &format!("{zero:?}"));
        // An allreduce in chunks gives every member a part of each chunk, which is summed in another order; so are
        // micro-batches where ranks keep the sums of their parts alone.
        if chunk.is_none() && replicas == 1 && (strategy == "zero-1" || accumulate == 1) {
            assert_equal_bits(&shared, &both(&ssgd, seed, &optimizer).0, &format!("{zero:?} beside ssgd"));
        }
    }
}

/// Sizes of at most 16 ranks along `data`, `device`, `tensor` and `pipeline`, in any order.
fn meshes() -> impl Strategy<Value = Vec<(Axis, u32)>> {
    let sizes = (1u32..=4, 1u32..=3, 2u32..=4, 1u32..=3).prop_filter("few ranks", |(a, b, c, d)| a * b * c * d <= 16);
    let axes = |(data, device, tensor, stages)| {
        vec![(Axis::Data, data), (Axis::Device, device), (Axis::Tensor, tensor), (Axis::Pipeline, stages)]
    };
    sizes.prop_map(axes).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// With layers split along `tensor`, with stages and without, in every order of the axes: the bits of the reference
    /// that computes every part, and, where nothing is summed over replicas, those of the same strategy without shared
    /// state.
    #[test]
    fn shared_optimizer_state_of_split_layers_changes_no_bit(
        (mut net, norm) in (nets(), any::<bool>()),
        axes in meshes(),
        (accumulate, schedule, cut) in (1u32..=3, schedules(), prop::sample::select(vec![StageCut::Work, StageCut::Layers])),
        strategy in prop::sample::select(vec!["model-parallel", "megatron"]),
        batch_per_rank in 1u32..=3,
        (bucket, concurrent_exchanges) in (buckets(), 1u32..=3),
        algorithm in prop::sample::select(vec!["ring", "direct", "recursive-halving"]),
        optimizer in optimizers(),
        (fuse, pad) in any::<(bool, bool)>(),
        seed: u64,
    ) {
        net.norm = norm;
        let mesh = Mesh::new(&axes).unwrap();
        let stages = mesh.size(Axis::Pipeline);
        let accumulate = if schedule.chunks() > 1 { accumulate.min(2) * stages } else { accumulate };
        let job = Job {
            strategy: format!("{strategy}:zero-1").parse().unwrap(), algorithm: algorithm.parse().unwrap(),
            accumulate, schedule, cut, bucket, concurrent_exchanges, fuse, pad, mesh: Some(mesh.clone()),
            ..Job::new(net.model(), mesh.ranks(), batch_per_rank)
        };
        // Small models do not have enough layers for all cuts.
        prop_assume!(job.program().map_err(|error| error.to_string()).map_or_else(
            |error| !error.contains("layers, and") && !error.contains("read the samples"), |_| true));
        let (shared, expected) = both(&job, seed, &optimizer);
        assert_equal_bits(&shared, &expected, &format!("{job:?}"));
        if mesh.size(Axis::Device) == 1 {
            let mesh = axes.into_iter().filter(|(axis, _)| *axis != Axis::Device).collect::<Vec<_>>();
            let whole = Job { strategy: strategy.parse().unwrap(), mesh: Some(Mesh::new(&mesh).unwrap()), ..job };
            assert_equal_bits(&shared, &both(&whole, seed, &optimizer).0, &format!("{whole:?}, all of the state on each rank"));
        }
    }
}

/// If an arena is smaller than the parameters, buckets do reuse memory, and weights, momentum and losses equal those of
/// a run whose gradients have places of their own, those of stage 3 and, without micro-batches, those of stage 1.
#[test]
fn gradients_that_reuse_memory_change_no_bit() {
    let (mut shared, mut brackets) = (0, 0);
    for (seed, fuse, accumulate) in (40..60).flat_map(|seed| [(seed, false, 1), (seed, true, 1), (seed, true, 3)]) {
        let model = Arc::new(random_model(seed, true));
        let job = |strategy: &str| Job {
            strategy: strategy.parse().unwrap(),
            bucket: Bucket::Layer,
            fuse,
            accumulate,
            ..Job::new(model.clone(), 3, 2)
        };
        let (data, _) = Dataset::load("synthetic:80", &model).unwrap();
        let train = |program: &Program, reuse| {
            let arenas = Arenas { reuse, poison: true, ..Arenas::default() };
            let options = RunOptions { steps: STEPS, seed, optimizer: plain(), arenas, ..RunOptions::default() };
            let run = run(program, &data, &options).unwrap();
            (run.state_sha256, run.losses, run.parameters)
        };
        let (one, two) = (job("zero-1").program().unwrap(), job("zero-2").program().unwrap());
        let elements = |reuse| ElementAddresses::of_gradients(&two, (&two.roles[0], 0), reuse).elements();
        assert!(elements(Reuse::Nothing) as u64 >= model.parameter_elements());
        shared += u32::from(elements(Reuse::Full) < elements(Reuse::Nothing));
        let apart = train(&two, Reuse::Nothing);
        assert_eq!(train(&two, Reuse::Full), apart, "model {seed}, fused: {fuse}");
        assert_eq!(
            train(&job("zero-3").program().unwrap(), Reuse::Full),
            apart,
            "model {seed}, fused: {fuse}, stage 3"
        );
        let one = train(&one, Reuse::Full);
        if accumulate == 1 {
            assert_eq!(one, apart, "model {seed}, fused: {fuse}, stage 1");
        }
        // Sums of micro-batches have their own reduction order.
        brackets += u32::from(one.0 != apart.0);
        let off = one.2.iter().zip(&apart.2).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(off < 1e-4, "model {seed} is off by {off}");
    }
    assert!(shared > 15 && brackets > 15, "{shared} programs of 60 share places, {brackets} have other brackets");
}
