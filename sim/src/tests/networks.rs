//! Compares the two networks and the two solvers with each other.

use lockstep_models::Bucket;

use super::*;
use crate::fluid::tests::SlowSystem;
use crate::{fluid::System, simulate_with};

#[test]
fn the_networks_agree_where_nothing_is_shared() {
    // In a ring on a star each link direction carries one message at a time.
    let costs = Flat { message: MessageCost { sum: 1e-10, ..MessageCost::default() }, ..Flat::default() };
    for p in [2, 3, 5, 8] {
        let world = World::star(p);
        let of = |network| world.allreduce("ring", 1 << 18, 0, &costs, network).time.as_secs_f64();
        assert_close(of(NetworkModel::MaxMin), of(NetworkModel::AlphaBeta), &format!("ring among {p}"));
    }
}

#[test]
fn shared_links_are_slower() {
    // Three workers' messages share the link to the one server: three times its bytes, then back again the same way.
    let world = World::star(4);
    let elements = 1u64 << 20;
    let of = |network, eager_bytes| {
        let costs = Flat { message: MessageCost { eager_bytes, ..MessageCost::default() }, ..Flat::default() };
        world.allreduce("parameter-server:1", elements, elements, &costs, network).time.as_secs_f64()
    };
    let bytes = (elements * 4) as f64 * 1e-9;
    assert_close(of(NetworkModel::MaxMin, u64::MAX), 2.0 * (10e-6 + 3.0 * bytes), "shared");
    assert_close(of(NetworkModel::AlphaBeta, u64::MAX), 2.0 * (10e-6 + bytes), "alone");
    // Large messages wait for their receive, and the server's lane asks for one after the other.
    assert_close(of(NetworkModel::MaxMin, 0), 4.0 * 10e-6 + 6.0 * bytes, "one after the other, then shared");
    assert_close(of(NetworkModel::AlphaBeta, 0), 4.0 * (10e-6 + bytes), "one after the other, then alone");
}

#[test]
fn fast_and_slow_solver_give_one_timeline() {
    let costs = Flat {
        forward: 1e-3,
        backward: 2e-3,
        update: 1e-4,
        load: 0.0,
        memory: 0.4,
        message: MessageCost {
            latency: 5e-6,
            overhead: 1e-6,
            copy: 1e-10,
            sum: 2e-10,
            memory: 0.5,
            eager_bytes: 4096,
            ..MessageCost::default()
        },
    };
    let options = SimOptions::default();
    for (world, workers) in [(World::host(2, 4), 4), (World::star(5), 5), (World::star(8), 8)] {
        for algorithm in ["ring", "halving-doubling", "multi-color:2", "parameter-server:2"] {
            let job = Job { bucket: Bucket::Layer, algorithm: algorithm.parse().expect("known"), ..mlp(workers) };
            let program = program(&job);
            let platform = world.platform(&costs, NetworkModel::MaxMin);
            let fast = simulate_with(System::new(), &program, &platform, options.driver(), &options).expect("runs");
            let slow = simulate_with(SlowSystem::new(), &program, &platform, options.driver(), &options).expect("runs");
            assert_eq!(fast.traffic, slow.traffic);
            assert_eq!(fast.timeline.spans.len(), slow.timeline.spans.len());
            for (a, b) in fast.timeline.spans.iter().zip(&slow.timeline.spans) {
                assert_eq!((a.rank, a.task, a.iteration), (b.rank, b.task, b.iteration), "{algorithm}");
                assert_close(a.end.as_secs_f64(), b.end.as_secs_f64(), algorithm);
            }
        }
    }
}

/// Four workers send n bytes to a server and get n back: 4n in, 4n out, one after the other. Where the two workers of a
/// host share its connection, the first one has its reply after half of the way out, and sends its next n bytes in during
/// the other half.
#[test]
fn ranks_of_a_process_take_turns_on_its_connection() {
    let cluster = Cluster::parse("star.toml", &World::star_file(3, 2, "latency = \"4us\"\nbandwidth = \"10MB/s\""));
    let cluster = cluster.expect("a cluster");
    let costs = Flat { message: MessageCost { eager_bytes: u64::MAX, ..MessageCost::default() }, ..Flat::default() };
    let algorithm = "parameter-server:1:dedicated".parse().expect("known");
    let program = program(&Job { bucket: Bucket::Whole, algorithm, ..mlp(4) });
    let options = SimOptions { warm_up: 4, counted: 8, ..SimOptions::default() };
    let step_s = |hosting| {
        let world = World::new(cluster.clone(), 5, hosting);
        let platform = world.platform(&costs, NetworkModel::MaxMin);
        simulate(&program, &platform, options.driver(), &options).expect("runs").timeline.step_time_s()
    };
    let ratio = step_s(&HostingRule::PerHost) / step_s(&HostingRule::PerRank);
    assert!((ratio / 0.75 - 1.0).abs() < 0.01, "{ratio}");
}

/// `MPI_Allreduce` occupies its rank's thread until it has ended, so nothing is computed meanwhile.
#[test]
fn a_blocking_library_call_hides_nothing() {
    let message = MessageCost { eager_bytes: u64::MAX, ..MessageCost::default() };
    let costs = Flat { forward: 1e-3, backward: 2e-3, update: 1e-4, message, ..Flat::default() };
    let (world, options) = (World::star(4), SimOptions::default());
    let hidden_s = |algorithm: &str| {
        let algorithm = algorithm.parse().expect("known");
        let program = program(&Job { bucket: Bucket::Layer, algorithm, ..mlp(4) });
        let platform = world.platform(&costs, NetworkModel::MaxMin);
        let prediction = simulate(&program, &platform, options.driver(), &options).expect("runs");
        let exchanges = lockstep_models::overlap::exchanges(&program, &prediction.timeline);
        exchanges.iter().map(|exchange| exchange.hidden_s).sum::<f64>()
    };
    assert!(hidden_s("ring") > 0.0);
    assert_eq!(hidden_s("library:mpi"), 0.0);
}
