//! Tests that the data-parallel table whose batches pass through a node's first device trains like synchronous SGD, to
//! the bit.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::{Arenas, Run, RunOptions, run};
use lockstep_models::memory::Memory;
use lockstep_models::{Bucket, Job, Model, Optimizer, Sampling, Strategy as Spread, random_model};
use lockstep_topology::Algorithm;
use proptest::prelude::*;

const STEPS: u32 = 3;

/// A small net with dropout after batch norm, and perhaps a second loss inside it.
fn table_strategy() -> Spread {
    "first-device-table".parse().unwrap()
}

fn dropping(classes: u32, side: bool, flat: &str) -> Arc<Model> {
    let side = if side {
        "{ name = \"side_dense\", kind = \"dense\", out_features = CLASSES, inputs = [\"drop\"] },\n\
         { name = \"side\", kind = \"softmax_cross_entropy\", inputs = [\"side_dense\"], loss_weight = 0.3 },\n"
    } else {
        ""
    };
    let layers = format!(
        "{{ name = \"conv\", kind = \"conv2d\", out_channels = 4, kernel = 3 }},\n{{ name = \"norm\", kind = \"batch_norm\" }},\n\
         {{ name = \"relu\", kind = \"relu\" }},\n{{ name = \"drop\", kind = \"dropout\", rate = 0.25 }},\n{side}\
         {{ name = \"dense\", kind = \"dense\", out_features = CLASSES, inputs = [\"drop\"] }},\n\
         {{ name = \"loss\", kind = \"{flat}\" }},\n"
    );
    let text =
        format!("name = \"net\"\ninput = [2, 6, 6]\nlayer = [\n{}]\n", layers.replace("CLASSES", &classes.to_string()));
    Arc::new(lockstep_readers::parse_model("net.toml", &text).unwrap())
}

fn models() -> impl Strategy<Value = Arc<Model>> {
    let loss = prop::sample::select(vec!["softmax_cross_entropy", "logistic_cross_entropy"]);
    let nets = (2u32..7, any::<bool>(), loss).prop_map(|(classes, side, loss)| dropping(classes, side, loss));
    prop_oneof![nets, (0u64..200, any::<bool>()).prop_map(|(seed, norm)| Arc::new(random_model(seed, norm)))]
}

fn train(job: &Job, seed: u64) -> Run {
    let program = job.program().unwrap_or_else(|error| panic!("{job:?}: {error}"));
    let (data, _) = Dataset::load(&format!("synthetic:{}", program.global_batch() * 2), &job.model).unwrap();
    let data = if seed.is_multiple_of(2) { data } else { data.augmented("scale,crop=1,flip".parse().unwrap()) };
    let stall_limit = std::time::Duration::from_secs(20);
    let optimizer = Optimizer { learning_rate: 0.05, weight_decay: 1e-3, ..Optimizer::default() };
    // Memory that the plan considers dead is NaN.
    let arenas = Arenas { poison: true, ..Arenas::default() };
    let options =
        RunOptions { steps: STEPS, warm_up: 0, seed, optimizer, stall_limit, arenas, ..RunOptions::default() };
    run(&program, &data, &options).unwrap_or_else(|error| panic!("{job:?}: {error}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_table_trains_like_ssgd_to_the_bit(
        model in models(),
        nodes in prop::collection::vec(1u32..=4, 1..=3),
        // Kernels interleave sixteen samples where no rows are copied; that changes no bit either.
        batch_per_rank in prop::sample::select(vec![2u32, 3, 16]),
        bucket in prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), Just(Bucket::Tensor)],
        algorithm in prop::sample::select(vec!["ring", "hierarchical:multi-color:2", "halving-doubling"]),
        concurrent_exchanges in 1u32..=3,
        sampling in prop_oneof![Just(Sampling::OneShuffle), Just(Sampling::PerNode)],
        fuse: bool,
        seed: u64,
    ) {
        let algorithm: Algorithm = algorithm.parse().unwrap();
        let ssgd = Job {
            bucket, algorithm, concurrent_exchanges, sampling, fuse, node_sizes: Some(nodes.clone()),
            ..Job::new(model, nodes.iter().sum(), batch_per_rank)
        };
        let table = Job { strategy: table_strategy(), ..ssgd.clone() };
        if table.program().is_err_and(|error| error.message.contains("other layers")) {
            return Ok(()); // a random model whose scores feed other layers
        }
        let (mut plain, mut through_first) = (train(&ssgd, seed), train(&table, seed));
        prop_assert_eq!(&plain.losses, &through_first.losses);
        prop_assert_eq!(&plain.weights_sha256, &through_first.weights_sha256);
        prop_assert_eq!(&plain.state_sha256, &through_first.state_sha256);
        // The resulting model is a whole one.
        let (held_out, _) = Dataset::load("synthetic:12", &ssgd.model).unwrap();
        prop_assert_eq!(plain.evaluate(&held_out).unwrap(), through_first.evaluate(&held_out).unwrap());
    }
}

/// Kumar et al. 2018, §4.3: "more memory usage for the first GPU", by the samples, scores and losses of the other ranks.
#[test]
fn the_first_rank_of_a_node_needs_more_memory() {
    let model = Arc::new(lockstep_readers::load_model("lenet").unwrap());
    let job = Job { strategy: table_strategy(), bucket: Bucket::Whole, ..Job::new(model, 4, 8) };
    let program = job.program().unwrap();
    let of = |role| Memory::of_role(&program, role, 1).unwrap();
    let (first, others) = (of(0), of(1));
    // Three more batches of 28 × 28 samples, and of 10 scores and their gradients, four bytes each.
    assert_eq!(first.buffers - others.buffers, 3 * 8 * (28 * 28 + 2 * 10) * 4);
    assert!(first.activations > others.activations, "{first:?} {others:?}");
    let rest =
        |memory: Memory| Memory { buffers: 0, activations: 0, activations_live: 0, activations_unplanned: 0, ..memory };
    assert_eq!(rest(first), rest(others));
}

#[test]
fn settings_that_the_table_does_not_support_are_refused() {
    let refused = |change: fn(&mut Job)| {
        let mut job = Job::new(Arc::new(lockstep_readers::load_model("lenet").unwrap()), 4, 8);
        job.strategy = table_strategy();
        change(&mut job);
        job.program().unwrap_err().to_string()
    };
    assert!(refused(|job| job.accumulate = 2).contains("a larger batch per rank"));
    assert!(refused(|job| job.algorithm = "parameter-server:1:dedicated".parse().unwrap()).contains("use ring"));
    assert!(refused(|job| job.batch_per_rank = u32::MAX).contains("use a smaller batch"));
}

/// A single device shares with no other.
#[test]
fn with_one_rank_per_node_the_table_is_ssgd() {
    let job =
        Job { node_sizes: Some(vec![1; 3]), ..Job::new(Arc::new(lockstep_readers::load_model("mlp").unwrap()), 3, 8) };
    let table = Job { strategy: table_strategy(), ..job.clone() };
    assert_eq!(table.program().unwrap().roles, job.program().unwrap().roles);
}
