//! Tests degraded and failed wires: what changes, what does not, and where the traffic of a failed wire goes.

use std::collections::BTreeMap;

use super::fabrics::{cluster, cpu, fabric};
use crate::Time;
use crate::cluster::*;
use proptest::prelude::*;

/// The route between the CPUs of two hosts.
fn route(cluster: &Cluster, from: u32, to: u32) -> Route {
    cluster.route(cpu(cluster, from).id, cpu(cluster, to).id).expect("a way")
}

/// Names of the switches on a way.
fn by(cluster: &Cluster, route: &Route) -> Vec<String> {
    let ends = route.links.iter().map(|link| cluster.vertex(cluster.link(*link).to));
    ends.filter(|vertex| vertex.kind == VertexKind::Switch).map(|vertex| vertex.name.clone()).collect()
}

#[test]
fn a_degraded_wire_is_degraded_in_both_directions_and_no_other_is() {
    let before = cluster(3, 1, &fabric("star", "h*.n0", "")).unwrap();
    let wires = before.wires_between("h1.n0", "f.switch0").unwrap();
    let after = before.degraded(&wires, 0.25, Time::from_nanos(500)).unwrap();
    let changed: Vec<String> = (before.links().iter().zip(after.links()))
        .filter(|(old, new)| old != new)
        .map(|(old, new)| {
            assert_eq!(new.bandwidth.bytes_per_s(), 0.25 * old.bandwidth.bytes_per_s());
            assert_eq!(new.latency, old.latency + Time::from_nanos(500));
            after.wire_name(new.id)
        })
        .collect();
    assert_eq!(changed, ["h1.n0 - f.switch0", "f.switch0 - h1.n0"]);
    assert!(before.degraded(&wires, 0.0, Time::ZERO).is_err_and(|message| message.contains("nothing")));
}

#[test]
fn unknown_names_get_the_nearest_suggestion() {
    let cluster = cluster(3, 1, &fabric("star", "h*.n0", "")).unwrap();
    for (one, other, words) in [
        ("h1.n1", "*", "did you mean h1.n0"),
        ("h9.*", "*", "matches nothing"),
        ("h0.n0", "h1.n0", "no link joins"),
        ("h0.memory", "*", "matches nothing"),
    ] {
        let message = cluster.wires_between(one, other).unwrap_err();
        assert!(message.contains(words), "{one} {other}: {message}");
    }
    // Each host's wire to its CPU and its wire to the switch; either order.
    assert_eq!(cluster.wires_between("h*.n0", "*").unwrap().len(), 6);
    assert_eq!(cluster.wires_between("f.switch0", "h[0-1].n0"), cluster.wires_between("h[0-1].n0", "f.switch0"));
}

#[test]
fn traffic_of_a_failed_uplink_is_spread_over_the_others() {
    // Two leaves of six hosts, three spines. By the destination's number each uplink carries two of six destinations;
    // of the failed one's two, one goes to each of the others, so that these carry three: 2/3 of the bandwidth is left.
    let keys = "down = [6, 2]\nup = [3]\nrouting = \"d-mod-k\"";
    let whole = cluster(12, 1, &fabric("fat-tree", "h*.n0", keys)).unwrap();
    let loads = |cluster: &Cluster| {
        let mut loads: BTreeMap<String, u32> = BTreeMap::new();
        (0..6).for_each(|host| *loads.entry(by(cluster, &route(cluster, host, host + 6))[1].clone()).or_default() += 1);
        loads.into_values().collect::<Vec<u32>>()
    };
    assert_eq!(loads(&whole), [2, 2, 2]);
    let wires = whole.wires_between("f.leaf0", "f.spine1").unwrap();
    let cut = whole.without(&wires).unwrap();
    assert_eq!(loads(&cut), [3, 3]);
    for (from, to) in (0..6).map(|host| (host, host + 6)).chain((0..6).map(|host| (host + 6, host))) {
        let [old, new] = [&whole, &cut].map(|cluster| route(cluster, from, to));
        assert!(!by(&cut, &new).contains(&"f.spine1".to_string()), "{from} {to}");
        assert!(old == new || by(&whole, &old).contains(&"f.spine1".to_string()), "whole ways stay: {from} {to}");
    }
}

#[test]
fn a_partition_is_refused_by_name() {
    let star = cluster(3, 1, &fabric("star", "h*.n0", "")).unwrap();
    let wires = star.wires_between("h2.n0", "f.switch0").unwrap();
    assert_eq!(star.without(&wires).unwrap_err(), "without it h0.cpu and h2.cpu cannot reach each other");
    // With a second NIC on another fabric that one is taken.
    let two = cluster(2, 2, &fabric("rails", "h*.n*", "")).unwrap();
    let wires = two.wires_between("h1.n0", "f.rail0").unwrap();
    let cut = two.without(&wires).unwrap();
    assert_eq!(
        (by(&two, &route(&two, 0, 1)), by(&cut, &route(&cut, 0, 1))),
        (vec!["f.rail0".into()], vec!["f.rail1".into()])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Detours are as short as a search of the graph finds, cross no failed wire, and are connected; everything else
    /// is unchanged.
    #[test]
    fn detours_are_shortest_paths(shape in 0usize..5, seed in 0u64..50, cuts in 1usize..4) {
        let keys = [
            "fat-tree:down = [2, 2, 2]\nup = [2, 2]\nrouting = \"ecmp\"",
            "fat-tree:down = [2, 4]\nup = [3]\nparallel = [2]\nrouting = \"d-mod-k\"",
            "fat-tree:down = [4, 2]\nup = [2]",
            "torus:shape = [4, 2]",
            "torus:shape = [3, 3]",
        ][shape];
        let (kind, keys) = keys.split_once(':').expect("a kind");
        let whole = cluster(8, 1, &fabric(kind, "h*.n0", keys)).unwrap();
        let wires = whole.wires_between("f.*", "f.*").unwrap();
        let failed: Vec<LinkId> = (0..cuts).map(|i| wires[(seed as usize * 7 + i * 5) % wires.len()]).collect();
        let Ok(cut) = whole.without(&failed) else { return Ok(()) };
        for (from, to) in (0..8).flat_map(|from| (0..8).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            let [old, new] = [&whole, &cut].map(|cluster| route(cluster, from, to));
            let gone = |link: &LinkId| failed.contains(link) || failed.contains(&whole.link(*link).reverse);
            prop_assert!(!new.links.iter().any(gone));
            prop_assert!(new.links.windows(2).all(|pair| cut.link(pair[0]).to == cut.link(pair[1]).from));
            if old.links.iter().any(gone) {
                let choice = fabric::Choice { routing: Routing::Lowest, seed: 0, from: DeviceId(0), to: DeviceId(0), flow: 0 };
                let searched = cut.searched(cpu(&cut, from), cpu(&cut, to), &choice).expect("a way");
                prop_assert_eq!(new.links.len(), searched.len(), "{} {}", from, to);
            } else {
                prop_assert_eq!(old, new);
            }
        }
    }
}
