//! Tests padding: exchanges with equal parts, and the padding after their ranges.

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

const STRATEGIES: [&str; 10] = [
    "ssgd",
    "zero-1",
    "zero-2",
    "zero-3",
    "local-sgd:tau=2",
    "sma",
    "sma:reference-models",
    "hybrid:b",
    "hybrid:g=2",
    "model-parallel",
];

/// Jobs of random models, some of which their strategy or their algorithm refuses.
fn jobs() -> impl Strategy<Value = Job> {
    let strategies = proptest::sample::select(STRATEGIES.to_vec());
    let algorithms = proptest::sample::select(Algorithm::all().collect::<Vec<_>>());
    let sizes = (1u64..4000).prop_map(|bytes| Bucket::Size(Bytes(bytes)));
    let buckets = prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Tensor), sizes];
    let chunks = prop_oneof![Just(None), (4u64..600).prop_map(|bytes| Some(Bytes(bytes)))];
    let ranks = (2u32..10, 1u32..10, 1u32..3);
    (0u64..400, ranks, strategies, algorithms, buckets, chunks, any::<bool>()).prop_map(
        |(seed, (workers, first, accumulate), strategy, algorithm, bucket, chunk, fuse)| {
            let strategy = strategy.parse().unwrap();
            let first = first.min(workers);
            let nodes: Vec<u32> = [first, workers - first].into_iter().filter(|ranks| *ranks > 0).collect();
            let model = Arc::new(random_model(seed, true));
            let node_sizes = Some(nodes).filter(|_| algorithm.servers() == 0);
            Job { strategy, accumulate, algorithm, bucket, chunk, fuse, node_sizes, ..Job::new(model, workers, 4) }
        },
    )
}

/// The exchanges of a role with their ranks' first group.
fn exchanges<'a>(program: &'a Program, role: &'a Role) -> impl Iterator<Item = (&'a Exchange, Schedule)> {
    role.exchanges().map(|(_, of)| (of, program.schedule(of, role.ranks.first()).unwrap()))
}

fn elements(range: &Range<u64>) -> u64 {
    range.end - range.start
}

proptest! {
    /// A padded exchange divides into equal parts. The padding has fewer elements than members × lanes. Where the algorithm
    /// treats members alike, all of them send the same number of bytes. Only a tensor that does not end its layer is not
    /// padded.
    #[test]
    fn padded_exchanges_have_equal_parts(job in jobs()) {
        let Ok(program) = job.program() else { return Ok(()) };
        for role in &program.roles {
            for (exchange, schedule) in exchanges(&program, role) {
                let whole = !matches!(exchange.buffer, Buffer::Declared(_)) && job.bucket != Bucket::Tensor;
                let sums = matches!(exchange.collective, Collective::AllReduce | Collective::ReduceScatter);
                prop_assert!(exchange.padded || !(whole && sums), "{exchange:?}");
                let added = schedule.elements() - elements(&exchange.range);
                if !exchange.padded {
                    prop_assert_eq!(added, 0);
                    continue;
                }
                prop_assert_eq!(schedule.padded().elements(), schedule.elements());
                prop_assert!(added < u64::from(schedule.members()) * u64::from(schedule.lanes().max(1)));
                if schedule.symmetry() == (Permutations::Rotations { unit: 1 }) {
                    let sent = |member| (schedule.messages(member), schedule.bytes_sent(member));
                    prop_assert!((1..schedule.members()).all(|member| sent(member) == sent(0)), "{exchange:?}");
                }
            }
        }
    }

    /// Without padding the tasks are the same, and every element keeps its number unless ranks shard the buffer.
    #[test]
    fn padding_changes_only_exchanges(job in jobs()) {
        let Ok(mut program) = job.program() else { return Ok(()) };
        let bare = Job { pad: false, ..job }.program().unwrap();
        for exchange in program.roles.iter_mut().flat_map(|role| &mut role.tasks) {
            if let Op::Exchange(exchange) = &mut exchange.op {
                exchange.padded = false;
            }
        }
        prop_assert_eq!(&program.roles, &bare.roles);
        for role in &bare.roles {
            let places = BufferAddresses::of_role(&bare, (role, role.ranks.first()), Reuse::Nothing);
            let declared = (0..bare.buffers.len()).map(Buffer::Declared);
            let shared = |buffer: &Buffer| {
                let all = 0..bare.elements(*buffer);
                bare.kept_of(role, role.ranks.first(), *buffer) != [all]
            };
            for buffer in declared.filter(|buffer| !shared(buffer)).chain([bare.weights_of_layers(), Buffer::Gradients]) {
                prop_assert_eq!(places.of(buffer), &ElementAddresses::dense(bare.elements(buffer)));
            }
        }
    }

    /// The range of an exchange is followed by the elements that it is rounded up by; none belongs to another range.
    #[test]
    fn the_padding_after_a_range_is_not_shared(job in jobs(), shared: bool) {
        let Ok(program) = job.program() else { return Ok(()) };
        let reuse = if shared { Reuse::Full } else { Reuse::Nothing };
        for (number, role) in program.roles.iter().enumerate() {
            let places = BufferAddresses::of_role(&program, (role, role.ranks.first()), reuse);
            for (exchange, schedule) in exchanges(&program, role) {
                let (buffer, range) = (exchange.buffer, exchange.range.start as usize..exchange.range.end as usize);
                let all = 0..program.elements(buffer) as usize;
                if range.is_empty() || matches!(exchange.collective, Collective::Scatter { .. } | Collective::Gather { .. }) {
                    continue;
                }
                let place = places.place(buffer, &range);
                let end = place.end + (schedule.elements() - elements(&exchange.range)) as usize;
                prop_assert!(end <= places.of(buffer).elements());
                // Buckets that share memory use it in turn.
                if ![Buffer::Gradients, Buffer::Weights].contains(&buffer) || !shared {
                    let beyond = all.filter(|element| !range.contains(element));
                    let at = |element| places.place(buffer, &(element..element + 1)).start;
                    prop_assert!(beyond.map(at).all(|at| !(place.start..end).contains(&at)));
                }
            }
            let kept = program.kept_parameters(role, role.ranks.first());
            let value = |element| if kept.iter().any(|range| range.contains(&element)) { element as f32 } else { 0.0 };
            let values: Vec<f32> = (0..program.elements(Buffer::Parameters)).map(value).collect();
            let parameters = places.of(Buffer::Parameters);
            prop_assert_eq!(parameters.gather(&parameters.spread(&values)), values);
            // Memory includes padding.
            let memory = Memory::of_role(&program, number, 1).unwrap();
            let full = BufferAddresses::of_role(&program, (role, role.ranks.first()), Reuse::Full);
            let bytes = |buffer| 4 * full.of(buffer).elements() as u64;
            if memory.weights > 0 {
                let statistics = 4 * program.model.statistics_elements();
                let weights = bytes(Buffer::Parameters) + bytes(Buffer::Weights) + statistics;
                prop_assert_eq!((memory.weights, memory.gradients), (weights, bytes(Buffer::Gradients)));
            }
        }
    }

    /// The parts that ranks update are those that a reduce-scatter leaves them, without padding.
    #[test]
    fn own_parts_are_those_of_the_exchange(job in jobs()) {
        let Ok(program) = job.program() else { return Ok(()) };
        for role in &program.roles {
            let updates = role.tasks.iter().filter_map(|task| task.op.update());
            for (range, shared) in updates.map(|of| (&of.range, of.shared)).filter(|of| !of.1.is_empty()) {
                let mut parts = 0;
                for (exchange, schedule) in exchanges(&program, role).filter(|(of, _)| of.range == *range) {
                    parts += 1;
                    let mut covered = range.start;
                    for rank in role.ranks.iter() {
                        let with_data = schedule.members() - exchange.algorithm.servers();
                        let part = exchange.collective.part(schedule.elements(), with_data, rank);
                        let end = |element: u64| (range.start + element).min(range.end);
                        let own = program.own_part(range, shared, rank);
                        prop_assert_eq!(&own, &(end(part.start)..end(part.end)));
                        prop_assert_eq!(own.start, covered);
                        covered = own.end;
                    }
                    prop_assert_eq!(covered, range.end);
                }
                prop_assert!((2..=3).contains(&parts), "a reduce-scatter and an allgather, or two: {parts}");
            }
        }
    }
}
