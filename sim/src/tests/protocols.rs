//! Compares the cost of a message on links with the closed forms of `network/connection.rs`, in both networks.

use lockstep_topology::Dtype;
use lockstep_topology::cluster::{Protocol, Rendezvous, Stack};

use super::*;
use crate::Roofline;

/// Latency of the star's routes: 4 µs up, 6 µs down.
const L: f64 = 10e-6;
const BOTH: [NetworkModel; 2] = [NetworkModel::AlphaBeta, NetworkModel::MaxMin];

/// Hosts of one core on a switch, one 1 GB/s link each with these keys.
fn star(hosts: u32, keys: &str) -> World {
    star_of(hosts, "", keys)
}

/// The same, with keys of the cluster.
fn star_of(hosts: u32, cluster: &str, keys: &str) -> World {
    let text = format!(
        "name = \"star\"\n{cluster}\n[[host]]\nname = \"node\"\ncount = {hosts}\n[host.cpu]\ncores = 1\nflops_per_core = \"1PFLOP/s\"\n\
         memory_bandwidth = \"1000TB/s\"\nmemory = \"16GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n\
         [[switch]]\nname = \"switch\"\n[[link]]\nkind = \"ethernet\"\nbetween = [\"node*.cpu\", \"switch\"]\n\
         latency = \"5us\"\nbandwidth = \"1GB/s\"\n{keys}\n"
    );
    World::new(Cluster::parse("star.toml", &text).expect("a cluster"), hosts, &HostingRule::PerRank)
}

/// Seconds of a collective, whole in one lane.
fn timed(world: &World, collective: Collective, algorithm: &str, bytes: u64, network: NetworkModel) -> f64 {
    let run = CollectiveRun {
        collective,
        algorithm: algorithm.parse().expect("an algorithm"),
        group: Group::flat(world.placement.ranks()),
        elements: bytes / 4,
        dtype: Dtype::F32,
        chunk: bytes / 4,
        window: 0,
        fold: FoldRule::Never,
        padded: false,
        long_way: false,
    };
    simulate_collective(&run, &world.platform(&Roofline, network)).expect("runs").time.as_secs_f64()
}

/// Seconds of one message from node 0 to node 1.
fn message(keys: &str, bytes: u64, network: NetworkModel) -> f64 {
    timed(&star(2, keys), Collective::Broadcast { root: 0 }, "binomial-tree", bytes, network)
}

fn plain(keys: &str) -> String {
    format!("protocol = \"plain\"\n{keys}")
}

#[test]
fn plain_links_are_latency_and_bytes() {
    for network in BOTH {
        for bytes in [4, 1 << 20] {
            assert_close(message(&plain(""), bytes, network), L + bytes as f64 * 1e-9, "plain");
        }
    }
}

#[test]
fn a_stack_on_cores_is_as_fast_as_the_cores() {
    let bytes = 1 << 20;
    for network in BOTH {
        let took = message(&plain("core_bandwidth = \"0.5GB/s\""), bytes, network);
        assert_close(took, L + bytes as f64 / 0.5e9, "one core");
        let took = message(&plain("core_bandwidth = \"4GB/s\""), bytes, network);
        assert_close(took, L + bytes as f64 * 1e-9, "faster than the wire");
    }
    // Two hosts on the one core of a machine, both sending half of the bytes: four ends share it.
    for (core, rate) in [(2.0, 0.5e9), (8.0, 1e9)] {
        let world = star_of(2, "shared_cores = true", &plain(&format!("core_bandwidth = \"{core}GB/s\"")));
        let took = timed(&world, Collective::AllGather, "direct", bytes, NetworkModel::MaxMin);
        assert_close(took, L + bytes as f64 / 2.0 / rate, "both ways");
    }
}

#[test]
fn on_a_stream_directions_alternate_beyond_the_eager_size() {
    let bytes = 2 << 20;
    let flow = bytes as f64 / 2.0 * 1e-9;
    for (keys, expected) in [
        ("rendezvous = \"write\"\neager = \"0B\"", 3.0 * L + flow),
        // The second answer leaves when the first message has arrived.
        ("rendezvous = \"stream\"\neager = \"0B\"", 3.0 * L + flow + 2.0 * L + flow),
        // In pieces, each of them eager.
        ("rendezvous = \"stream\"\neager = \"512KiB\"", L + flow),
    ] {
        for network in BOTH {
            let took = timed(&star(2, &plain(keys)), Collective::AllGather, "direct", bytes, network);
            assert_close(took, expected, keys);
        }
    }
    // A library sends whole messages: two rounds of halves, in turn.
    let keys = plain("rendezvous = \"stream\"\neager = \"512KiB\"");
    let library = timed(&star(2, &keys), Collective::AllReduce, "library:mpi", 2 * bytes, NetworkModel::MaxMin);
    assert!(library > 4.0 * bytes as f64 * 1e-9, "{library}");
    // Its sends block, so a round of halving or doubling begins when both directions of the last one are over.
    let buffer = 32 * bytes;
    for network in BOTH {
        let library = timed(&star(4, &keys), Collective::AllReduce, "library:mpi", buffer, network);
        let turns = 2.0 * (0.5 + 0.25 + 0.25 + 0.5) * buffer as f64 * 1e-9;
        assert!((library / turns - 1.0).abs() < 0.01, "{library} and {turns}");
    }
}

#[test]
fn headers_reduce_the_bandwidth() {
    for network in BOTH {
        for (mtu, share) in [(1500, 1448.0 / 1538.0), (9000, 8948.0 / 9038.0)] {
            let keys = format!("mtu = {mtu}\neager = \"unlimited\"\nsend_overhead = \"0s\"\nreceive_overhead = \"0s\"");
            let expected = L + f64::from(1 << 20) * 1e-9 / share;
            assert_close(message(&keys, 1 << 20, network), expected, &format!("mtu {mtu}"));
        }
    }
}

#[test]
fn every_stack_takes_its_closed_form() {
    for stack in Stack::ALL {
        let Protocol { efficiency, send_overhead, receive_overhead, eager, rendezvous, .. } = stack.defaults();
        let (o, r) = (send_overhead.as_secs_f64(), receive_overhead.as_secs_f64());
        let keys = format!("protocol = \"{stack}\"");
        for network in BOTH {
            for bytes in [4u64, 4096, 1 << 20] {
                let trips = match rendezvous.name() {
                    // Pieces of a stream are eager.
                    _ if bytes <= eager.0 || rendezvous == Rendezvous::Stream => o + L,
                    "none" => o + L,
                    "read" => 2.0 * (o + L) + L,
                    _ => 3.0 * (o + L),
                };
                let expected = trips + bytes as f64 * 1e-9 / efficiency + r;
                assert_close(message(&keys, bytes, network), expected, &format!("{stack}, {bytes} bytes"));
            }
        }
    }
}

#[test]
fn half_the_bandwidth_is_reached_where_overhead_equals_transfer_time() {
    // Hockney's n½ = B·(o + L + r): with 2 + 10 + 3 µs and 1 GB/s, 15,000 bytes.
    let keys = plain("send_overhead = \"2us\"\nreceive_overhead = \"3us\"");
    for network in BOTH {
        assert_close(15_000.0 / message(&keys, 15_000, network), 0.5e9, "half of 1 GB/s");
        assert!(15_000.0 * 10.0 / message(&keys, 150_000, network) > 0.9e9);
    }
}

#[test]
fn a_late_receive_takes_the_rest_of_the_handshake() {
    // In a chain 0 → 1 → 2 the last rank waits long before it is sent to, so each hop pays for the whole of it.
    let keys = plain("eager = \"0B\"\nrendezvous = \"write\"\nsend_overhead = \"1us\"");
    let chain = |keys: &str| {
        let root = Collective::Broadcast { root: 0 };
        timed(&star(3, keys), root, "pipelined-chain", 40_000, NetworkModel::MaxMin)
    };
    assert_close(chain(&keys), 2.0 * (3.0 * (1e-6 + L) + 40e-6), "twice the handshake");
    // A root that receives from two: the second's announcement arrived long ago, so only answer and bytes are left.
    let reduce = timed(&star(3, &keys), Collective::Reduce { root: 0 }, "binomial-tree", 40_000, NetworkModel::MaxMin);
    let sums = 2.0 * 3.0 * 40_000.0 / (1e15 * 0.8);
    assert_close(reduce, (3.0 + 2.0) * (1e-6 + L) + 2.0 * 40e-6 + sums, "the second handshake is half over");
}

#[test]
fn a_nic_sets_messages_up_one_by_one() {
    // Rank 0 sends to 2 and to 1 at once, each 7 µs of its NIC: the second leaves after 14 µs, and has the wire to
    // itself.
    for network in BOTH {
        let keys = plain("send_overhead = \"7us\"");
        let found = timed(&star(3, &keys), Collective::Broadcast { root: 0 }, "binomial-tree", 4_000, network);
        assert_close(found, 2.0 * 7e-6 + L + 4e-6, "two messages of one NIC");
    }
}

#[test]
fn short_messages_leave_a_transmit_queue_one_after_the_other() {
    // Rank 0 sends 10 µs of bytes to 2 and to 1 at once, and 2 passes them on to 3.
    let found = |keys: &str| {
        let world = star(4, &plain(keys));
        timed(&world, Collective::Broadcast { root: 0 }, "binomial-tree", 10_000, NetworkModel::MaxMin)
    };
    assert_close(found(""), 2.0 * L + 20e-6 + 10e-6, "both share the wire");
    assert_close(found("transmit_queue = \"10us\""), 2.0 * L + 2.0 * 10e-6, "the first has the wire to itself");
    assert_close(found("transmit_queue = \"9us\""), 2.0 * L + 20e-6 + 10e-6, "too long to queue");
    // A queue changes nothing where a port has one message at a time.
    for keys in ["", "transmit_queue = \"1s\""] {
        let ring = timed(&star(4, &plain(keys)), Collective::AllGather, "ring", 40_000, NetworkModel::MaxMin);
        assert_close(ring, 3.0 * (L + 10e-6), "a ring");
    }
}

/// A repeated message of n bytes: what the pause of L gains passes at the peak rate and at once, the rest at the
/// bandwidth, as long as the bucket holds that.
#[test]
fn after_a_pause_a_burst_passes_faster() {
    let burst = |bytes: &str| plain(&format!("burst = \"{bytes}\"\nburst_bandwidth = \"2GB/s\""));
    let at_once = |bytes: &str| format!("{}\nburst_at_once = \"{bytes}\"", burst("100kB"));
    let found = |keys: &str, bytes| message(keys, bytes, NetworkModel::MaxMin);
    assert_close(found(&burst("100kB"), 40_000), 40e-6, "the link never rests: n / r");
    assert_close(found(&burst("5000B"), 40_000), L + 35e-6, "a bucket that holds less than the pause gains");
    assert_close(found(&burst("100kB"), 10_000), L + 5e-6, "all at the peak rate");
    assert_close(found(&at_once("4000B"), 10_000), L + 3e-6, "4,000 bytes of it at once");
    assert_close(message(&burst("100kB"), 40_000, NetworkModel::AlphaBeta), L + 40e-6, "closed forms have no bursts");
    // Two messages leave one port, the second with what the first has left.
    let broadcast = |keys: &str| {
        timed(&star(4, &plain(keys)), Collective::Broadcast { root: 0 }, "binomial-tree", 10_000, NetworkModel::MaxMin)
    };
    let slow = broadcast("");
    assert!(broadcast("burst = \"100kB\"\nburst_bandwidth = \"2GB/s\"") < slow, "{slow}");
}

/// The root's link has no bytes to give in advance; it still passes its messages sooner than the slow link, whose bucket
/// is full.
#[test]
fn the_bucket_of_the_slowest_link_decides() {
    let hosts = ["root", "slow", "fast"].map(|name| {
        let (rate, peak, burst) = if name == "slow" { ("1GB/s", "2GB/s", "100kB") } else { ("10GB/s", "20GB/s", "4B") };
        format!(
            "[[host]]\nname = \"{name}\"\ncount = 1\n[host.cpu]\ncores = 1\nflops_per_core = \"1PFLOP/s\"\nmemory = \"16GiB\"\n\
             memory_bandwidth = \"1000TB/s\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n\
             [[link]]\nkind = \"ethernet\"\nbetween = [\"{name}0.cpu\", \"switch\"]\nlatency = \"5us\"\nprotocol = \"plain\"\n\
             bandwidth = \"{rate}\"\nburst_bandwidth = \"{peak}\"\nburst = \"{burst}\"\n"
        )
    });
    let text = format!("name = \"mixed\"\n[[switch]]\nname = \"switch\"\n{}", hosts.concat());
    let world = World::new(Cluster::parse("mixed.toml", &text).expect("a cluster"), 3, &HostingRule::PerRank);
    let took = timed(&world, Collective::Broadcast { root: 0 }, "binomial-tree", 10_000, NetworkModel::MaxMin);
    assert_close(took, L + 5e-6, "the slow link passes all at its peak rate");
}

/// A burst relieves links, not the cores that carry the bytes.
#[test]
fn cores_carry_every_byte_of_a_burst() {
    let keys = "core_bandwidth = \"0.5GB/s\"\nburst = \"1MiB\"\nburst_bandwidth = \"4GB/s\"\nburst_at_once = \"100kB\"";
    assert_close(message(&plain(keys), 4_000, NetworkModel::MaxMin), L + 8e-6, "a core's rate");
}

#[test]
fn a_window_is_a_rate_per_round_trip() {
    for network in BOTH {
        // 5,000 bytes per 20 µs are 0.25 GB/s.
        let found = message(&plain("window = \"5000B\""), 100_000, network);
        assert_close(found, L + 100_000.0 / 0.25e9, "window-bound");
        let found = message(&plain("window = \"20000B\""), 100_000, network);
        assert_close(found, L + 100_000.0 / 1e9, "the window fills the wire");
    }
}

#[test]
fn slow_start_doubles_each_round_trip() {
    // 1,000, 2,000, 4,000, 8,000 and 16,000 bytes in a round trip of 20 µs each; then the wire's 20,000 a round trip.
    for network in BOTH {
        let keys = plain("slow_start = \"1000B\"");
        let ramp = 5.0 * 20e-6;
        assert_close(message(&keys, 131_000, network), L + ramp + 100_000e-9, "ramp and wire");
        assert_close(message(&keys, 7_000, network), L + 3.0 * 20e-6, "three round trips");
        assert_close(message(&keys, 5_000, network), L + 2.0 * 20e-6 + 2_000.0 / 4_000.0 * 20e-6, "two and a half");
        // Where the window stops growing below the wire's rate: 1,000, 2,000, then 4,000 a round trip.
        let keys = plain("slow_start = \"1000B\"\nwindow = \"4000B\"");
        assert_close(message(&keys, 11_000, network), L + 2.0 * 20e-6 + 2.0 * 20e-6, "up to the window");
    }
    // A connection that has grown stays grown: the second lane's message goes at the wire's rate.
    let world = star(2, &plain("slow_start = \"1000B\""));
    let run = CollectiveRun {
        collective: Collective::Broadcast { root: 0 },
        algorithm: "binomial-tree".parse().expect("an algorithm"),
        group: Group::flat(2),
        elements: 2 * 32_000 / 4,
        dtype: Dtype::F32,
        chunk: 32_000 / 4,
        window: 2,
        fold: FoldRule::Never,
        padded: false,
        long_way: false,
    };
    let time = simulate_collective(&run, &world.platform(&Roofline, NetworkModel::MaxMin)).expect("runs").time;
    assert_close(time.as_secs_f64(), L + 5.0 * 20e-6 + (64_000.0 - 31_000.0) * 1e-9, "one ramp for two messages");
}

#[test]
fn too_many_senders_reduce_the_rate_of_a_port() {
    // Three workers push 1 MB each into a server's 1 GB/s at once, then it answers each over its own wire.
    let push = |keys: &str| {
        timed(&star(4, &plain(keys)), Collective::AllReduce, "parameter-server:1", 1_000_000, NetworkModel::MaxMin)
    };
    let sum = 3.0 * 1e6 * 3.0 / (1e15 * 0.8);
    assert_close(push(""), 2.0 * L + 6e-3 + sum, "three at a time through 1 GB/s, both ways");
    assert_close(push("incast_senders = 3\nincast_goodput = 0.25"), 2.0 * L + 6e-3 + sum, "not beyond three");
    assert_close(push("incast_senders = 2\nincast_goodput = 0.25"), 2.0 * L + 12e-3 + 3e-3 + sum, "a quarter of it");
}

#[test]
fn bytes_cost_time_at_the_bottleneck_only() {
    // The route through two more switches adds two latencies and no bytes: there is no store and forward.
    let far = |middle: &str| {
        let text = format!(
            "name = \"row\"\nprotocol = \"plain\"\n[[host]]\nname = \"node\"\ncount = 2\n[host.cpu]\ncores = 1\n\
             flops_per_core = \"1PFLOP/s\"\nmemory_bandwidth = \"1000TB/s\"\nmemory = \"1GiB\"\nmessage_latency = \"1us\"\n\
             message_bandwidth = \"8GB/s\"\n[[switch]]\nname = \"s\"\ncount = 2\n{}{}{}",
            wire("node0.cpu", "s0", "1GB/s"),
            wire("s0", "s1", middle),
            wire("s1", "node1.cpu", "1GB/s"),
        );
        let world = World::new(Cluster::parse("row.toml", &text).expect("a cluster"), 2, &HostingRule::PerRank);
        BOTH.map(|network| timed(&world, Collective::Broadcast { root: 0 }, "binomial-tree", 1_000_000, network))
    };
    far("1GB/s").iter().for_each(|time| assert_close(*time, 3.0 * 5e-6 + 1e-3, "three hops"));
    far("100MB/s").iter().for_each(|time| assert_close(*time, 3.0 * 5e-6 + 10e-3, "a slow hop"));
}

fn wire(one: &str, other: &str, rate: &str) -> String {
    format!(
        "[[link]]\nkind = \"ethernet\"\nbetween = [\"{one}\", \"{other}\"]\nlatency = \"5us\"\nbandwidth = \"{rate}\"\n"
    )
}

#[test]
fn half_duplex_wires_carry_one_direction_at_a_time() {
    // A ring of two sends both ways at once.
    for (keys, factor) in [("", 1.0), ("duplex = \"half\"", 2.0)] {
        let ring = timed(&star(2, &plain(keys)), Collective::AllReduce, "ring", 2_000_000, NetworkModel::MaxMin);
        assert!((ring / (2.0 * (L + factor * 1e-3)) - 1.0).abs() < 1e-4, "{keys}: {ring}");
    }
}
