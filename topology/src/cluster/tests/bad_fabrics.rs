//! Tests every kind of bad fabric or order: the error names file, line, value and cure.

use crate::cluster::*;

const HEAD: &str = "name = \"x\"\n[[host]]\nname = \"h\"\ncount = 8\ncpu = { cores = 1, flops_per_core = \"1GFLOP/s\", \
                    memory_bandwidth = \"1GB/s\", memory = \"1GiB\", message_latency = \"1us\", \
                    message_bandwidth = \"1GB/s\" }\n[[host.nic]]\nname = \"n\"\n[[host.link]]\nbetween = [\"cpu\", \
                    \"n\"]\nlatency = \"1us\"\npcie = \"3.0 x8\"\n[[fabric]]\nname = \"f\"\nkind = \"KIND\"\n\
                    attach = \"h*.n\"\nwire = \"ethernet\"\nlatency = \"1us\"\nbandwidth = \"1GB/s\"\n";

fn error(kind: &str, rest: &str) -> String {
    let text = format!("{}{rest}\n", HEAD.replace("KIND", kind));
    Cluster::parse("c.toml", &text).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn impossible_fabrics_are_refused_with_their_cure() {
    for (kind, rest, expected) in [
        (
            "fat-tree",
            "down = [2, 3]",
            "c.toml:12: name = \"f\": has room for 6 and attaches 8; attach fewer or write larger",
        ),
        (
            "torus",
            "shape = [3, 2]",
            "c.toml:12: name = \"f\": has room for 6 and attaches 8; attach fewer or write a larger",
        ),
        ("fat-tree", "", "c.toml:12: [[fabric]]: lacks the key down: add down = [16, 8]"),
        ("fat-tree", "down = []", "c.toml:12: [[fabric]]: lacks the key down"),
        ("fat-tree", "down = [0, 8]", "c.toml:19: 0: down must be a whole number from 1 to 1000000"),
        ("fat-tree", "down = [8, -1]", "c.toml:19: -1: down must be a whole number"),
        (
            "fat-tree",
            "down = [4, 2]\nup = [1, 1]",
            "c.toml:12: [[fabric]]: up has 2 numbers; down has 2, so it must have 1",
        ),
        ("fat-tree", "down = [4, 2]\nparallel = [1, 1]", "c.toml:12: [[fabric]]: up has 0 numbers; down has 2"),
        (
            "fat-tree",
            "down = [4, 2]\noversubscription = 0",
            "c.toml:20: oversubscription = 0: oversubscription must be a number from 0.001",
        ),
        (
            "fat-tree",
            "down = [4, 2]\noversubscription = nan",
            "c.toml:20: oversubscription = nan: oversubscription must be a number",
        ),
        (
            "fat-tree",
            "down = [4, 2]\nup = [1]\noversubscription = 2",
            "c.toml:12: [[fabric]]: has both up and oversubscription",
        ),
        ("fat-tree", "down = [4, 2]\nports = 4", "c.toml:12: [[fabric]]: has both ports and down; keep one"),
        ("fat-tree", "ports = 1", "c.toml:19: ports = 1: leaves no port for a host"),
        ("fat-tree", "ports = 2", "c.toml:12: name = \"f\": switches of 2 ports make no tree for 8 hosts"),
        (
            "fat-tree",
            "down = [8, 8]\nshape = [2]",
            "c.toml:20: shape = [2]: means nothing to a fat-tree, which has down,",
        ),
        ("torus", "", "c.toml:12: [[fabric]]: lacks the key shape: add shape = [4, 4, 2], or dimensions = 3"),
        ("torus", "shape = [4]\ndimensions = 2", "c.toml:12: [[fabric]]: has both shape and dimensions; keep one"),
        ("torus", "shape = [4, 4]\nrouting = \"ecmp\"", "c.toml:20: routing = \"ecmp\": does not go with a torus"),
        ("torus", "shape = [4, 4]\nrouting = \"spray\"", "c.toml:20: routing = \"spray\": does not go with a torus"),
        ("star", "routing = \"dimension-order\"", "c.toml:19: routing = \"dimension-order\": does not go with a star"),
        ("star", "routing = \"best\"", "c.toml:19: routing = \"best\": is not a routing: write lowest, ecmp"),
        ("rails", "ports = 4\nspines = 2", "c.toml:20: spines = 2: has no place beside ports"),
        ("rails", "oversubscription = 2", "c.toml:19: oversubscription = 2: needs ports, of each switch"),
        ("rails", "ports = 2", "c.toml:12: name = \"f\": switches of 2 ports make no tree for 8 hosts"),
        ("torus", "shape = [4, 4]\nsums = \"1TB/s\"", "c.toml:20: sums = \"1TB/s\": means nothing to a torus"),
        ("star", "sums = \"0GB/s\"", "c.toml:19: sums = \"0GB/s\": must be positive"),
        ("star", "seed = 1", "c.toml:19: seed = 1: means nothing to a star, which has sums"),
        ("star", "routing = \"ecmp\"", "c.toml:19: routing = \"ecmp\": does not go with a star"),
        ("fat-tree", "down = [8, 8]\nseed = 1", "c.toml:20: seed = 1: is read with routing = \"ecmp\" alone"),
        (
            "fat-tree",
            "down = [8, 8]\nrouting = \"ecmp\"\nseed = -1",
            "c.toml:21: seed = -1: seed must be a whole number from 0",
        ),
        ("star", "shpae = 1", "c.toml:19: shpae = 1: [[fabric]] has no key shpae: did you mean shape"),
        ("stra", "", "c.toml:14: kind = \"stra\": is not a kind of fabric; there are star, fat-tree, rails, torus"),
        (
            "torus",
            "shape = [4, 4]\ntrunk_bandwidth = [\"1GB/s\", \"2GB/s\", \"3GB/s\"]",
            "c.toml:20: trunk_bandwidth = [\"1GB/s\", \"2GB/s\", \"3GB/s\"]: 3 values for the wires between switches; give",
        ),
        (
            "torus",
            "shape = [4, 4]\ntrunk_bandwidth = [\"0GB/s\"]",
            "c.toml:20: trunk_bandwidth: \"0GB/s\": must be positive",
        ),
    ] {
        let error = error(kind, rest);
        assert!(error.starts_with(expected), "\n     got {error}\nexpected {expected}");
    }
}

#[test]
fn loops_and_double_cables_are_refused() {
    let two = |attach: &str| {
        let fabric = |name: &str, attach: &str| {
            format!(
                "[[fabric]]\nname = \"{name}\"\nkind = \"star\"\nattach = {attach}\nwire = \"ethernet\"\nlatency = \"1us\"\n\
                 bandwidth = \"1GB/s\"\n"
            )
        };
        let head = &HEAD[..HEAD.find("[[fabric]]").unwrap()];
        let text = format!("{head}[[switch]]\nname = \"s\"\n{}{}", fabric("f", "\"h*.n\""), fabric("g", attach));
        Cluster::parse("c.toml", &text).map(|_| ()).unwrap_err().to_string()
    };
    for (attach, expected) in [
        (
            "\"g.switch0\"",
            "c.toml:24: attach = \"g.switch0\": attaches the fabric g to itself; attach NICs, CPUs or GPUs",
        ),
        ("\"f.switch*\"", "c.toml:24: attach = \"f.switch*\": attaches the fabric g to another fabric; attach NICs"),
        ("\"s\"", "c.toml:24: attach = \"s\": s is a switch; a fabric attaches NICs, CPUs or GPUs of hosts"),
        ("\"h3.n\"", "c.toml:21: h3.n: is attached twice; a port has one cable, so give each fabric a NIC of its own"),
        ("[\"h*.cpu\", \"h0.cpu\"]", "c.toml:21: h0.cpu: is attached twice"),
        ("\"k*.n\"", "c.toml:24: attach = \"k*.n\": matches nothing; did you mean"),
        ("[]", "c.toml:24: attach = []: attach must have at least one item"),
        ("[3]", "c.toml:24: 3: attach must be a text in quotes"),
    ] {
        let error = two(attach);
        assert!(error.starts_with(expected), "\n     got {error}\nexpected {expected}");
    }
}

#[test]
fn fabrics_too_large_for_memory_are_refused_with_their_bytes() {
    for (kind, rest) in [
        ("fat-tree", "down = [1000000, 1000000, 1000000, 1000000]\nup = [1000000, 1000000, 1000000]"),
        ("fat-tree", "down = [8, 1]\nup = [1000000]\nparallel = [1000000]"),
        ("torus", "shape = [1000000, 1000000, 1000000, 1000000]"),
        ("torus", "shape = [300, 300, 300]"),
    ] {
        let error = error(kind, rest);
        assert!(error.starts_with("c.toml:12: name = \"f\": 8 devices, "), "{error}");
        assert!(error.contains(" take about ") && error.contains("iB, more than 4GiB; lower a count"), "{error}");
    }
    let error = Cluster::load("dgx-h100:4000000").unwrap_err().to_string();
    assert!(error.contains("clusters/dgx-h100.toml:") && error.contains(", more than 4GiB; lower a count"), "{error}");
}

#[test]
fn invalid_orders_are_refused() {
    for (asked, expected) in [
        ("dgx-a101", "--cluster: dgx-a101: no such cluster; did you mean dgx-a100"),
        ("dgx-a101:32", "--cluster: dgx-a101:32: no such cluster; did you mean dgx-a100"),
        (
            "dgx-a100:",
            "--cluster: dgx-a100:: \"\" must be a number of hosts from 1 to 4000000, as in dgx-a100:32@infini",
        ),
        ("dgx-a100:0", "--cluster: dgx-a100:0: \"0\" must be a number of hosts from 1"),
        ("dgx-a100:many", "--cluster: dgx-a100:many: \"many\" must be a number of hosts"),
        (
            "dgx-a100:2@infinband-hdr",
            "--cluster: dgx-a100:2@infinband-hdr: there is no network \"infinband-hdr\"; did you mean infiniband-hdr",
        ),
        ("dgx-a100@", "--cluster: dgx-a100@: there is no network \"\"; did you mean "),
        ("workstation:4@ethernet-10g", "--cluster: workstation:4@ethernet-10g: there is no NIC to attach"),
    ] {
        let error = Cluster::load(asked).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "\n     got {error}\nexpected {expected}");
    }
    let text =
        HEAD[..HEAD.find("[[fabric]]").unwrap()].replace("name = \"x\"", "name = \"x\"\nnetwork = \"ethernet-11g\"");
    let error = Cluster::parse("c.toml", &text).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.starts_with("c.toml:2: network = \"ethernet-11g\": there is no network \"ethernet-11g\"; did you"),
        "{error}"
    );
}
