//! Tests NCCL's model: known channels, choices, closed forms of its times, refusals.

use super::search::search;
use super::*;
use crate::Cluster;
use crate::cluster::{DeviceId, DeviceKind};

/// The first `ranks` GPUs of a cluster, a process for each `per_process` of them.
fn machine(cluster: &str, ranks: usize, per_process: u32) -> NcclMachine {
    let cluster = Cluster::load(cluster).expect(cluster);
    let gpus = cluster.devices().iter().filter(|device| matches!(device.kind, DeviceKind::Gpu(_)));
    let gpus: Vec<DeviceId> = gpus.map(|gpu| gpu.id).take(ranks).collect();
    NcclMachine::of(&cluster, &gpus, per_process).expect("a way between all").expect("GPUs with NVLink")
}

fn ask(machine: &NcclMachine, request: &str, collective: &Collective, bytes: u64) -> NcclAnswer {
    let request: Request = request.parse().expect(request);
    answer(machine, &request, &NcclCall { collective, bytes }).expect("an answer")
}

fn alltoall(ranks: u64, bytes: u64) -> Collective {
    Collective::AllToAllV { counts: vec![bytes / 4 / ranks; (ranks * ranks) as usize].into() }
}

/// Values in NCCL's logs (`graph/search.cc`): channels found, their speed, and how many run.
#[test]
fn the_search_finds_the_channels_of_known_machines() {
    for (cluster, ranks, count, speed, run) in [
        ("dgx-2", 16, 6, 20.0, 12),
        ("dgx-a100", 8, 12, 20.0, 24),
        ("dgx-a100:2", 16, 8, 24.0, 16),
        ("dgx-h100", 8, 12, 30.0, 24),
        ("dgx-h100:2", 16, 8, 45.0, 16),
        ("dgx-b200", 8, 16, 45.0, 32),
    ] {
        let found = search(&machine(cluster, ranks, 1));
        assert_eq!((found.channels.count, found.channels.speed, found.run), (count, speed, run), "{cluster}");
    }
}

#[test]
fn an_nvlink_domain_is_a_node_and_a_part_of_a_host_has_a_part_of_its_nics() {
    let rack = machine("gb200-nvl72", 72, 1);
    assert_eq!((rack.nodes, rack.generation, rack.nics), (1, Generation::Blackwell, 0));
    let two = machine("dgx-h100:4", 32, 8);
    assert_eq!((two.nodes, two.per_node(), two.nics, two.per_process), (4, 8, 8, 8));
    assert_eq!(two.network, Network::Rdma);
}

#[test]
fn small_buffers_use_ll_and_large_ones_the_full_bandwidth() {
    let all = &Collective::AllReduce;
    let a100 = machine("dgx-a100", 8, 1);
    let h100 = machine("dgx-h100", 8, 1);
    let pods = machine("dgx-a100:16", 128, 1);
    for (machine, request, bytes, choice) in [
        (&a100, "", 8 << 10, "Ring/LL, 1 channel"),
        (&a100, "", 4 << 20, "Ring/LL128, 24 channels"),
        (&a100, "", 1 << 30, "Ring/Simple, 24 channels"),
        (&h100, "", 1 << 30, "NVLS/Simple, 16 channels"),
        (&h100, "@2.16", 1 << 30, "Ring/Simple, 24 channels"),
        (&h100, ":ring", 1 << 30, "Ring/Simple, 24 channels"),
        (&h100, ":tree:ll128:8", 1 << 30, "Tree/LL128, 8 channels"),
        (&pods, "@2.12", 8 << 10, "Tree/LL, 2 channels"),
    ] {
        assert_eq!(ask(machine, request, all, bytes).choice.to_string(), choice, "{request} {bytes}");
    }
    assert_eq!(ask(&h100, "", &Collective::AllGather, 1 << 30).choice.method, Method::Ring);
    assert_eq!(ask(&h100, "", &alltoall(8, 1 << 30), 1 << 30).choice.method, Method::Pairs);
}

/// Bus bandwidth of a very large buffer: n(1 + 1/n) S through the switch, 2S(n − 1)/n round the ring.
#[test]
fn large_buffers_reach_the_rate_of_the_bottleneck() {
    let all = &Collective::AllReduce;
    let bus = |machine: &NcclMachine, request: &str| {
        let bytes = 64u64 << 30;
        let seconds = ask(machine, request, all, bytes).seconds;
        bytes as f64 / seconds * 1e-9 * 2.0 * (f64::from(machine.ranks) - 1.0) / f64::from(machine.ranks)
    };
    let near = |one: f64, other: f64| assert!((one / other - 1.0).abs() < 0.01, "{one} beside {other}");
    let h100 = machine("dgx-h100", 8, 1);
    near(bus(&h100, ""), 450.0 * 0.68 * 1.75 / 1.125);
    near(bus(&h100, ":ring"), 450.0 * 0.813);
    // Two nodes: a tree sends S through the NICs, a ring 2S(n − 1)/n.
    let two = machine("dgx-a100:2", 16, 1);
    let nics = two.outward() * 0.98;
    near(bus(&two, ":ring:simple"), nics);
    assert!(bus(&machine("dgx-h100:2", 16, 1), "") > nics, "more than the NICs' rate on two nodes");
}

/// S among 16 GPUs on two nodes: a ring sends 2S·15/16 everywhere, a tree S through a node's NICs, NVLS S(1 +
/// 1/8) by NVLink.
#[test]
fn bytes_on_wires_equal_the_closed_forms() {
    let two = machine("dgx-h100:2", 16, 1);
    let s = (1u64 << 30) as f64;
    for (request, collective, nvlink, nics) in [
        (":ring:simple", Collective::AllReduce, 1.875, 1.875),
        (":ring:simple", Collective::AllGather, 0.9375, 0.9375),
        (":ring:ll", Collective::Broadcast { root: 0 }, 2.0, 2.0),
        (":tree:simple", Collective::AllReduce, 2.0, 1.0),
        (":nvls-tree", Collective::AllReduce, 1.125, 1.0),
        ("", alltoall(16, 1 << 30), 7.0 / 16.0, 8.0 * 8.0 / 16.0),
    ] {
        let carried = ask(&two, request, &collective, 1 << 30).carried;
        assert_eq!((carried.nvlink, 8.0 * carried.nic), (nvlink * s, nics * s), "{request} {collective}");
    }
    assert_eq!(
        ask(&machine("dgx-h100:4", 32, 1), ":tree:simple", &Collective::AllReduce, 1 << 30).carried.nic,
        s / 4.0
    );
}

#[test]
fn time_never_falls_as_a_buffer_grows_a_channel_at_a_time_and_one_process_takes_longer() {
    for (cluster, ranks) in [("dgx-a100", 8), ("dgx-h100:4", 32), ("dgx-b200", 8), ("p4d.24xlarge:2", 16)] {
        let (each, one) = (machine(cluster, ranks, 1), machine(cluster, ranks, 8));
        for collective in [Collective::AllReduce, Collective::AllGather, Collective::Broadcast { root: 0 }] {
            let mut before = 0.0;
            for bytes in (4..36).map(|log| 1u64 << log) {
                let seconds = ask(&each, ":ring:simple", &collective, bytes).seconds;
                assert!(seconds >= before, "{cluster} {bytes}");
                before = seconds;
                assert!(ask(&one, "", &collective, bytes).seconds >= ask(&each, "", &collective, bytes).seconds);
            }
        }
    }
}

#[test]
fn algorithms_that_a_machine_does_not_support_are_refused_with_a_cure() {
    let (a100, h100, efa) = (machine("dgx-a100", 8, 1), machine("dgx-h100", 8, 1), machine("p4d.24xlarge:2", 16, 1));
    let gather = Collective::AllGather;
    for (machine, request, collective, cure) in [
        (&a100, ":nvls", &Collective::AllReduce, "use ring or tree"),
        (&h100, ":nvls-tree", &Collective::AllReduce, "use nvls"),
        (&h100, "@2.16:nvls", &Collective::AllReduce, "2.17"),
        (&h100, ":tree", &gather, "leave tree out"),
        (&h100, ":pat", &gather, "use ring"),
        (&h100, ":pat", &Collective::AllReduce, "leave it out"),
        (&h100, "@2.22:pat", &gather, "use 2.23"),
        (&efa, ":ring:ll128", &Collective::AllReduce, "use ll or simple"),
        (&h100, "@2.20:ring:simple:40", &Collective::AllReduce, "at most 32"),
        (&h100, ":ring", &alltoall(8, 1024), "leave ring out"),
    ] {
        let request: Request = request.parse().unwrap();
        let refusal = answer(machine, &request, &NcclCall { collective, bytes: 1 << 20 }).unwrap_err();
        assert!(refusal.to_string().contains(cure), "{request}: {refusal}");
    }
}

/// One GPU on each of 16 nodes: 8 us, 14/3.5 for each of four levels and 2.8 for each rank, compared with 15 steps of
/// 14 and 8.4 of a ring.
#[test]
fn with_one_gpu_per_node_trees_are_used_between_ll_and_the_full_bandwidth() {
    let cluster = Cluster::load("dgx-h100:16").unwrap();
    let hosts = cluster.hosts().iter().map(|host| host.devices[1]).collect::<Vec<_>>();
    let machine = NcclMachine::of(&cluster, &hosts, 1).unwrap().expect("sixteen H100");
    let taken = |request: &str, bytes: u64| ask(&machine, request, &Collective::AllGather, bytes).choice.method;
    assert_eq!((taken("@2.27", 1 << 10), taken("@2.27", 1 << 30)), (Method::Ring, Method::Ring));
    assert_eq!((taken("@2.27:simple", 1 << 20), taken("@2.22:simple", 1 << 20)), (Method::Pat, Method::Ring));
    let seconds = |request: &str| ask(&machine, request, &Collective::ReduceScatter, 1 << 20).seconds;
    assert!(seconds("@2.27:pat") < seconds("@2.27:ring:simple"));
    assert_eq!(ask(&machine, ":pat", &Collective::AllGather, 1 << 20).carried.nvlink, 0.0);
}

#[test]
fn devices_without_known_figures_have_no_answer() {
    for cluster in ["titanx8-pcie3", "mi300x-8", "dgx1-p100", "k20x8-pcie2"] {
        let cluster = Cluster::load(cluster).unwrap();
        let gpus = cluster.devices().iter().filter(|device| matches!(device.kind, DeviceKind::Gpu(_)));
        let gpus: Vec<DeviceId> = gpus.map(|gpu| gpu.id).take(4).collect();
        assert_eq!(NcclMachine::of(&cluster, &gpus, 1).unwrap(), None, "{}", cluster.name());
    }
}

/// 8 to 1 with switches of 32 ports: 28 NICs share 4 links upwards. The 8 flows of a ring that leave a switch get half
/// of their NICs' rate; those of trees and of pairs, which are more, get less.
#[test]
fn an_oversubscribed_fabric_slows_what_crosses_it() {
    for cluster in [
        "dgx-h100:16@roce-400g",
        "dgx-h100:16@infiniband-ndr",
        "dgx-h100:16@infiniband-ndr-rails",
        "p5.48xlarge:16",
        // 32 NICs on a switch of 32 ports.
        "dgx-h100:4@roce-400g-8to1",
    ] {
        let ranks = if cluster.contains(":4@") { 32 } else { 128 };
        assert_eq!(machine(cluster, ranks, 1).fabric, FabricShare::FULL, "{cluster}");
    }
    let shares = [2, 4, 8].map(|down| machine(&format!("dgx-h100:16@roce-400g-{down}to1"), 128, 1).fabric);
    for pair in shares.windows(2) {
        assert!(pair[1].ring <= pair[0].ring && pair[1].tree < pair[0].tree && pair[1].pairs < pair[0].pairs);
    }
    let [.., FabricShare { ring, tree, pairs }] = shares;
    assert_eq!(ring, 0.5);
    assert!(tree < ring && pairs < ring, "{tree} {pairs}");
    let slow = machine("dgx-h100:16@roce-400g-8to1", 128, 1);
    let free = NcclMachine { fabric: FabricShare::FULL, ..slow };
    for (request, collective, share) in [
        (":ring:simple", &Collective::AllReduce, ring),
        (":tree:simple", &Collective::AllReduce, tree),
        ("", &alltoall(128, 1 << 33), pairs),
    ] {
        let [slow, free] = [slow, free].map(|machine| ask(&machine, request, collective, 1 << 33).seconds);
        assert!(slow > 1.2 * free && slow < 1.02 * free / share, "{request}: {slow} beside {free}");
    }
}
