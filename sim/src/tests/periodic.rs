//! Tests that work between steps takes the times of its closed forms.

use lockstep_models::{Periodic, PeriodicSpan, SetPerNode};

use super::*;
use crate::{ASSUMED_STORAGE_BYTES_PER_S, shuffle_time, simulate_periodic};

/// Without running statistics.
fn model() -> Arc<lockstep_models::Model> {
    Arc::new(lockstep_readers::load_model("lenet").expect("a model"))
}

/// The spans of `work`, and how long it takes.
fn timed(world: &World, kind: Periodic, work: &Program, costs: &Flat) -> (Vec<PeriodicSpan>, f64) {
    let platform = world.platform(costs, NetworkModel::MaxMin);
    let spans =
        simulate_periodic(kind, work, &platform, &SimOptions::default(), &Default::default()).expect("a prediction");
    let end = spans.iter().map(|run| run.span.end).max().expect("a task");
    (spans, end.as_secs_f64())
}

fn close(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-6, "{found}, not {expected}");
}

/// ⌈held out / batch⌉ times all chains forward, on rank 0 alone.
#[test]
fn an_evaluation_is_forward_passes_of_rank_0() {
    let program = program(&Job::new(model(), 3, 8));
    let costs = Flat { forward: 1e-3, ..Flat::default() };
    let (spans, seconds) = timed(&World::star(3), Periodic::Evaluation, &program.evaluation(20, 0).unwrap(), &costs);
    close(seconds, 3.0 * 1e-3 * program.chains.len() as f64);
    assert!(spans.iter().all(|run| run.span.rank == 0));
}

/// Parameters and momentum, at the storage's rate.
#[test]
fn a_checkpoint_is_written_at_the_rate_of_the_storage() {
    let program = program(&Job::new(model(), 3, 8));
    let bytes = 8.0 * program.model.parameter_elements() as f64;
    let (_, seconds) = timed(&World::star(3), Periodic::Checkpoint, &program.checkpoint().unwrap(), &Flat::default());
    close(seconds, bytes / ASSUMED_STORAGE_BYTES_PER_S);
    let text = "name = \"one\"\n[[host]]\nname = \"node\"\nstorage = \"5GB/s\"\n[host.cpu]\ncores = 3\nflops_per_core = \"100GFLOP/s\"\nmemory = \"1GiB\"\n\
                memory_bandwidth = \"10GB/s\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n";
    let fast = World::new(Cluster::parse("one.toml", text).expect("a cluster"), 3, &HostingRule::Single);
    let (_, seconds) = timed(&fast, Periodic::Checkpoint, &program.checkpoint().unwrap(), &Flat::default());
    close(seconds, bytes / 5e9);
}

/// Messages of a shuffle take as long as uncached ones; large shuffles are sent chunk by chunk.
#[test]
fn the_bytes_of_a_shuffle_are_not_cached() {
    let sampling = "partitioned:groups=1:shuffle-every=10".parse().unwrap();
    let mut program = program(&Job { sampling, node_sizes: Some(vec![1; 2]), ..Job::new(model(), 2, 8) });
    let world = World::host(2, 2);
    let took = |program: &Program, cold: Option<f64>| {
        let message = MessageCost { copy: 1e-9, cold, ..MessageCost::default() };
        let costs = Flat { message, ..Flat::default() };
        let work = program.shuffle(4000, (25, Dtype::F32)).unwrap().unwrap();
        let (spans, _) = timed(&world, Periodic::Shuffle, &work, &costs);
        let exchanges = spans.iter().filter(|run| run.span.rank == 0 && run.span.task % 3 == 1);
        exchanges.map(|run| (run.span.end - run.span.start).as_secs_f64()).sum::<f64>()
    };
    // Half of each rank's 2000 samples leave it.
    let bytes = 1000.0 * 25.0 * 4.0;
    close(took(&program, None), 1e-9 * bytes);
    close(took(&program, Some(3e-9)), 3e-9 * bytes);
    program.partition.as_mut().unwrap().chunk = 10_000;
    let work = program.shuffle(4000, (25, Dtype::F32)).unwrap().unwrap();
    assert_eq!(work.roles[0].runs().count(), 3 * 10);
    let (spans, _) = timed(&world, Periodic::Shuffle, &work, &Flat::default());
    assert_eq!(spans.iter().filter(|run| run.span.rank == 1).count(), 3 * 10);
}

/// Long samples are not packed: their shuffle is its exchanges alone, one chunk after the other.
#[test]
fn a_shuffle_of_long_samples_is_its_exchanges() {
    let sampling = "partitioned:groups=1:shuffle-every=10".parse().unwrap();
    let mut program = program(&Job { sampling, node_sizes: Some(vec![1; 2]), ..Job::new(model(), 2, 8) });
    let each = program.partition.as_ref().unwrap().packed_below / 4;
    let costs = Flat { message: MessageCost { copy: 1e-9, ..MessageCost::default() }, ..Flat::default() };
    for chunk in [u64::MAX, 10 * 4 * each] {
        program.partition.as_mut().unwrap().chunk = chunk;
        let work = program.shuffle(200, (each, Dtype::F32)).unwrap().unwrap();
        // Half of each rank's 100 samples leave it.
        assert_eq!(work.roles[0].runs().count(), if chunk == u64::MAX { 1 } else { 5 });
        let (_, seconds) = timed(&World::host(2, 2), Periodic::Shuffle, &work, &costs);
        close(seconds, 1e-9 * 50.0 * each as f64 * 4.0);
    }
}

/// The exchange of a shuffle is the alltoallv of the samples that leave their rank; packing and unpacking are added.
#[test]
fn a_shuffle_is_an_alltoallv_between_two_copies() {
    for hosts in [2u32, 4] {
        let sampling = "partitioned:groups=1:shuffle-every=10".parse().unwrap();
        let node_sizes = Some(vec![1; hosts as usize]);
        let program = program(&Job { sampling, node_sizes, ..Job::new(model(), hosts, 8) });
        let (samples, each) = (4000, 25);
        let work = program.shuffle(samples, (each, Dtype::F32)).unwrap().unwrap();
        let world = World::star(hosts);
        let (spans, _) = timed(&world, Periodic::Shuffle, &work, &Flat::default());
        let exchange = spans.iter().filter(|run| run.span.task == 1).map(|run| run.span.end - run.span.start).max();
        let held = SetPerNode { nodes: hosts, bytes: samples * each * 4 / u64::from(hosts) };
        let costs = Flat::default();
        let platform = world.platform(&costs, NetworkModel::MaxMin);
        let cpu = world.cluster.hosts()[0].devices[0];
        let copied = world
            .cluster
            .route(cpu, cpu)
            .unwrap()
            .bandwidth
            .time_for(held.bytes / u64::from(hosts) * u64::from(hosts - 1));
        let whole = shuffle_time(&platform, held).unwrap();
        close(exchange.unwrap().as_secs_f64(), (whole - Time(2 * copied.0)).as_secs_f64());
        assert_eq!(spans.len(), 3 * hosts as usize);
    }
}
