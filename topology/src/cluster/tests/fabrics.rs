//! Tests generated fabrics: closed forms of switches, hops and bisection; routes against the search; choices
//! among equals.

use crate::Time;
use crate::cluster::fabric::Choice;
use crate::cluster::*;
use proptest::prelude::*;

/// `hosts` hosts `h0`, … of `nics` NICs `n0`, … on the CPU, followed by `rest`.
pub(super) fn cluster(hosts: u32, nics: u32, rest: &str) -> Result<Cluster, String> {
    let text = format!(
        "name = \"test\"\n[[host]]\nname = \"h\"\ncount = {hosts}\n[host.cpu]\ncores = 1\nflops_per_core = \"1GFLOP/s\"\n\
         memory_bandwidth = \"1GB/s\"\nmemory = \"1GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"1GB/s\"\n\
         [[host.nic]]\nname = \"n\"\ncount = {nics}\n[[host.link]]\nbetween = [\"cpu\", \"n*\"]\nlatency = \"1us\"\n\
         pcie = \"3.0 x16\"\n{rest}"
    );
    Cluster::parse("c.toml", &text).map_err(|error| error.to_string())
}

/// A `[[fabric]]` of a kind over `attach` with links of 1 GB/s and 1 us.
pub(super) fn fabric(kind: &str, attach: &str, keys: &str) -> String {
    format!(
        "[[fabric]]\nname = \"f\"\nkind = \"{kind}\"\nattach = \"{attach}\"\nwire = \"infiniband\"\nlatency = \"1us\"\n\
         bandwidth = \"1GB/s\"\n{keys}\n"
    )
}

/// The CPU of a host.
pub(super) fn cpu(cluster: &Cluster, host: u32) -> &Device {
    &cluster.devices()[cluster.hosts()[host as usize].devices[0].0 as usize]
}

/// How many switches a route passes.
fn switches(cluster: &Cluster, from: u32, to: u32) -> usize {
    let route = cluster.route(cpu(cluster, from).id, cpu(cluster, to).id).unwrap();
    let ends = route.links.iter().map(|link| cluster.vertex(cluster.link(*link).to));
    ends.filter(|vertex| vertex.kind == VertexKind::Switch).count()
}

/// The summed bandwidth of the wires between switches of which exactly one end is `inside`.
fn cut(cluster: &Cluster, inside: impl Fn(&str) -> bool) -> f64 {
    let side = |vertex: VertexId| inside(&cluster.vertex(vertex).name);
    let between = |link: &&Link| [link.from, link.to].iter().all(|v| cluster.vertex(*v).kind == VertexKind::Switch);
    let crossing = cluster.links().iter().filter(between).filter(|link| side(link.from) && !side(link.to));
    crossing.map(|link| link.bandwidth.bytes_per_s()).sum()
}

#[test]
fn a_three_level_tree_has_the_switches_hops_and_bisection_of_its_closed_form() {
    // 2 hosts a leaf, 3 leaves a pod, 4 pods; 2 spines a pod by 2 cables each, 3 cores to each spine.
    let keys = "down = [2, 3, 4]\nup = [2, 3]\nparallel = [2, 1]\ntrunk_bandwidth = [\"2GB/s\", \"5GB/s\"]";
    let tree = cluster(24, 1, &fabric("fat-tree", "h*.n0", keys)).unwrap();
    // 12 leaves, 4 x 2 spines, 2 x 3 cores; wires up 12 x 2 x 2 and 8 x 3.
    assert_eq!((tree.switches().count(), tree.fabrics[0].shape.switches()), (26, 26));
    let rows = &tree.describe()[2].rows;
    let counts: Vec<[&str; 2]> = rows[1..].iter().map(|row| [row[1].as_str(), row[4].as_str()]).collect();
    assert_eq!(counts, [["24", "1.000"], ["48", "2.000"], ["24", "5.000"]]);
    // Same leaf, same pod, other pods: 1, 3 and 5 switches.
    assert_eq!([1, 2, 5, 6, 23].map(|to| switches(&tree, 0, to)), [1, 3, 3, 5, 5]);
    // Twelve hosts to twelve: 12 GB/s by their own wires, 48 / 2 x 2 from the leaves, 24 / 2 x 5 from the spines.
    assert_eq!(tree.fabrics[0].bisection, 12e9);
    // Cores are on the far side: what leaves two pods goes up by 12 wires of 5 GB/s.
    let low = |name: &str| match name.split_once('.').unwrap().1 {
        leaf if leaf.starts_with("leaf") => leaf[4..].parse::<u32>().unwrap() < 6,
        spine if spine.starts_with("spine") => spine[5..].parse::<u32>().unwrap() < 4,
        _ => false,
    };
    assert_eq!(cut(&tree, low), 60e9);
    let slow = cluster(24, 1, &fabric("fat-tree", "h*.n0", "down = [2, 3, 4]\nup = [1, 1]")).unwrap();
    // 12 leaves with a wire each: 6 GB/s; 4 pods with a wire each: 2 GB/s.
    assert_eq!(slow.fabrics[0].bisection, 2e9);
}

#[test]
fn port_counts_determine_the_smallest_tree() {
    // Hosts, ports, oversubscription, switches of each level.
    for (hosts, ports, over, levels) in [
        (8, 8, "1", vec![8]),
        (9, 8, "1", vec![3, 4]),
        (32, 8, "1", vec![8, 4]),
        (33, 8, "1", vec![12, 12, 16]),
        (40, 6, "2", vec![12, 6, 4]),
    ] {
        let keys = format!("ports = {ports}\noversubscription = {over}");
        let tree = cluster(hosts, 1, &fabric("fat-tree", "h*.n0", &keys)).unwrap();
        let count = |level: &str| tree.switches().filter(|switch| switch.name.starts_with(level)).count();
        let found: Vec<usize> = match levels.len() {
            1 => vec![tree.switches().count() * ports as usize],
            n => ["f.leaf", "f.spine", "f.core"][..n].iter().map(|level| count(level)).collect(),
        };
        assert_eq!(found, levels, "{hosts} hosts on {ports} ports");
        for switch in tree.switches() {
            let used = tree.graph().edges(NodeIndex::new(switch.id.0 as usize)).count();
            assert!(used <= ports as usize, "{} uses {used} ports of {ports}", switch.name);
        }
    }
    // Two of three ports down: oversubscription 2.
    let tree = cluster(40, 1, &fabric("fat-tree", "h*.n0", "down = [4, 10]\noversubscription = 2")).unwrap();
    assert_eq!(tree.fabrics[0].bisection, 10e9);
    assert_eq!(tree.switches().count(), 12);
}

#[test]
fn a_torus_has_the_hops_and_bisection_of_its_closed_form() {
    let keys = "shape = [4, 3, 2]\nhosts_per_router = 2\ntrunk_bandwidth = [\"9GB/s\", \"5GB/s\", \"9GB/s\"]";
    let torus = cluster(48, 1, &fabric("torus", "h*.n0", keys)).unwrap();
    assert_eq!(torus.switches().count(), 24);
    let rows = &torus.describe()[2].rows;
    let counts: Vec<&str> = rows[1..].iter().map(|row| row[1].as_str()).collect();
    assert_eq!(counts, ["48", "24", "24", "12"]);
    // Hosts 0 and 1 on router 0-0-0; host 6 on 3-0-0, one step back; host 47 on 3-2-1: 1 + 1 + 1 steps.
    assert_eq!([1, 2, 4, 6, 47].map(|to| switches(&torus, 0, to)), [1, 2, 3, 2, 4]);
    // Halves along x: 2 x 6 x 9; along y: 2 x 8 x 5; along z: 12 x 9; hosts 24 x 1.
    assert_eq!(torus.fabrics[0].bisection, 24e9);
    assert_eq!(cut(&torus, |name| name.starts_with("f.r0") || name.starts_with("f.r1")), 108e9);
    // One dimension after the other: 0-0-0 to 1-1-1 turns at 1-0-0 and 1-1-0.
    let route = torus.route(cpu(&torus, 0).id, cpu(&torus, 2 * (1 + 4 + 12)).id).unwrap();
    let names: Vec<&str> = route.links.iter().map(|link| torus.vertex(torus.link(*link).to).name.as_str()).collect();
    assert_eq!(names[1..5], ["f.r0-0-0", "f.r1-0-0", "f.r1-1-0", "f.r1-1-1"]);
    let cube = cluster(32, 1, &fabric("torus", "h*.n0", "dimensions = 3\nhosts_per_router = 2")).unwrap();
    assert_eq!(cube.describe()[4].rows[0][2], "3 x 3 x 2, 2 a router");
}

#[test]
fn rails_join_equal_nics_and_a_cpu_uses_the_first_common_rail() {
    let rails = cluster(6, 3, &fabric("rails", "h*.n*", "")).unwrap();
    assert_eq!(
        rails.switches().map(|switch| switch.name.as_str()).collect::<Vec<_>>(),
        ["f.rail0", "f.rail1", "f.rail2"]
    );
    assert_eq!(rails.fabrics[0].bisection, 0.0);
    let rail = |cluster: &Cluster, flow| {
        let route = cluster.route_of_flow(cpu(cluster, 1).id, cpu(cluster, 4).id, flow).unwrap();
        let names = route.links.iter().map(|link| cluster.vertex(cluster.link(*link).to).name.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(rail(&rails, 0), ["h1.n0", "f.rail0", "h4.n0", "h4.cpu"]);
    // Flows of one pair rotate over the NICs.
    assert_eq!(rail(&rails, 2), ["h1.n2", "f.rail2", "h4.n2", "h4.cpu"]);
    let joined = cluster(6, 3, &fabric("rails", "h*.n*", "spines = 2\nparallel = 3")).unwrap();
    // Six hosts on each of three rails, three rails by 2 x 3 cables: 18 / 2 wires halve it.
    assert_eq!(joined.fabrics[0].bisection, 9e9);
    assert_eq!(rail(&joined, 1).len(), 4);
}

/// Chi-square of counts against equal shares.
fn chi_square(counts: &[u32]) -> f64 {
    let mean = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
    counts.iter().map(|count| (f64::from(*count) - mean).powi(2) / mean).sum()
}

/// The spine that each pair of hosts on different leaves takes, for a flow.
fn spines(cluster: &Cluster, flow: u32) -> Vec<u32> {
    let mut taken = Vec::new();
    for from in 0..16 {
        for to in 16..64 {
            let route = cluster.route_of_flow(cpu(cluster, from).id, cpu(cluster, to).id, flow).unwrap();
            let mut names = route.links.iter().map(|link| &cluster.vertex(cluster.link(*link).to).name);
            let spine = names.find_map(|name| name.strip_prefix("f.spine")).expect("leaves meet at spines");
            taken.push(spine.parse().unwrap());
        }
    }
    taken
}

#[test]
fn ecmp_spreads_evenly_by_seed_and_flow_and_repeats_itself() {
    let with = |keys: &str| cluster(64, 1, &fabric("fat-tree", "h*.n0", &format!("down = [16, 4]\nup = [8]\n{keys}")));
    let hashed = with("routing = \"ecmp\"\nseed = 7").unwrap();
    let taken = spines(&hashed, 0);
    let mut counts = [0u32; 8];
    taken.iter().for_each(|spine| counts[*spine as usize] += 1);
    // 768 routes over 8 spines; 7 degrees of freedom: 24.3 is exceeded by one even spread in a thousand.
    assert!(chi_square(&counts) < 24.3, "{counts:?}");
    assert_eq!(spines(&hashed, 0), taken);
    assert_ne!(spines(&hashed, 1), taken);
    assert_ne!(spines(&with("routing = \"ecmp\"\nseed = 8").unwrap(), 0), taken);
    // D-mod-k: each destination by its own spine, all spines equally; lowest: the first.
    let counted = spines(&with("routing = \"d-mod-k\"").unwrap(), 0);
    assert_eq!(counted[..9], [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    assert!(spines(&with("").unwrap(), 0).iter().all(|spine| *spine == 0));
}

/// The cut above each leaf and each pod is that of all cables, in one wire; switches and bisection are those that are cabled.
#[test]
fn sprayed_packets_have_the_bandwidth_of_all_ways() {
    let keys = "down = [2, 3, 4]\nup = [2, 3]\nparallel = [2, 1]\ntrunk_bandwidth = [\"2GB/s\", \"5GB/s\"]";
    let with = |routing: &str| cluster(24, 1, &fabric("fat-tree", "h*.n0", &format!("{keys}{routing}"))).unwrap();
    let [cabled, sprayed] = [with(""), with("\nrouting = \"spray\"")];
    // Twelve leaves and four pods have four cables of 2 GB/s and six of 5 GB/s up.
    assert_eq!(sprayed.switches().count(), 12 + 4 + 1);
    for (leaf, pod) in [(0, 0), (5, 1), (11, 3)] {
        let leaf = format!("f.leaf{leaf}");
        assert_eq!([&cabled, &sprayed].map(|of| cut(of, |name| name == leaf)), [8e9, 8e9]);
        let spines =
            |each: u32| (each * pod..each * (pod + 1)).map(|spine| format!("f.spine{spine}")).collect::<Vec<_>>();
        let leaves: Vec<_> = (3 * pod..3 * (pod + 1)).map(|leaf| format!("f.leaf{leaf}")).collect();
        let up =
            |of: &Cluster, each: u32| cut(of, |name| spines(each).iter().chain(&leaves).any(|inside| inside == name));
        assert_eq!([up(&cabled, 2), up(&sprayed, 1)], [30e9, 30e9]);
    }
    assert_eq!(
        [&cabled, &sprayed].map(|of| (of.fabrics[0].cabled.switches(), of.fabrics[0].bisection)),
        [(26, 12e9); 2]
    );
    let latency = |of: &Cluster, to: u32| of.route(cpu(of, 0).id, cpu(of, to).id).unwrap().latency;
    assert!([1, 2, 23].into_iter().all(|to| latency(&cabled, to) == latency(&sprayed, to)));
}

/// GPU i of each host is one switch away from GPU i of every other host of its unit, and three from that of
/// another unit.
#[test]
fn rails_keep_the_same_nic_of_all_hosts_on_one_leaf() {
    let cluster = Cluster::load("dgx-h100:40@infiniband-ndr-rails").unwrap();
    let gpu = |host: usize, at: usize| cluster.hosts()[host].devices[1 + at];
    let names = |from, to| -> Vec<String> {
        let route = cluster.route(from, to).unwrap();
        let ends = route.links.iter().map(|link| cluster.vertex(cluster.link(*link).to));
        let between = ends.filter(|vertex| vertex.kind == VertexKind::Switch && vertex.host.is_none());
        between.map(|vertex| vertex.name.clone()).collect()
    };
    for at in 0..8 {
        assert_eq!(names(gpu(0, at), gpu(31, at)), [format!("infiniband-ndr-rails.rail{at}")]);
        assert_eq!(names(gpu(32, at), gpu(39, at)), [format!("infiniband-ndr-rails.rail{}", 8 + at)]);
        assert_eq!(names(gpu(0, at), gpu(39, at)).len(), 3);
    }
}

/// Half the hosts reach the other half at half the rate where leaves have twice as many ports down as up.
#[test]
fn a_suffix_oversubscribes_a_network() {
    let bisection = |name: &str| Cluster::load(name).unwrap().fabrics[0].bisection;
    let plain = bisection("dgx-h100:64@infiniband-ndr");
    let half = bisection("dgx-h100:64@infiniband-ndr-2to1");
    assert!((half / plain - 0.5).abs() < 0.05, "{half} beside {plain}");
    for (name, expected) in [
        (
            "dgx-h100:4@infiniband-ndr-star",
            "\"star\" is not a shape of a network of 64 ports; there are rails, and 2to1",
        ),
        ("dgx-h100:4@infiniband-ndr-64to1", "is not a shape of a network"),
        ("dgx-h100:4@infiniband-ndr-0to1", "is not a shape of a network"),
        ("dgx-h100:4@infiniband-nrd-rails", "did you mean infiniband-ndr"),
    ] {
        let refusal = Cluster::load(name).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{refusal}");
    }
    let notes = |name: &str| Cluster::load(name).unwrap().notes().collect::<Vec<_>>();
    let [note] = &notes("dgx-h100:8@infiniband-ndr-2to1")[..] else { panic!("64 NICs are on one switch of 64 ports") };
    assert!(note.contains("infiniband-ndr-2to1: one switch has ports for all 64 NICs"), "{note}");
    for name in ["dgx-h100:9@infiniband-ndr-2to1", "dgx-h100:8@infiniband-ndr", "dgx-h100:8"] {
        assert!(notes(name).is_empty(), "{name}");
    }
}

/// One host has no network, and an unknown network in its file is refused all the same.
#[test]
fn the_network_of_a_single_host_exists() {
    let text = Cluster::presets().iter().find(|(name, _)| *name == "dgx-h100").expect("a preset").1;
    let read = |text: &str| Cluster::parse("mine.toml", text).map(|cluster| cluster.fabrics.len());
    assert_eq!(read(text), Ok(0));
    let wrong = text.replace("network = \"infiniband-ndr\"", "network = \"infiniband-nrd\"");
    assert!(wrong != text);
    let refusal = read(&wrong).unwrap_err().to_string();
    assert!(refusal.contains("mine.toml:") && refusal.contains("did you mean infiniband-ndr"), "{refusal}");
}

#[test]
fn searched_routes_may_be_hashed() {
    let mut wired = String::new();
    (0..4).for_each(|i| wired += &format!("[[switch]]\nname = \"s{i}\"\n"));
    wired += "[[link]]\nkind = \"ethernet\"\nbetween = [\"h*.n0\", \"s*\"]\nlatency = \"1us\"\nbandwidth = \"1GB/s\"\n";
    let lowest = cluster(20, 1, &wired).unwrap();
    assert!((1..20).all(|to| switches(&lowest, 0, to) == 1));
    let hashed = |seed: u32| {
        let cluster = cluster(20, 1, &wired).unwrap();
        let choice = |to: u32| Choice {
            routing: Routing::Ecmp,
            seed: seed.into(),
            from: cpu(&cluster, 0).id,
            to: cpu(&cluster, to).id,
            flow: 0,
        };
        let way = |to: u32| cluster.searched(cpu(&cluster, 0), cpu(&cluster, to), &choice(to)).unwrap();
        (1..20).map(|to| cluster.link(way(to)[1]).to.0).collect::<Vec<_>>()
    };
    assert_eq!(hashed(1), hashed(1));
    assert_ne!(hashed(1), hashed(2));
    let distinct: std::collections::BTreeSet<u32> = hashed(1).into_iter().collect();
    assert_eq!(distinct.len(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Closed forms give connected routes that are as short as the search's; by lowest number, exactly the same.
    #[test]
    fn closed_forms_are_as_good_as_the_search(
        down in prop::collection::vec(1u32..4, 1..4),
        up in prop::collection::vec(1u32..3, 3),
        parallel in prop::collection::vec(1u32..3, 3),
        shape in prop::collection::vec(1u32..5, 1..4),
        per_router in 1u32..3,
        routing in prop::sample::select(vec!["lowest", "ecmp", "d-mod-k", "spray", "torus"]),
    ) {
        let hosts = match routing {
            "torus" => shape.iter().product::<u32>() * per_router,
            _ => down.iter().product(),
        };
        let levels = down.len() - 1;
        let table = match routing {
            "torus" => fabric("torus", "h*.n0", &format!("shape = {shape:?}\nhosts_per_router = {per_router}")),
            _ => {
                let keys = format!("down = {down:?}\nup = {:?}\nparallel = {:?}", &up[..levels], &parallel[..levels]);
                let seed = if routing == "ecmp" { "seed = 3\n" } else { "" };
                fabric("fat-tree", "h*.n0", &format!("{keys}\nrouting = {routing:?}\n{seed}trunk_latency = \"2us\""))
            }
        };
        let cluster = cluster(hosts, 1, &table).unwrap();
        for from in 0..hosts {
            for to in (0..hosts).filter(|to| *to != from) {
                let (from, to) = (cpu(&cluster, from), cpu(&cluster, to));
                let route = cluster.route(from.id, to.id).unwrap();
                let links: Vec<&Link> = route.links.iter().map(|link| cluster.link(*link)).collect();
                prop_assert_eq!((links[0].from, links[links.len() - 1].to), (from.vertex, to.vertex));
                prop_assert!(links.windows(2).all(|pair| pair[0].to == pair[1].from));
                let choice = Choice { routing: Routing::Lowest, seed: 0, from: from.id, to: to.id, flow: 0 };
                let found = cluster.searched(from, to, &choice).unwrap();
                let latency: Time = found.iter().map(|link| cluster.link(*link).latency).sum();
                prop_assert_eq!((found.len(), latency), (route.links.len(), route.latency));
                if routing == "lowest" {
                    prop_assert_eq!(found, route.links);
                }
            }
        }
    }
}

#[test]
fn routes_among_many_hosts_cost_in_proportion_to_their_length() {
    let big = cluster(20_000, 1, &fabric("fat-tree", "h*.n0", "ports = 64\nrouting = \"ecmp\"")).unwrap();
    for from in 0..2_000 {
        let route = big.route(cpu(&big, from).id, cpu(&big, 19_999 - from).id).unwrap();
        assert_eq!(route.links.len(), 8);
    }
}
