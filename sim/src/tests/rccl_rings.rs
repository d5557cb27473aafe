//! Tests the rings of RCCL on nodes whose GPUs are partly linked, as boards of MI250X are: the narrowest cut of all channels
//! beside a simulation, and what they send over which links.

use std::fmt::Write;

use lockstep_models::Job;
use lockstep_topology::cluster::{Link, LinkKind};
use lockstep_topology::nccl::LinkedRings;
use lockstep_topology::{Algorithm, Cluster, Collective, Group, Hosting, HostingRule, Placement, PlacementRule, Rank};
use proptest::prelude::*;

use super::world::World;
use super::{Flat, mlp, program};
use crate::fold::FoldRule;
use crate::{CollectiveRun, CollectiveTime, Platform, SimOptions, simulate_collective};

/// Hosts of `gpus` MI250X, of which these pairs have a link of their own, in GB/s; all are at the CPU, as is each NIC.
fn board(hosts: u32, gpus: u32, links: &[(u32, u32, u32)], nics: u32) -> Cluster {
    let mut text = format!(
        "name = \"board\"\nprovenance = \"assumed: drawn\"\nnetwork = \"infiniband-hdr\"\n\n[[host]]\nname = \"node\"\n\
         count = {hosts}\n\n[host.cpu]\ncores = 64\nflops_per_core = \"64GFLOP/s\"\nmemory_bandwidth = \"200GB/s\"\n\
         memory = \"512GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n\n[[host.gpu]]\nname = \"gpu\"\n\
         count = {gpus}\nmodel = \"mi250x\"\n\n[[host.nic]]\nname = \"nic\"\ncount = {nics}\n"
    );
    let mut link = |between: String, rate: &str| {
        writeln!(text, "\n[[host.link]]\nbetween = [{between}]\nlatency = \"500ns\"\n{rate}")
            .expect("strings take all");
    };
    link("\"gpu*\", \"cpu\"".to_owned(), "pcie = \"4.0 x16\"");
    link("\"nic*\", \"cpu\"".to_owned(), "pcie = \"4.0 x16\"");
    for (one, other, rate) in links {
        link(format!("\"gpu{one}\", \"gpu{other}\""), &format!("kind = \"host-bridge\"\nbandwidth = \"{rate}GB/s\""));
    }
    Cluster::parse("board.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The rings of all GPUs, and what `algorithm` takes for an allreduce of `bytes` among them.
fn both(cluster: &Cluster, nodes: &[u32], algorithm: &str, bytes: u64) -> (Option<LinkedRings>, CollectiveTime) {
    let ranks = nodes.iter().sum();
    let placement = Placement::new(cluster, ranks, &PlacementRule::Pack).expect("room");
    let hosting = Hosting::new(&placement, &HostingRule::PerRank).expect("processes");
    let devices: Vec<_> = (0..ranks).map(|rank| placement.device(Rank(rank))).collect();
    let algorithm: Algorithm = algorithm.parse().expect("an algorithm");
    let run = CollectiveRun {
        fold: FoldRule::Never,
        ..CollectiveRun::new(Collective::AllReduce, algorithm, Group::nodes(nodes), bytes / 4)
    };
    // Additions and messages cost nothing beside the wires.
    let costs = Flat::default();
    let platform = Platform::new(cluster, &placement, &hosting, &costs);
    (LinkedRings::of(cluster, &devices).expect("ways"), simulate_collective(&run, &platform).expect("a time"))
}

/// Links between some of the pairs.
fn links() -> impl Strategy<Value = (u32, Vec<(u32, u32, u32)>)> {
    (3u32..9).prop_flat_map(|gpus| {
        let pairs: Vec<(u32, u32)> = (0..gpus).flat_map(|one| (one + 1..gpus).map(move |other| (one, other))).collect();
        let rates = prop::collection::vec(prop::sample::select(vec![0u32, 0, 50, 100, 200]), pairs.len());
        let links = rates.prop_map(move |rates| {
            let all = pairs.iter().zip(rates).map(|((one, other), rate)| (*one, *other, rate));
            all.filter(|(.., rate)| *rate > 0).collect()
        });
        (Just(gpus), links)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// By hand: each member sends 2n(p − 1)/p bytes at the rate of the narrowest cut. On one host no order is slower than
    /// that of the members.
    #[test]
    fn rings_on_partly_linked_gpus_take_as_long_as_their_narrowest_cut((gpus, links) in links(), hosts in 1u32..4, nics in 1u32..5) {
        let (cluster, nodes, bytes) = (board(hosts, gpus, &links, nics), vec![gpus; hosts as usize], 1u64 << 30);
        let (rings, simulated) = both(&cluster, &nodes, "library:rccl", bytes);
        let Some(rings) = rings else { return Ok(()) };
        let members = f64::from(gpus * hosts);
        let seconds = 2.0 * (members - 1.0) / members * bytes as f64 / rings.rate;
        let ratio = seconds / simulated.time.as_secs_f64();
        // Between hosts, flows that pass the CPU do not share its wires evenly: the closed form is what they reach at best.
        prop_assert!(ratio < 1.03 && (hosts > 1 || ratio > 0.97), "{} beside {} on {} orders", seconds, simulated.time, rings.orders.len());
        if hosts == 1 {
            let (_, natural) = both(&cluster, &nodes, "ring", bytes);
            prop_assert!(simulated.time.as_secs_f64() <= natural.time.as_secs_f64() * 1.03, "{}", natural.time);
        }
    }
}

/// Eight GPUs in one cycle of links, each with the third one after it: rings in both directions use all links and nothing
/// else. By hand: two channels, each with what a link carries.
#[test]
fn rings_take_links_alone_where_links_make_a_cycle() {
    let cycle: Vec<(u32, u32, u32)> = (0..8).map(|gpu| (gpu, (gpu + 3) % 8, 50)).collect();
    let cluster = board(1, 8, &cycle, 1);
    let (rings, simulated) = both(&cluster, &[8], "library:rccl", 1 << 30);
    let rings = rings.expect("orders");
    let between = |link: &&Link| link.kind == LinkKind::HostBridge;
    let both_ways = 2.0 * cluster.links().iter().find(between).expect("links").payload().bytes_per_s();
    assert!(rings.orders.len().is_multiple_of(2) && (rings.rate / both_ways - 1.0).abs() < 1e-9, "{rings:?}");
    let linked = |from: u32, to: u32| (from + 3) % 8 == to || (to + 3) % 8 == from;
    for (order, _) in &rings.orders {
        let next = order.iter().cycle().skip(1);
        assert!(order.iter().zip(next).all(|(from, to)| linked(*from, *to)), "{order:?}");
    }
    let reached = simulated.busbw / both_ways;
    assert!((0.97..=1.0).contains(&reached), "{reached}");
    // Orders for GPUs that are all linked pass the CPU here.
    let (_, all) = both(&cluster, &[8], "rings:6", 1 << 30);
    assert!(all.time > simulated.time);
    // A program's exchanges take the same rings.
    let world = World::new(cluster, 8, &HostingRule::PerRank);
    let program = program(&Job { algorithm: "library:rccl".parse().expect("known"), ..mlp(8) });
    let predicted = world.predict(&program, &Flat::default(), &SimOptions::default()).expect("runs");
    assert_eq!(predicted.traffic.pairs.len(), 16);
    assert!(predicted.traffic.pairs.keys().all(|(from, to)| linked(*from, *to)), "{:?}", predicted.traffic);
    assert!(!predicted.notes.iter().any(|note| note.contains("library:rccl")), "{:?}", predicted.notes);
    // Two GPUs have one order.
    assert_eq!(both(&board(1, 2, &[(0, 1, 50)], 1), &[2], "library:rccl", 1 << 20).0, None);
}
