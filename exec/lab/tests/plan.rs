//! Compares plans and their commands with closed forms over random trees, and tests what is refused.

use std::collections::BTreeSet;

use lockstep_lab::{LabName, LabNode, LabPlan, commands};
use lockstep_topology::Cluster;
use proptest::prelude::*;

/// A tree: switch n hangs under an earlier one, host n under some switch, each link with a rate of its own in Mbit/s.
#[derive(Debug, Clone)]
struct Tree {
    trunks: Vec<(usize, u32)>,
    hosts: Vec<(usize, u32)>,
}

impl Tree {
    fn cluster(&self) -> Cluster {
        let mut text = "name = \"tree\"\nprovenance = \"assumed\"\n".to_owned();
        text += &format!("[[switch]]\nname = \"s\"\ncount = {}\n", self.trunks.len() + 1);
        text += &format!("[[host]]\nname = \"node\"\ncount = {}\n{CPU}{NIC}", self.hosts.len());
        let link = |one: &str, other: &str, rate: u32| {
            format!(
                "[[link]]\nkind = \"ethernet\"\nbetween = [\"{one}\", \"{other}\"]\nlatency = \"5us\"\nbandwidth = \"{rate}Mbit/s\"\n"
            )
        };
        for (number, (above, rate)) in self.trunks.iter().enumerate() {
            text += &link(&format!("s{}", number + 1), &format!("s{above}"), *rate);
        }
        for (number, (switch, rate)) in self.hosts.iter().enumerate() {
            text += &link(&format!("node{number}.eth0"), &format!("s{switch}"), *rate);
        }
        Cluster::parse("tree.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }
}

const CPU: &str = "[host.cpu]\ncores = 1\nflops_per_core = \"1GFLOP/s\"\nmemory_bandwidth = \"1GB/s\"\nmemory = \"1GiB\"\n\
                   message_latency = \"1us\"\nmessage_bandwidth = \"1GB/s\"\n";
const NIC: &str = "[[host.nic]]\nname = \"eth0\"\n[[host.link]]\nkind = \"pcie\"\nbetween = [\"cpu\", \"eth0\"]\nlatency = \"1us\"\n\
                   bandwidth = \"8GB/s\"\n";

fn trees() -> impl Strategy<Value = Tree> {
    let rates = || 1u32..500;
    // Switches with nothing under them are allowed, as idle bridges.
    (
        prop::collection::vec((any::<prop::sample::Index>(), rates()), 1..5),
        prop::collection::vec((any::<prop::sample::Index>(), rates()), 2..12),
    )
        .prop_map(|(trunks, hosts)| {
            let switches = trunks.len() + 1;
            Tree {
                trunks: trunks.iter().enumerate().map(|(n, (above, rate))| (above.index(n + 1), *rate)).collect(),
                hosts: hosts.iter().map(|(switch, rate)| (switch.index(switches), *rate)).collect(),
            }
        })
}

fn name() -> LabName {
    "a".parse().expect("a name")
}

fn refusal(text: &str, scale: f64) -> String {
    let cluster = if text.contains('\n') { Cluster::parse("c.toml", text) } else { Cluster::load(text) };
    LabPlan::new(&cluster.expect("a cluster"), &name(), 0, scale).expect_err("refused").to_string()
}

proptest! {
    /// H hosts and S switches in a tree have H + S - 1 cables: as many veth pairs, twice as many shaped ends, S
    /// bridges, H + 1 namespaces. All addresses and all interfaces of a namespace are distinct, and each end is shaped
    /// to its own link's rate.
    #[test]
    fn a_tree_has_one_veth_pair_per_link(tree in trees(), subnet: u8) {
        let (hosts, switches) = (tree.hosts.len(), tree.trunks.len() + 1);
        let plan = LabPlan::new(&tree.cluster(), &name(), subnet, 1.0).expect("a plan");
        prop_assert_eq!(plan.cables.len(), hosts + switches - 1);
        let lines: Vec<String> = commands::up(&plan).iter().map(ToString::to_string).collect();
        let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
        prop_assert_eq!(count("type veth"), hosts + switches - 1);
        prop_assert_eq!(count("root tbf rate"), 2 * (hosts + switches - 1));
        prop_assert_eq!(count("type bridge"), switches);
        prop_assert_eq!(count("netns add"), hosts + 1);
        prop_assert_eq!(count(" master "), hosts + 2 * (switches - 1));
        prop_assert_eq!(count("address add"), hosts);
        let addresses: BTreeSet<_> = plan.hosts.iter().map(|host| host.address).collect();
        prop_assert_eq!(addresses.len(), hosts);
        prop_assert!(addresses.iter().all(|address| address.octets()[..3] == [10, 213, subnet]));
        let ends = || plan.cables.iter().flat_map(|cable| &cable.ends);
        let interfaces: BTreeSet<_> = ends().map(|end| (plan.namespace(end.place), &end.interface)).collect();
        prop_assert_eq!(interfaces.len(), 2 * plan.cables.len());
        prop_assert!(ends().all(|end| end.interface.len() <= 15), "what Linux takes");
        for end in ends() {
            if let LabNode::Host(host) = end.place {
                prop_assert_eq!(end.rate.line_bit_per_s, f64::from(tree.hosts[host].1) * 1e6);
            }
            // A link over Ethernet carries 1,448 bytes of payload in 1,538 on the wire, of which the shaper counts 1,514.
            let shaped = end.rate.line_bit_per_s * 1514.0 / 1538.0;
            prop_assert!((end.rate.shaped_bit_per_s() as f64 - shaped).abs() <= 1.0);
            let line = format!("-n {} qdisc add dev {} root tbf rate {}bit", plan.namespace(end.place), end.interface, end.rate.shaped_bit_per_s());
            prop_assert_eq!(count(&line), 1);
        }
    }

    /// Nothing is created in the namespace that all programs share, and everything is created before it is used.
    #[test]
    fn nothing_is_created_outside_the_lab(tree in trees()) {
        let plan = LabPlan::new(&tree.cluster(), &name(), 0, 1.0).expect("a plan");
        let mut made = BTreeSet::new();
        for step in commands::up(&plan) {
            match step.arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["netns", "add", namespace] => prop_assert!(made.insert(namespace.to_owned())),
                ["-n", namespace, ..] | ["netns", "exec", namespace, ..] => prop_assert!(made.contains(namespace), "{}", step),
                _ => prop_assert!(false, "{}", step),
            }
            if let Some(at) = step.arguments.iter().skip(1).position(|word| word == "netns").filter(|_| step.arguments[0] == "-n") {
                prop_assert!(made.contains(&step.arguments[at + 2]), "{}", step);
            }
        }
    }
}

#[test]
fn two_labs_share_neither_names_nor_addresses() {
    let cluster = Cluster::load("ethernet-4").expect("a preset");
    let plans = [("a", 0), ("a-b", 1)]
        .map(|(name, subnet)| LabPlan::new(&cluster, &name.parse().unwrap(), subnet, 0.1).expect("a plan"));
    let of = |plan: &LabPlan| {
        plan.hosts.iter().flat_map(|host| [host.namespace.clone(), host.address.to_string()]).collect::<BTreeSet<_>>()
    };
    assert!(of(&plans[0]).is_disjoint(&of(&plans[1])));
    assert_eq!(plans[0].hosts_file().lines().count(), 5);
}

/// 8 hosts of 1 Gbit/s under two leaves of four, each with one uplink: 1 Gbit/s for four hosts of 1 Gbit/s.
#[test]
fn an_oversubscribed_tree_keeps_its_uplinks() {
    let text = format!(
        "name = \"t\"\nprovenance = \"assumed\"\n[[host]]\nname = \"node\"\ncount = 8\n{CPU}{NIC}[[fabric]]\nname = \"net\"\n\
         kind = \"fat-tree\"\nattach = \"node*.eth0\"\ndown = [4, 2]\nup = [1]\nwire = \"ethernet\"\nlatency = \"5us\"\n\
         bandwidth = \"1Gbit/s\"\ntrunk_bandwidth = \"500Mbit/s\"\n"
    );
    let plan = LabPlan::new(&Cluster::parse("t.toml", &text).expect("a cluster"), &name(), 0, 1.0).expect("a plan");
    assert_eq!((plan.switches.len(), plan.cables.len()), (3, 10));
    let trunks =
        plan.cables.iter().filter(|cable| cable.ends.iter().all(|end| matches!(end.place, LabNode::Switch(_))));
    let rates: Vec<[f64; 2]> = trunks.map(|cable| [0, 1].map(|end| cable.ends[end].rate.line_bit_per_s)).collect();
    assert_eq!(rates, [[5e8; 2]; 2]);
    let loops = text.replace("up = [1]", "up = [2]");
    let error = refusal(&loops, 1.0);
    assert!(error.contains("net.") && error.contains("closes a loop") && error.contains("up = [1]"), "{error}");
}

#[test]
fn impossible_labs_are_refused_with_the_cure() {
    for (cluster, scale, words) in [
        ("workstation", 1.0, ["hosts 1", "ethernet-4:8"]),
        ("ethernet-4:65", 0.001, ["hosts 65", "from 2 to 64"]),
        ("ethernet-4", 1.0, ["40.000 Gbit/s", "use 0.25 or less"]),
        ("ethernet-4:3", 1.0, ["30.000 Gbit/s", "use 0.33 or less"]),
        ("ethernet-4", 0.0, ["--scale", "above 0"]),
        ("ethernet-4", f64::NAN, ["--scale", "above 0"]),
        ("ethernet-4", 1e-6, ["node0.eth0 - switch", "131072 bit/s"]),
        ("dgx-a100:2", 0.001, ["links to other hosts", "one NIC"]),
    ] {
        let error = refusal(cluster, scale);
        assert!(words.iter().all(|word| error.contains(word)), "{cluster}: {error}");
    }
    assert!(LabPlan::new(&Cluster::load("ethernet-4").unwrap(), &name(), 0, 0.25).is_ok());
}

#[test]
fn a_wire_that_both_directions_share_is_refused() {
    let text = format!(
        "name = \"t\"\nprovenance = \"assumed\"\n[[host]]\nname = \"node\"\ncount = 2\n{CPU}[[switch]]\nname = \"hub\"\n[[link]]\n\
         kind = \"ethernet\"\nbetween = [\"node*.cpu\", \"hub\"]\nlatency = \"5us\"\nbandwidth = \"10Mbit/s\"\nduplex = \"half\"\n"
    );
    let error = refusal(&text, 1.0);
    assert!(error.contains("node0.cpu - hub") && error.contains("duplex"), "{error}");
}
