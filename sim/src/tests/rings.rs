//! Rings that are worked out without events for a while, against the same rings message by message.

use lockstep_models::{Bucket, random_model};
use proptest::prelude::*;

use super::world::tree;
use super::*;

/// Hosts of one core on a switch; hosts of two GPUs on two levels of switches; one host of a core for every second rank.
fn world(which: usize, ranks: u32) -> World {
    match which {
        0 => World::star(ranks),
        1 => World::new(tree(2, ranks.div_ceil(8), 2, 2), ranks, &HostingRule::PerHost),
        _ => World::host(ranks.div_ceil(2), ranks),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Times, traffic and shares are those of events, whatever overlaps.
    #[test]
    fn rings_without_events_are_rings_by_events(
        (seed, ranks, which) in (0u64..1000, 20u32..60, 0usize..3), (accumulate, concurrent, bucket) in (1u32..3, 1u32..3, 0usize..3),
        (forward, backward, memory) in (0.0..1e-3, 0.0..1e-3, 0.0..1.5), (latency, sum, send) in (0.0..1e-5, 0.0..1e-8, 0.0..1e-6),
        (eager_bytes, collective) in (prop_oneof![Just(0u64), Just(64), Just(1 << 20)], 0usize..2),
    ) {
        let mut job = Job::new(Arc::new(random_model(seed, seed % 2 == 0)), ranks, 2);
        job.strategy = ["ssgd", "zero-1"][collective].parse().expect("known");
        (job.accumulate, job.concurrent_exchanges) = (accumulate, concurrent);
        job.bucket = [Bucket::Layer, Bucket::Whole, Bucket::Size(Bytes(2048))][bucket];
        job.algorithm = "ring".parse().expect("known");
        let program = program(&job);
        let message = MessageCost { latency, sum, send, eager_bytes, ..MessageCost::default() };
        let costs = Flat { forward, backward, update: forward, memory, message };
        let world = world(which, ranks);
        let [short, long] = [false, true].map(|long_way| {
            let options = SimOptions { warm_up: 0, counted: 2, long_way, fold: FoldRule::Never, ..SimOptions::default() };
            world.predict(&program, &costs, &options).expect("runs")
        });
        prop_assert_eq!(&short.timeline, &long.timeline);
        prop_assert_eq!(&short.traffic, &long.traffic);
        prop_assert_eq!(short.utilisation.len(), long.utilisation.len());
        for (a, b) in short.utilisation.iter().zip(&long.utilisation) {
            prop_assert!((a.share - b.share).abs() < 1e-9, "{a:?}, {b:?}");
        }
    }
}
