//! ZeRO trains like one rank that accumulates, to the bit: with the optimizer's state shared out, and with gradients where others were.

use std::sync::Arc;

use lockstep_exec::{Arenas, RunOptions, data::Dataset, run};
use lockstep_models::memory::{Places, Reuse};
use lockstep_models::{Axis, Bucket, Job, Mesh, Program, random_model};
use lockstep_topology::Bytes;
use proptest::prelude::*;

use crate::equivalence::{STEPS, assert_equal_bits, both, buckets, optimizers, plain};

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    /// A reduce-scatter and an allgather make the allreduce of a ring, and of direct messages: sharing the optimizer's state out
    /// changes no bit, whatever the buckets, and however many parameters a rank updates; nor does it if gradients share places.
    #[test]
    fn shared_optimizer_state_trains_the_bits_of_ssgd(
        model in 0u64..200,
        with_batch_norm: bool,
        (replicas, workers) in prop_oneof![(Just(1u32), 1u32..=8), (2u32..=3, 2u32..=4)],
        batch_per_rank in 2u32..=4,
        accumulate in 1u32..=3,
        bucket in buckets(),
        algorithm in prop::sample::select(vec!["ring", "direct"]),
        chunk in prop_oneof![Just(None), (4u64..600).prop_map(|bytes| Some(Bytes(bytes)))],
        concurrent_exchanges in 1u32..=3,
        strategy in prop::sample::select(vec![
            "ssgd", "zero-1", "zero-2", "zero-3", "zero-3:prefetch=0", "zero-3:no-reshard", "zero-3:prefetch=3",
        ]),
        optimizer in optimizers(),
        fuse: bool,
        pad: bool,
        seed: u64,
    ) {
        let model = Arc::new(random_model(model, with_batch_norm));
        // Stages 2 and 3 neither accumulate nor wait for the whole backward pass.
        let (accumulate, bucket) = match (strategy, bucket) {
            ("ssgd" | "zero-1", bucket) => (accumulate, bucket),
            (_, Bucket::Tensor) => (1, Bucket::Layer),
            (_, bucket) => (1, bucket),
        };
        let ssgd = Job {
            accumulate, bucket, chunk, concurrent_exchanges, fuse, pad, algorithm: algorithm.parse().unwrap(),
            ..Job::new(model, replicas * workers, batch_per_rank)
        };
        // With replicas, parts lie along `device`, and each is added up along `data`; ssgd adds up along both.
        let mesh = Mesh::new(&[(Axis::Data, replicas), (Axis::Device, workers)]).unwrap();
        let mesh = (replicas > 1).then_some(mesh);
        let zero = Job { strategy: strategy.parse().unwrap(), mesh, ..ssgd.clone() };
        let (shared, twin) = both(&zero, seed, &optimizer);
        assert_equal_bits(&shared, &twin, &format!("{zero:?}"));
        // An allreduce in chunks gives every member a part of each chunk, which is added up in another order.
        if chunk.is_none() && replicas == 1 {
            assert_equal_bits(&shared, &both(&ssgd, seed, &optimizer).0, &format!("{zero:?} beside ssgd"));
        }
    }
}

/// Where an arena is smaller than the parameters, buckets do lie where others were, and weights, momentum and losses are those of a run
/// whose gradients all have places of their own, and of stage 1.
#[test]
fn gradients_in_places_of_others_change_no_bit() {
    let mut shared = 0;
    for (seed, fuse) in (40..60).flat_map(|seed| [(seed, false), (seed, true)]) {
        let model = Arc::new(random_model(seed, true));
        let job = |strategy: &str| Job {
            strategy: strategy.parse().unwrap(),
            bucket: Bucket::Layer,
            fuse,
            ..Job::new(model.clone(), 3, 2)
        };
        let (data, _) = Dataset::load("synthetic:40", &model).unwrap();
        let train = |program: &Program, reuse| {
            let arenas = Arenas { reuse, poison: true, ..Arenas::default() };
            let options = RunOptions { steps: STEPS, seed, optimizer: plain(), arenas, ..RunOptions::default() };
            let run = run(program, &data, &options).unwrap();
            (run.state_sha256, run.losses)
        };
        let (one, two) = (job("zero-1").program().unwrap(), job("zero-2").program().unwrap());
        let elements = |reuse| Places::of_gradients(&two, (&two.roles[0], 0), reuse).elements();
        assert!(elements(Reuse::Nothing) as u64 >= model.parameter_elements());
        shared += u32::from(elements(Reuse::Full) < elements(Reuse::Nothing));
        let apart = train(&two, Reuse::Nothing);
        assert_eq!(train(&two, Reuse::Full), apart, "model {seed}, fused: {fuse}");
        assert_eq!(train(&one, Reuse::Full), apart, "model {seed}, fused: {fuse}, stage 1");
    }
    assert!(shared > 10, "{shared} programs of 40 share places");
}
