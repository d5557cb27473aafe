//! Tests samples that ranks hold in parts and shuffle among themselves: every run trains like its one-rank reference,
//! which has the whole set and no messages, to the bit; so each sample is where the orders place it.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::{RunOptions, run};
use lockstep_models::{Job, Optimizer, Program, Sampling, random_model};
use proptest::prelude::*;

use crate::reference;

fn options(steps: u32, seed: u64) -> RunOptions<'static> {
    let stall_limit = std::time::Duration::from_secs(20);
    // A rate small enough that no random net diverges within the steps: bits are compared, not progress.
    let optimizer = Optimizer { learning_rate: 0.002, ..Optimizer::default() };
    RunOptions { steps, warm_up: 0, seed, optimizer, stall_limit, ..RunOptions::default() }
}

fn data(program: &Program, samples: u64, seed: u64) -> Dataset {
    let (data, _) = Dataset::load(&format!("synthetic:{samples}"), &program.model).unwrap();
    if seed.is_multiple_of(2) { data } else { data.augmented("crop=1,flip".parse().unwrap()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn partitioned_data_trains_like_the_reference_with_the_whole_set(
        model in 0u64..100,
        nodes in prop::collection::vec(1u32..=3, 1..=4),
        whole: bool,
        shuffle_every in prop::option::of(1u32..4),
        batch_per_rank in 2u32..=4,
        accumulate in 1u32..=2,
        rest in 0u64..5,
        in_place: bool,
        // The first rank of each node holds and takes the samples of all its ranks, as in Torch's table.
        by_first: bool,
        seed: u64,
    ) {
        let groups = if whole { nodes.len() as u32 } else { 1 };
        let sampling = Sampling::Partitioned { groups, shuffle_every };
        let workers = nodes.iter().sum();
        let accumulate = if by_first { 1 } else { accumulate };
        let job = Job {
            accumulate, sampling, node_sizes: Some(nodes),
            ..Job::new(Arc::new(random_model(model, false)), workers, batch_per_rank)
        };
        let mut program = job.program().unwrap();
        let table = Job { strategy: "first-device-table".parse().unwrap(), ..job.clone() };
        let mut spread = match by_first {
            true if table.program().is_err_and(|error| error.message.contains("other layers")) => return Ok(()),
            true => table.program().unwrap(),
            false => program.clone(),
        };
        for program in [&mut program, &mut spread] {
            program.partition.as_mut().unwrap().packed_below = if in_place { 0 } else { u64::MAX };
        }
        // At least a tenth is held out; the rest is two steps and a little.
        let data = data(&program, program.global_batch() * 4 + rest, seed);
        let options = options(7, seed);
        let spread = run(&spread, &data, &options).unwrap();
        let expected = reference::train(&program, &data, 7, seed, &options.optimizer).unwrap();
        prop_assert!(spread.parameters.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{:?}", job);
    }
}

/// A shuffle sends the image of every sample that changes ranks once; a rank that holds the whole set sends nothing.
#[test]
fn a_shuffle_sends_the_samples_that_change_ranks() {
    let bytes = |groups, shuffle_every| {
        let sampling = Sampling::Partitioned { groups, shuffle_every };
        let model = Arc::new(lockstep_readers::load_model("mlp").unwrap());
        let job = Job { sampling, node_sizes: Some(vec![1; 4]), ..Job::new(model, 4, 8) };
        let program = job.program().unwrap();
        let data = data(&program, 400, 2);
        let traffic = run(&program, &data, &options(6, 2)).unwrap().periodic_traffic;
        let apart = traffic.iter().enumerate().flat_map(|(from, row)| {
            row.iter().enumerate().filter(move |(to, _)| from != *to).map(|(_, sent)| sent.bytes)
        });
        (apart.sum::<u64>(), data.len() as u64)
    };
    let ((never, _), (once, samples), (alone, _)) = (bytes(1, None), bytes(1, Some(3)), bytes(4, Some(1)));
    assert_eq!(alone, never);
    // Before step 3 only; each sample stays with a chance of one in four.
    let moved = (once - never) / (28 * 28 * 4);
    assert_eq!((once - never) % (28 * 28 * 4), 0);
    assert!(moved > samples / 2 && moved < samples, "{moved} of {samples}");
}

#[test]
fn strategies_with_other_sampling_are_refused() {
    for strategy in ["sma", "hybrid:b"] {
        let model = Arc::new(lockstep_readers::load_model("lenet").unwrap());
        let sampling = "partitioned".parse().unwrap();
        let job = Job { strategy: strategy.parse().unwrap(), sampling, ..Job::new(model, 4, 8) };
        let refused = job.program().unwrap_err().to_string();
        assert!(refused.contains("use one-shuffle or per-node"), "{strategy}: {refused}");
    }
    let model = Arc::new(lockstep_readers::load_model("mlp").unwrap());
    let job = Job { sampling: "partitioned:groups=2".parse().unwrap(), ..Job::new(model, 3, 8) };
    assert!(job.program().unwrap_err().to_string().contains("do not divide 1 nodes"));
}
