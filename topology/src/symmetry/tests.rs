//! Tests every declared symmetry by applying it and comparing: lanes, routes, wires and devices.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::cluster::{Cluster, LinkId};
use crate::{
    Action, Algorithm, Collective, Group, Hosting, HostingRule, Limits, Placement, PlacementRule, Rank, Schedule,
};

/// A tree of switches over hosts with GPUs behind `bridges` bridges; `widths` are the numbers below each switch, from
/// the leaves up.
fn tree(gpus: u32, bridges: u32, widths: &[u32]) -> String {
    let hosts: u32 = widths.iter().product();
    let mut text = format!(
        r#"
        name = "tree"
        provenance = "assumed: a test"
        [[host]]
        name = "node"
        count = {hosts}
        [host.cpu]
        cores = 4
        flops_per_core = "100GFLOP/s"
        memory_bandwidth = "10GB/s"
        memory = "16GiB"
        message_latency = "1us"
        message_bandwidth = "8GB/s"
        [[host.nic]]
        name = "eth0"
        [[host.link]]
        kind = "pcie"
        between = ["cpu", "eth0"]
        latency = "1us"
        bandwidth = "100GB/s"
        "#
    );
    if gpus > 0 {
        text += &format!(
            r#"
            [[host.gpu]]
            name = "gpu"
            count = {gpus}
            model = "a GPU"
            multiprocessors = 80
            peak_flops = "14TFLOP/s"
            memory_bandwidth = "900GB/s"
            memory = "16GiB"
            [[host.switch]]
            name = "bridge"
            count = {bridges}
            "#
        );
        for bridge in 0..bridges {
            let (first, last) = (bridge * gpus / bridges, (bridge + 1) * gpus / bridges - 1);
            text += &format!(
                r#"
                [[host.link]]
                kind = "pcie"
                between = ["gpu[{first}-{last}]", "bridge{0}"]
                latency = "1us"
                bandwidth = "16GB/s"
                [[host.link]]
                kind = "pcie"
                between = ["bridge{0}", "cpu"]
                latency = "1us"
                bandwidth = "16GB/s"
                "#,
                bridge,
            );
        }
    }
    // Switches of a level are below those of the next; the lowest things are hosts.
    let mut below = ("node".to_owned(), ".eth0", hosts);
    for (level, width) in widths.iter().enumerate() {
        let (name, count) = (format!("s{level}x"), below.2 / width);
        text += &format!("[[switch]]\nname = \"{name}\"\ncount = {count}\n");
        for switch in 0..count {
            let (first, last) = (switch * width, (switch + 1) * width - 1);
            text += &format!(
                "[[link]]\nkind = \"ethernet\"\nbetween = [\"{}[{first}-{last}]{}\", \"{name}{switch}\"]\nlatency = \"{}us\"\nbandwidth = \"{}GB/s\"\n",
                below.0,
                below.1,
                level + 1,
                3 - level.min(2),
            );
        }
        below = (name, "", count);
    }
    text
}

fn place(cluster: &Cluster, ranks: u32) -> (Placement, Hosting) {
    let placement = Placement::new(cluster, ranks, &PlacementRule::Pack).expect("places");
    let hosting = Hosting::new(&placement, &HostingRule::PerRank).expect("a process each");
    (placement, hosting)
}

fn schedules(members: u32, node: u32, elements: u64, chunk: u64) -> Vec<Schedule> {
    let pairs = (members * members) as usize;
    let even: Arc<[u64]> = vec![elements / u64::from(members); pairs].into();
    let more =
        ["hierarchical:halving-doubling", "hierarchical:binomial-tree"].map(|name| name.parse().expect("an algorithm"));
    let group = Group::nodes(&vec![node; (members / node) as usize]);
    let mut schedules = Vec::new();
    for algorithm in Algorithm::all().chain(more) {
        for collective in [
            Collective::AllReduce,
            Collective::ReduceScatter,
            Collective::AllGather,
            Collective::Broadcast { root: 0 },
            Collective::AllToAllV { counts: Arc::clone(&even) },
        ] {
            if algorithm.serves(&collective) && (algorithm.switches() == 0 || algorithm.switches() + 2 <= members) {
                let schedule = Schedule::new(&collective, &algorithm, &group, elements, chunk);
                schedules.push(schedule.expect("a schedule"));
            }
        }
    }
    schedules
}

/// The steps of a lane: peers and lengths, but not which elements.
fn steps(schedule: &Schedule, member: u32, lane: u32) -> Vec<(Action, u32, u64)> {
    schedule.lane(member, lane).map(|step| (step.action, step.peer, step.elements())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every declared permutation maps every lane of a member to that of its image.
    #[test]
    fn lanes_are_as_symmetric_as_declared(
        nodes in 1u32..12, node in 1u32..5, elements in prop_oneof![1u64..3000, Just(0), Just(5760)], chunk in 0u64..900,
    ) {
        let members = nodes * node;
        for schedule in schedules(members, node, elements, chunk) {
            let group = schedule.symmetry();
            prop_assert!(members.is_multiple_of(group.unit(members)));
            for to in 0..group.order(members) {
                for (member, lane) in (0..members).flat_map(|m| (0..schedule.lanes().min(5)).map(move |lane| (m, lane))) {
                    let renamed: Vec<_> = steps(&schedule, member, lane)
                        .into_iter()
                        .map(|(action, peer, length)| (action, group.image(members, to, peer), length))
                        .collect();
                    let image = group.image(members, to, member);
                    prop_assert_eq!(group.back(members, to, image), member);
                    prop_assert_eq!(renamed, steps(&schedule, image, lane), "{} {:?}", schedule.collective(), group);
                }
            }
        }
    }

    /// A pipeline describes what every member does.
    #[test]
    fn pipelines_describe_what_members_do(members in 1u32..9, blocks in 1u64..50, more in 0u64..3) {
        for schedule in schedules(members, 1, blocks * u64::from(members) + more, 0) {
            let Some(phases) = schedule.pipeline() else { continue };
            for member in 0..members {
                let (next, before) = ((member + 1) % members, (member + members - 1) % members);
                let round = |phase: &crate::PipelinePhase, k| {
                    let [sent, taken] = [next, member].map(|taker| phase.taken_in(taker, k, members));
                    [(Action::Send, next, sent), (phase.action, before, taken)]
                };
                let all: Vec<_> =
                    phases.iter().flat_map(|phase| (0..phase.rounds).flat_map(move |k| round(phase, k))).collect();
                prop_assert_eq!(&all, &steps(&schedule, member, 0));
                for phase in &phases {
                    let blocks = (0..phase.rounds).map(|k| phase.taken_in(member, k, members) - phase.elements);
                    prop_assert_eq!(blocks.sum::<u64>(), u64::from(phase.longer_taken_in(member, members)));
                    for (start, end) in (0..=phase.rounds).flat_map(|start| (start..=phase.rounds).map(move |end| (start, end))) {
                        let part = phase.part(start..end, members);
                        let taken: Vec<u64> = (0..part.rounds).map(|k| part.taken_in(member, k, members)).collect();
                        let same: Vec<u64> = (start..end).map(|k| phase.taken_in(member, k, members)).collect();
                        prop_assert_eq!(&taken, &same);
                        let longer = taken.iter().filter(|taken| **taken > part.elements).count();
                        prop_assert_eq!(longer as u32, part.longer_taken_in(member, members));
                    }
                }
            }
        }
    }

    /// A group that is allowed maps routes to routes, link by link, and keeps the properties of links and devices.
    #[test]
    fn routes_are_as_symmetric_as_declared(
        gpus in prop_oneof![Just(0u32), Just(1), Just(2), Just(4)],
        bridged in any::<bool>(),
        widths in prop::collection::vec(1u32..5, 1..4),
        masks in any::<bool>(),
        share in 1u32..3,
    ) {
        let bridges = if bridged && gpus == 4 { 2 } else { 1 };
        let cluster = Cluster::parse("tree.toml", &tree(gpus, bridges, &widths)).expect("a cluster");
        let hosts: u32 = widths.iter().product();
        let ranks = hosts * if gpus == 0 { 4 } else { gpus } / share;
        prop_assume!(ranks > 1);
        let (placement, hosting) = place(&cluster, ranks);
        let group = if masks && ranks.is_power_of_two() {
            Permutations::Masks { unit: 1 }
        } else {
            Permutations::Rotations { unit: 1 }
        };
        let Ok(fold) = Fold::new(group, &cluster, &placement, &hosting) else { return Ok(()) };
        check(&fold, &cluster, &placement);
    }

    /// A symmetry found by following routes holds for the routes between all ranks.
    #[test]
    fn followed_routes_permute_with_the_ranks(
        gpus in prop::sample::select(vec![0u32, 2, 4]),
        bridges in 1u32..3,
        widths in prop::collection::vec(1u32..4, 1..3),
        (blocks, parts, fed) in (1u32..5, 1u32..5, any::<bool>()),
    ) {
        let cluster = Cluster::parse("tree.toml", &tree(gpus, bridges.min(gpus.max(1)), &widths)).expect("a cluster");
        let ranks = widths.iter().product::<u32>() * if gpus == 0 { 4 } else { gpus };
        prop_assume!(ranks.is_multiple_of(blocks) && (ranks / blocks).is_multiple_of(parts) && blocks * parts > 1);
        let (placement, hosting) = place(&cluster, ranks);
        let group = Permutations::Grid { block: ranks / blocks, unit: ranks / blocks / parts };
        let unit = group.unit(ranks);
        let pairs: Vec<_> = (0..unit).flat_map(|from| (0..ranks).map(move |to| (from, to))).collect();
        let Ok(fold) = Fold::along_routes(group, &cluster, (&placement, &hosting), &pairs, fed) else { return Ok(()) };
        check(&fold, &cluster, &placement);
        if fed {
            check_feeds(&fold, &cluster, &placement);
        }
    }

    /// A grid's permutations map each block to each other block in exactly one way, and back.
    #[test]
    fn grids_act_freely(blocks in 1u32..6, parts in 1u32..6, unit in 1u32..4) {
        let (group, ranks) = (Permutations::Grid { block: parts * unit, unit }, blocks * parts * unit);
        prop_assert_eq!((group.unit(ranks), group.order(ranks)), (unit, blocks * parts));
        for member in 0..ranks {
            let mut images: Vec<u32> = (0..group.order(ranks)).map(|to| group.image(ranks, to, member)).collect();
            prop_assert_eq!(images[0], member);
            for (to, image) in (0..).zip(&images) {
                prop_assert_eq!(group.back(ranks, to, *image), member);
            }
            prop_assert!((0..unit).all(|place| group.image(ranks, member / unit, place) % unit == place));
            images.sort_unstable();
            images.dedup();
            prop_assert_eq!(images.len() as u32, group.order(ranks), "member {}", member);
        }
    }
}

/// The same for the routes from hosts' CPUs to their ranks, and for the number of ranks that a CPU feeds.
fn check_feeds(fold: &Fold, cluster: &Cluster, placement: &Placement) {
    let feeder = |rank: u32| cluster.hosts()[placement.host(Rank(rank)).0 as usize].devices[0];
    let fed = |cpu| (0..fold.ranks()).filter(|rank| feeder(*rank) == cpu).count() as u32;
    for rank in 0..fold.ranks() {
        let (own, image) = (rank, fold.representative(rank));
        let folded = |rank: u32| -> Vec<(LinkId, u32)> {
            let route = cluster.route(feeder(rank), placement.device(Rank(rank))).expect("a route");
            route.links.iter().map(|id| fold.link(cluster, *id)).collect()
        };
        if feeder(rank) == placement.device(Rank(rank)) {
            continue;
        }
        assert_eq!(folded(own), folded(image), "to {own} as to {image}");
        let cpu = |rank: u32| fold.device(cluster, &cluster.devices()[feeder(rank).0 as usize]);
        let ((of, crowd), (of_image, _)) = (cpu(own), cpu(image));
        assert_eq!(of, of_image, "{own} and {image}");
        let simulated = (0..fold.representatives()).filter(|rank| cpu(*rank).0 == of).count() as u32;
        assert_eq!(simulated * crowd, fed(feeder(rank)), "ranks of the CPU that feeds {rank}");
    }
}

/// Checks a fold on every pair of ranks.
fn check(fold: &Fold, cluster: &Cluster, placement: &Placement) {
    let unit = fold.representatives();
    let mut users = vec![vec![0u64; cluster.wires() as usize]; unit as usize];
    for from in 0..fold.ranks() {
        for to in 0..fold.ranks() {
            let device = |rank: u32| placement.device(Rank(rank));
            let route = cluster.route(device(from), device(to)).expect("a route");
            let seen = fold.seen_from(from, to);
            let image = cluster.route(device(fold.representative(from)), device(seen)).expect("a route");
            assert_eq!((route.latency, route.bandwidth), (image.latency, image.bandwidth), "{from} to {to}");
            let folded =
                |links: &[LinkId]| -> Vec<(LinkId, u32)> { links.iter().map(|id| fold.link(cluster, *id)).collect() };
            assert_eq!(folded(&route.links), folded(&image.links), "{from} to {to} is {} to {seen}", from % unit);
            for (id, (image, _)) in route.links.iter().zip(folded(&route.links)) {
                let (a, b) = (cluster.link(*id), cluster.link(image));
                assert_eq!((a.kind, a.latency, a.bandwidth, a.sharing), (b.kind, b.latency, b.bandwidth, b.sharing));
                users[(from % unit) as usize][a.wire.0 as usize] += 1;
            }
        }
        let device = &cluster.devices()[placement.device(Rank(from)).0 as usize];
        let (image, crowd) = fold.device(cluster, device);
        assert_eq!(cluster.devices()[image.0 as usize].kind, device.kind);
        // The number of images of one rank that are on one device.
        let images = (0..fold.ranks()).filter(|r| r % unit == from % unit && placement.device(Rank(*r)) == device.id);
        assert_eq!(images.count() as u32, crowd, "rank {from}");
    }
    // All images of a wire carry equally much, and as many images of one use as the fold states.
    for of in users {
        for link in cluster.links() {
            let (image, crowd) = fold.link(cluster, link.id);
            let (own, others) = (of[link.wire.0 as usize], of[cluster.link(image).wire.0 as usize]);
            assert_eq!(own, others, "{:?} and {:?}", link, cluster.link(image));
            assert!(own.is_multiple_of(u64::from(crowd)), "{own} users, {crowd} at once: {link:?}");
        }
    }
}

#[test]
fn levels_of_known_clusters() {
    let sizes = |text: &str, ranks: u32| {
        let cluster = Cluster::parse("tree.toml", text).expect("a cluster");
        Levels::of(&cluster, &place(&cluster, ranks).0).sizes().to_vec()
    };
    assert_eq!(sizes(&tree(4, 1, &[2, 3, 2]), 48), [1, 4, 8, 24, 48]);
    assert_eq!(sizes(&tree(4, 2, &[2, 3]), 24), [1, 2, 4, 8, 24]);
    assert_eq!(sizes(&tree(0, 1, &[3, 2]), 24), [1, 4, 12, 24]);
    // Half of the hosts: three leaves of two; then two leaves and one host of the third.
    assert_eq!(sizes(&tree(4, 1, &[2, 6]), 24), [1, 4, 8, 24]);
    assert_eq!(sizes(&tree(4, 1, &[2, 6]), 20), [0u32; 0]);
}

#[test]
fn presets_fold_or_give_the_reason() {
    for (name, _) in Cluster::presets() {
        let cluster = Cluster::load(name).expect("a preset");
        for ranks in [2, 8, 12, 16, 32] {
            let Ok(placement) = Placement::new(&cluster, ranks, &PlacementRule::Pack) else { continue };
            for rule in [HostingRule::PerRank, HostingRule::PerHost] {
                let hosting = Hosting::new(&placement, &rule).expect("processes");
                for group in [Permutations::Masks { unit: 1 }, Permutations::Rotations { unit: 1 }] {
                    if matches!(group, Permutations::Masks { .. }) && !ranks.is_power_of_two() {
                        continue;
                    }
                    if let Ok(fold) = Fold::new(group, &cluster, &placement, &hosting) {
                        check(&fold, &cluster, &placement);
                    }
                }
            }
        }
    }
}

#[test]
fn presets_on_networks_fold_as_their_routes_allow() {
    for (name, ranks) in
        [("dgx-h100:16", 128), ("dgx-h100:24", 192), ("dgx1-v100:16", 128), ("big-basin-50gbe:16", 128)]
    {
        let cluster = Cluster::load(name).expect("a preset");
        let (placement, hosting) = place(&cluster, ranks);
        for group in [Permutations::Masks { unit: 1 }, Permutations::Rotations { unit: 1 }] {
            if matches!(group, Permutations::Masks { .. }) && !ranks.is_power_of_two() {
                continue;
            }
            if let Ok(fold) = Fold::new(group, &cluster, &placement, &hosting) {
                check(&fold, &cluster, &placement);
            }
        }
    }
    // Hashed routes depend on source and destination.
    let cluster = Cluster::load("big-basin-50gbe:64@ethernet-10g").expect("a preset");
    assert_eq!(Levels::of(&cluster, &place(&cluster, 512).0).sizes(), [0u32; 0]);
}

#[test]
fn one_slow_wire_breaks_the_symmetry() {
    let slow = tree(0, 1, &[4]).replace("node[0-3]", "node[0-2]")
        + "[[link]]\nkind = \"ethernet\"\nbetween = [\"node3.eth0\", \"s0x0\"]\nlatency = \"1us\"\nbandwidth = \"1GB/s\"\n";
    let cluster = Cluster::parse("slow.toml", &slow).expect("a cluster");
    let placement = |ranks| place(&cluster, ranks).0;
    assert_eq!(Levels::of(&cluster, &placement(16)).sizes(), [0u32; 0]);
    assert_eq!(Levels::of(&cluster, &placement(12)).sizes(), [1, 4, 12]);
}

#[test]
fn permutations_must_keep_processes_together() {
    let cluster = Cluster::parse("tree.toml", &tree(0, 1, &[1])).expect("a cluster");
    let limits = Limits { ranks_per_core: 4, ..Limits::default() };
    let placement = Placement::within(&cluster, 8, &PlacementRule::Pack, limits).expect("places");
    let unit = |processes: Vec<u32>| {
        let hosting = Hosting::new(&placement, &HostingRule::Listed(processes)).expect("processes");
        Fold::new(Permutations::Rotations { unit: 1 }, &cluster, &placement, &hosting)
            .map(|fold| fold.representatives())
    };
    assert_eq!(unit(vec![0, 1, 2, 3, 4, 5, 6, 7]), Ok(1));
    assert_eq!(unit(vec![0, 0, 1, 1, 2, 2, 3, 3]), Ok(2));
    assert!(unit(vec![0, 0, 0, 1, 1, 1, 1, 1]).is_err());
}
