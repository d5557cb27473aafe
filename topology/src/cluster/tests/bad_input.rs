//! Tests every kind of bad cluster file: the error names file, line, value and cure, and nothing panics.

use crate::cluster::*;
use proptest::prelude::*;

/// The preset whose lines the cases change.
const GOOD: &str = include_str!("../../../clusters/ethernet-gpu-8.toml");

/// The error of the preset with `from` replaced by `to` at its last place; `LINE` in `expected` is that place's line.
fn check(from: &str, to: &str, expected: &str) {
    let at = GOOD.rfind(from).unwrap_or_else(|| panic!("{from} is not in the preset"));
    let text = format!("{}{to}{}", &GOOD[..at], &GOOD[at + from.len()..]);
    let line = GOOD[..at].matches('\n').count() + 1;
    let error = Cluster::parse("cluster.toml", &text).map(|_| ()).unwrap_err().to_string();
    let expected = expected.replace("LINE", &line.to_string());
    assert!(error.starts_with(&expected), "\n     got {error}\nexpected {expected}");
}

#[test]
fn hosts_that_share_cores_must_be_equal() {
    let host = |name: &str, cores: u32| {
        format!(
            "[[host]]\nname = \"{name}\"\n[host.cpu]\ncores = {cores}\nflops_per_core = \"1GFLOP/s\"\nmemory_bandwidth = \"1GB/s\"\n\
             memory = \"1GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"1GB/s\"\n"
        )
    };
    let link =
        "[[link]]\nkind = \"ethernet\"\nbetween = [\"a.cpu\", \"b.cpu\"]\nlatency = \"1us\"\nbandwidth = \"1Gbit/s\"\n";
    let parse = |cores, keys: &str| {
        Cluster::parse("lab.toml", &format!("name = \"lab\"\n{keys}\n{}{}{link}", host("a", 2), host("b", cores)))
    };
    let shared = parse(2, "shared_cores = true").expect("one machine");
    assert!(shared.devices().iter().all(|device| shared.cores_of(device) == DeviceId(0)));
    let placement = crate::Placement::new(&shared, 2, &crate::PlacementRule::Pack).expect("places");
    assert_eq!([placement.device(crate::Rank(0)), placement.device(crate::Rank(1))], [DeviceId(0), DeviceId(1)]);
    let apart = parse(3, "shared_cores = false").expect("two machines");
    assert!(apart.devices().iter().all(|device| apart.cores_of(device) == device.id));
    let error = parse(3, "shared_cores = true").expect_err("two machines").to_string();
    assert!(error.starts_with("lab.toml:12: ") && error.contains("same [host.cpu]"), "{error}");
}

#[test]
fn wrong_values_are_named_with_line_and_cure() {
    for (from, to, expected) in [
        ("\"25Gbit/s\"", "\"-3GB/s\"", "cluster.toml:LINE: bandwidth = \"-3GB/s\": must be positive"),
        ("\"25Gbit/s\"", "\"0GB/s\"", "cluster.toml:LINE: bandwidth = \"0GB/s\": must be positive"),
        ("\"25Gbit/s\"", "\"NaNGB/s\"", "cluster.toml:LINE: bandwidth = \"NaNGB/s\": does not start with a number"),
        (
            "\"25Gbit/s\"",
            "nan",
            "cluster.toml:LINE: bandwidth = nan: bandwidth must be a text in quotes, e.g. \"10Gbit/s\"",
        ),
        ("\"25Gbit/s\"", "\"25Gbps\"", "cluster.toml:LINE: bandwidth = \"25Gbps\": is not a bandwidth; write it like"),
        ("\"10us\"", "\"-1us\"", "cluster.toml:LINE: latency = \"-1us\": must be from 0"),
        ("\"14TFLOP/s\"", "\"-1TFLOP/s\"", "cluster.toml:LINE: peak_flops = \"-1TFLOP/s\": must be positive"),
        ("\"16GiB\"", "\"0GiB\"", "cluster.toml:LINE: memory = \"0GiB\": must be at least 1MiB; write a unit"),
        ("\"16GiB\"", "\"16\"", "cluster.toml:LINE: memory = \"16\": must be at least 1MiB; write a unit"),
        ("cores = 32", "cores = 0", "cluster.toml:LINE: cores = 0: cores must be a whole number from 1 to"),
        ("cores = 32", "cores = 2.5", "cluster.toml:LINE: cores = 2.5: cores must be a whole number from 1 to"),
        ("count = 8", "count = 0", "cluster.toml:LINE: count = 0: count must be a whole number from 1 to 4000000"),
        ("count = 8", "count = -8", "cluster.toml:LINE: count = -8: count must be a whole number from 1 to"),
        (
            "count = 8",
            "count = 9999999999",
            "cluster.toml:LINE: count = 9999999999: count must be a whole number from 1",
        ),
        (
            "kind = \"ethernet\"",
            "kind = \"token-ring\"",
            "cluster.toml:LINE: kind = \"token-ring\": is not a kind of link",
        ),
        ("name = \"eth0\"", "name = \"eth.0\"", "cluster.toml:LINE: name = \"eth.0\": must be a name of letters"),
        ("name = \"eth0\"", "name = \"memory\"", "cluster.toml:LINE: name = \"memory\": is what a host calls its own"),
        (
            "\"switch\"]",
            "\"switch\", \"x\"]",
            "cluster.toml:LINE: between = [\"node*.eth0\", \"switch\", \"x\"]: must be two",
        ),
        (
            "provenance = \"assumed\"",
            "provenance = \"my uncle\"",
            "cluster.toml:LINE: provenance = \"my uncle\": must start",
        ),
        (
            "provenance = \"assumed\"",
            "provenance = \"paper:\"",
            "cluster.toml:LINE: provenance = \"paper:\": must say which",
        ),
        (
            "latency = \"10us\"",
            "latency = \"10us\"\nduplex = \"no\"",
            "cluster.toml:52: duplex = \"no\": is not a duplex: write full or half",
        ),
    ] {
        check(from, to, expected);
    }
}

#[test]
fn wrong_names_are_named_with_the_nearest() {
    for (from, to, expected) in [
        ("cores = 32", "coers = 32", "cluster.toml:LINE: coers = 32: [host.cpu] has no key coers: did you mean cores?"),
        (
            "[[switch]]",
            "[[swich]]",
            "cluster.toml:LINE: [[swich]]: the cluster file has no key swich: did you mean switch?",
        ),
        ("\"switch\"]", "\"swithc\"]", "cluster.toml:LINE: between: \"swithc\": no such name; did you mean switch?"),
        (
            "\"node*.eth0\"",
            "\"node*.eht0\"",
            "cluster.toml:LINE: between: \"node*.eht0\": matches nothing; did you mean node",
        ),
        (
            "\"node*.eth0\"",
            "\"node*\"",
            "cluster.toml:LINE: between: \"node*\": is a host; a link joins parts of hosts, like",
        ),
        (
            "[\"cpu\", \"gpu*\"]",
            "[\"cpu\", \"gup*\"]",
            "cluster.toml:LINE: between: \"gup*\": matches nothing; did you mean cpu, eth0, gpu0?",
        ),
        ("[\"cpu\", \"gpu*\"]", "[\"memory\", \"gpu*\"]", "cluster.toml:LINE: between: \"memory\": no such name"),
        ("\"switch\"]", "\"node1.memory\"]", "cluster.toml:LINE: between: \"node1.memory\": no such name"),
        ("[\"cpu\", \"gpu*\"]", "[\"cpu\", \"cpu\"]", "cluster.toml:LINE: between: \"cpu\": joins a part with itself"),
    ] {
        check(from, to, expected);
    }
}

#[test]
fn missing_and_duplicate_items_are_named() {
    for (from, to, expected) in [
        (
            "bandwidth = \"25Gbit/s\"",
            "",
            "cluster.toml:48: [[link]]: lacks the key bandwidth: add bandwidth = \"10Gbit/s\"",
        ),
        ("cores = 32", "", "cluster.toml:10: [host.cpu]: lacks the key cores: add cores = 16"),
        ("name = \"ethernet-gpu-8\"", "", "cluster.toml:1: the cluster file: lacks the key name"),
        ("[host.cpu]", "[[host.nic]]", "cluster.toml:6: [[host]]: has no CPU; add a [host.cpu] under it"),
        (
            "[[switch]]",
            "[[switch]]\nname = \"switch\"\n[[switch]]",
            "cluster.toml:47: switch: this name is given twice",
        ),
        (
            "[[host.nic]]",
            "[[host.nic]]\nname = \"eth0\"\n[[host.nic]]",
            "cluster.toml:30: eth0: this name is given twice in one host; rename one of the two",
        ),
        ("name = \"eth0\"", "name = \"eth0\"\nname = \"eth0\"", "cluster.toml:30: name: not TOML: duplicate key"),
    ] {
        check(from, to, expected);
    }
    let twice = format!("{GOOD}\n{}", &GOOD[GOOD.find("[[host]]").unwrap()..GOOD.find("[[host.gpu]]").unwrap()]);
    let error = Cluster::parse("c.toml", &twice).unwrap_err().to_string();
    assert_eq!(error, "c.toml:54: node0.cpu: this name is given twice; rename one of the two");
}

#[test]
fn impossible_clusters_are_refused() {
    let unlinked = GOOD.replace("node*.eth0", "node[0-6].eth0");
    let islands = GOOD.replace("[\"cpu\", \"gpu*\"]", "[\"gpu0\", \"gpu*\"]");
    let crowd = GOOD.replace("count = 8", "count = 3000000");
    let mesh = GOOD.replace("count = 8", "count = 9000").replace("\"switch\"]", "\"node*.eth0\"]");
    for (text, expected) in [
        ("", "c.toml:1: is empty; a cluster has a name and at least one [[host]]"),
        ("# nothing\n", "c.toml:1: the cluster file: lacks the key name: add name = \"my-cluster\""),
        ("name = \"x\"", "c.toml:1: has no device; add a [[host]] with its [host.cpu]"),
        ("name = \"x\"\n[[host]]\nname = \"h\"", "c.toml:2: [[host]]: has no CPU; add a [host.cpu] under it"),
        ("name = \"x\"\nhost = 3", "c.toml:2: host = 3: must be tables, each under its own [[host]]"),
        ("name = \"x\"\nhost = [3]", "c.toml:2: host = [3]: must be tables, each under its own [[host]]"),
        ("name = \"x\"\n[[host]]\nname = \"h\"\ncpu = 1", "c.toml:4: cpu = 1: must be a table [host.cpu]"),
        ("{\"json\": true}", "c.toml:1: not TOML: "),
        ("name = \"x\"\nname", "c.toml:2: not TOML: "),
        (&unlinked, "c.toml:6: node7.cpu: cannot be reached from node0.cpu; add a [[link]] or [[host.link]]"),
        (&islands, "c.toml:6: node0.gpu0: cannot be reached from node0.cpu; add a [[link]] or [[host.link]]"),
        (
            &crowd,
            "c.toml:6: ethernet-gpu-8: 15000000 devices, 6000001 NICs, memories and switches and 12000000 wires take about ",
        ),
        (&mesh, "c.toml:50: between: \"node*.eth0\": joins 9000 parts with 9000 others, more than 16000000 wires"),
    ] {
        let error = Cluster::parse("c.toml", text).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "\n     got {error}\nexpected {expected}");
    }
}

#[test]
fn unknown_clusters_are_named_with_the_nearest() {
    for (name, expected) in [
        ("ethernet-5", "--cluster: ethernet-5: no such cluster; did you mean ethernet-4"),
        ("x", "--cluster: x: no such cluster; lockstep clusters list shows those that there are. A file"),
        ("none/such.toml", "--cluster: none/such.toml: cannot be read: "),
    ] {
        let error = Cluster::load(name).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Any damage to the text of a preset gives a cluster or an error with a place, never a panic.
    #[test]
    fn damaged_files_never_panic(
        which in 0usize..3,
        damage in prop::collection::vec((0.0..1.0f64, 0usize..12, "[-\"\\[\\]*.=\n0-9a-zé]{0,4}"), 1..4),
    ) {
        let mut text: Vec<char> = Cluster::presets()[which].1.chars().collect();
        for (place, cut, put) in damage {
            let at = (place * text.len() as f64) as usize;
            text.splice(at..(at + cut).min(text.len()), put.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = Cluster::parse("damaged.toml", &text) {
            prop_assert!(error.place.to_string().starts_with("damaged.toml:"), "{}", error);
            prop_assert!(!error.message.is_empty());
        }
    }
}
