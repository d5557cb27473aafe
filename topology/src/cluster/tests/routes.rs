//! Tests routes: by hand on small clusters, and against a slow reference on random ones.

use super::device_named;
use crate::Time;
use crate::cluster::*;
use proptest::prelude::*;

/// The names that a route passes, from its first device to its last.
fn names(cluster: &Cluster, route: &Route) -> Vec<String> {
    let first = cluster.link(route.links[0]).from;
    let ends = route.links.iter().map(|link| cluster.link(*link).to);
    std::iter::once(first).chain(ends).map(|vertex| cluster.vertex(vertex).name.clone()).collect()
}

fn way(cluster: &Cluster, from: &str, to: &str) -> Vec<String> {
    let [from, to] = [from, to].map(|name| device_named(cluster, name).id);
    names(cluster, &cluster.route(from, to).unwrap())
}

#[test]
fn traffic_between_hosts_crosses_both_buses() {
    let cluster = Cluster::load("ethernet-4").unwrap();
    assert_eq!(
        way(&cluster, "node0.cpu", "node3.cpu"),
        ["node0.cpu", "node0.eth0", "switch", "node3.eth0", "node3.cpu"]
    );
    let route = cluster.route(DeviceId(0), DeviceId(3)).unwrap();
    // Twice 0.5 us of PCIe and twice 12 us of Ethernet.
    assert_eq!(route.latency, Time::from_nanos(25_000));
}

#[test]
fn routes_between_gpus_turn_at_the_host_bridge() {
    let cluster = Cluster::load("ethernet-gpu-8").unwrap();
    assert_eq!(way(&cluster, "node0.gpu0", "node0.gpu3"), ["node0.gpu0", "node0.cpu", "node0.gpu3"]);
    let remote = way(&cluster, "node0.gpu1", "node7.gpu2");
    assert_eq!(remote[1..6], ["node0.cpu", "node0.eth0", "switch", "node7.eth0", "node7.cpu"]);
}

#[test]
fn a_route_to_the_same_device_crosses_its_memory() {
    let cluster = Cluster::load("ethernet-gpu-8").unwrap();
    let itself = cluster.route(DeviceId(0), DeviceId(0)).unwrap();
    let kinds: Vec<LinkKind> = itself.links.iter().map(|link| cluster.link(*link).kind).collect();
    assert_eq!(kinds, [LinkKind::SharedMemory, LinkKind::HostMemory, LinkKind::HostMemory]);
    assert_eq!(names(&cluster, &itself), ["node0.cpu", "node0.cpu", "node0.memory", "node0.cpu"]);
    assert_eq!(cluster.link(itself.links[0]).sharing, Sharing::PerTransfer);
    // Writing and reading are the same memory, so one capacity.
    assert_eq!(cluster.link(itself.links[1]).wire, cluster.link(itself.links[2]).wire);
    let gpu = cluster.route(DeviceId(1), DeviceId(1)).unwrap();
    assert_eq!(gpu.bandwidth.bytes_per_s(), 450e9);
}

/// A file with `hosts` hosts `h0`, … of `gpus` GPUs and two NICs on the CPU, followed by `rest`.
fn file(hosts: u32, gpus: u32, rest: &str) -> String {
    let mut text = format!("name = \"test\"\n[[host]]\nname = \"h\"\ncount = {hosts}\n[host.cpu]\ncores = 1\n");
    text += "flops_per_core = \"1GFLOP/s\"\nmemory_bandwidth = \"1GB/s\"\nmemory = \"1GiB\"\n";
    text += "message_latency = \"1us\"\nmessage_bandwidth = \"1GB/s\"\n";
    if gpus > 0 {
        text += &format!("[[host.gpu]]\nname = \"gpu\"\ncount = {gpus}\nmodel = \"G\"\nmultiprocessors = 1\n");
        text += "peak_flops = \"1TFLOP/s\"\nmemory_bandwidth = \"1GB/s\"\nmemory = \"1GiB\"\n";
        text += &link("host.link", "cpu", "gpu*", "1us");
    }
    text += "[[host.nic]]\nname = \"n\"\ncount = 2\n";
    text + &link("host.link", "cpu", "n*", "1us") + rest
}

fn link(table: &str, one: &str, other: &str, latency: &str) -> String {
    let wire = format!("latency = \"{latency}\"\nbandwidth = \"1GB/s\"\n");
    format!("[[{table}]]\nkind = \"pcie\"\nbetween = [\"{one}\", \"{other}\"]\n{wire}")
}

fn switch(name: &str) -> String {
    format!("[[switch]]\nname = \"{name}\"\n")
}

fn parse(text: &str) -> Cluster {
    Cluster::parse("test.toml", text).unwrap()
}

#[test]
fn routes_prefer_fewest_links_then_latency_then_ids() {
    // Two switches of equal reach: b is faster; then equal: a has the lower id; then a cable: fewer links beat latency.
    let switches = switch("a") + &switch("b");
    let through = |latency: &str| link("link", "h*.n0", "a", "5us") + &link("link", "h*.n1", "b", latency);
    let faster = parse(&file(2, 0, &(switches.clone() + &through("4us"))));
    assert_eq!(way(&faster, "h0.cpu", "h1.cpu")[2], "b");
    let equal = parse(&file(2, 0, &(switches.clone() + &through("5us"))));
    assert_eq!(way(&equal, "h0.cpu", "h1.cpu")[2], "a");
    let cable = parse(&file(2, 0, &(switches + &through("5us") + &link("link", "h0.n1", "h1.n1", "1ms"))));
    assert_eq!(way(&cable, "h0.cpu", "h1.cpu"), ["h0.cpu", "h0.n1", "h1.n1", "h1.cpu"]);
}

#[test]
fn gpus_and_other_hosts_forward_nothing() {
    // A chain of GPUs: neighbours are one link apart, the ends go over the CPU although the chain is as long.
    let chain = link("host.link", "gpu0", "gpu1", "1ns") + &link("host.link", "gpu1", "gpu2", "1ns");
    let cluster = parse(&file(1, 3, &chain));
    assert_eq!(way(&cluster, "h0.gpu0", "h0.gpu1"), ["h0.gpu0", "h0.gpu1"]);
    assert_eq!(way(&cluster, "h0.gpu0", "h0.gpu2"), ["h0.gpu0", "h0.cpu", "h0.gpu2"]);
    // Three hosts in a row of cables: the middle one does not route.
    let row = link("link", "h0.n0", "h1.n0", "1us") + &link("link", "h1.n1", "h2.n0", "1us");
    let cluster = parse(&file(3, 0, &row));
    assert_eq!(way(&cluster, "h1.cpu", "h2.cpu").len(), 4);
    let error = cluster.route(DeviceId(0), DeviceId(2)).unwrap_err().to_string();
    assert!(error.starts_with("test: h0.cpu to h2.cpu: cannot be reached; add a [[link]]"), "{error}");
    let error = cluster.route(DeviceId(0), DeviceId(7)).unwrap_err().to_string();
    assert_eq!(error, "test: device 7: no such device; there are 3, counted from 0");
}

#[test]
fn half_duplex_directions_share_one_wire() {
    let half = link("link", "h0.cpu", "h1.cpu", "1us") + "duplex = \"half\"\n";
    let cluster = parse(&file(2, 0, &half));
    let there = cluster.route(DeviceId(0), DeviceId(1)).unwrap().links[0];
    let back = cluster.link(there).reverse;
    assert_ne!(there, back);
    assert_eq!(cluster.link(there).wire, cluster.link(back).wire);
    let full = parse(&file(2, 0, &link("link", "h0.cpu", "h1.cpu", "1us")));
    assert_eq!(full.wires(), cluster.wires() + 1);
    assert!(full.links().iter().all(|link| link.wire.0 < full.wires()));
}

#[test]
fn ranges_join_the_devices_that_they_name() {
    // Hosts 0 to 4 on one switch, 5 to 11 on the other: seven wires there, and h1 is not among them although h1x is.
    let switches = switch("a") + &switch("b");
    let leaves = link("link", "h[0-4].n0", "a", "1us") + &link("link", "h[5-11].n*", "b", "1us");
    let cluster = parse(&file(12, 0, &(switches + &leaves + &link("link", "a", "b", "1us"))));
    let wires: Vec<&str> = cluster.describe()[2].rows.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(wires, ["24", "5", "14", "1"]);
    let switches = |from: &str, to: &str| way(&cluster, from, to)[2..].iter().filter(|name| name.len() == 1).count();
    assert_eq!((switches("h0.cpu", "h1.cpu"), switches("h5.cpu", "h11.cpu"), switches("h1.cpu", "h11.cpu")), (1, 1, 2));
}

#[test]
fn a_thousand_hosts_are_routed_quickly() {
    let cluster = parse(&file(1000, 0, &(switch("s") + &link("link", "h*.n0", "s", "1us"))));
    for from in 0..1000 {
        let route = cluster.route(DeviceId(from), DeviceId((from + 1) % 1000)).unwrap();
        assert_eq!(route.links.len(), 4);
    }
}

/// Fewest links, then least latency, from `from` to every vertex: relaxed until nothing changes.
fn slow_reference(cluster: &Cluster, from: &Device, to: &Device) -> Option<(usize, Time)> {
    let mut best: Vec<Option<(usize, Time)>> = vec![None; cluster.graph().node_count()];
    best[from.vertex.0 as usize] = Some((0, Time::ZERO));
    let passes = |id: VertexId| {
        let vertex = cluster.vertex(id);
        let at_an_end = vertex.host == Some(from.host) || vertex.host == Some(to.host);
        id == from.vertex
            || vertex.kind == VertexKind::Switch
            || (at_an_end && matches!(vertex.kind, VertexKind::Nic | VertexKind::Cpu(_)))
    };
    for _ in 0..best.len() {
        for link in cluster.links().iter().filter(|link| passes(link.from)) {
            let Some((links, latency)) = best[link.from.0 as usize] else { continue };
            let offer = (links + 1, latency + link.latency);
            let known = &mut best[link.to.0 as usize];
            *known = Some(known.map_or(offer, |known| known.min(offer)));
        }
    }
    best[to.vertex.0 as usize]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Routes between random hosts and switches are connected, have the right ends, are as short as the reference's, and
    /// use the same wires back.
    #[test]
    fn routes_are_shortest(
        (hosts, gpus, switches) in (1u32..4, 0u32..3, 1u32..5),
        wires in prop::collection::vec((0u32..4, 0u32..2, 0u32..5, 1u32..4), 0..9),
        trunks in prop::collection::vec((0u32..5, 0u32..5, 1u32..4), 0..7),
    ) {
        let mut rest: String = (0..switches).map(|i| switch(&format!("s{i}"))).collect();
        // Everything is connected at least through s0, so that the file is accepted.
        rest += &link("link", "h*.n0", "s0", "3us");
        if switches > 1 {
            rest += &link("link", "s0", "s[1-9]", "3us");
        }
        for (host, nic, at, latency) in wires {
            let (host, at) = (host % hosts, at % switches);
            rest += &link("link", &format!("h{host}.n{nic}"), &format!("s{at}"), &format!("{latency}us"));
        }
        for (one, other, latency) in trunks.iter().filter(|(one, other, _)| one % switches != other % switches) {
            let (one, other) = (one % switches, other % switches);
            rest += &link("link", &format!("s{one}"), &format!("s{other}"), &format!("{latency}us"));
        }
        let cluster = parse(&file(hosts, gpus, &rest));
        for from in cluster.devices() {
            for to in cluster.devices().iter().filter(|to| to.id != from.id) {
                let route = cluster.route(from.id, to.id).unwrap();
                let links: Vec<&Link> = route.links.iter().map(|link| cluster.link(*link)).collect();
                prop_assert_eq!((links[0].from, links[links.len() - 1].to), (from.vertex, to.vertex));
                prop_assert!(links.windows(2).all(|pair| pair[0].to == pair[1].from));
                prop_assert_eq!(slow_reference(&cluster, from, to), Some((links.len(), route.latency)));
                let back: Vec<LinkId> = links.iter().rev().map(|link| link.reverse).collect();
                prop_assert_eq!(cluster.route(to.id, from.id).unwrap().links, back);
            }
        }
    }
}
