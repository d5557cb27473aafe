//! Tests presets of any size, up to 2,048 ranks: all tasks of a step, folded and not.

use lockstep_models::Bucket;
use lockstep_topology::{Cluster, HostingRule};

use super::*;

/// As many hosts of a preset as `ranks` need, on its own network or on another one; `None` where its size is fixed.
fn sized(name: &str, ranks: u32, network: &str) -> Option<World> {
    let all = Cluster::load(name).expect("a preset");
    let on_host = all.hosts()[0].devices.len() as u32;
    let each = if on_host > 1 { on_host - 1 } else { 16 };
    let cluster = Cluster::load(&format!("{name}:{}{network}", ranks / each)).ok()?;
    World::of(cluster, ranks, &HostingRule::PerHost)
}

/// A step on every preset of variable size: `ranks` of them exchange by each of `algorithms`; returns those
/// that folded.
fn steps_on_presets(ranks: u32, network: &str, algorithms: &[&str]) -> Vec<String> {
    let mut folded = Vec::new();
    for (name, _) in Cluster::presets() {
        let Some(world) = sized(name, ranks, network) else { continue };
        for algorithm in algorithms {
            let what = format!("{algorithm} on {name}{network}");
            let program = Job { bucket: Bucket::Whole, ..job(&world, WIDE, algorithm, 256 << 10) }.program();
            if same_tasks(&world, &program.expect("a program"), 1, &what) {
                folded.push(what);
            }
        }
    }
    folded
}

/// A network whose switches have as many ports as make leaves powers of two.
const NDR: &str = "@infiniband-ndr";

#[test]
fn steps_of_2048_ranks() {
    // On their own networks the others have leaves of 18 or 20 ports, routes by hash, or a torus. EFA sprays packets.
    let folded = steps_on_presets(2048, "", &["halving-doubling", "hierarchical:halving-doubling"]);
    let names = [
        "dgx-b200",
        "dgx-h100",
        "dgx-h200",
        "ethernet-4",
        "ethernet-gpu-8",
        "g5.48xlarge",
        "g6.48xlarge",
        "g6e.48xlarge",
        "nd-h100-v5",
        "nd-h200-v5",
        "p4d.24xlarge",
        "p4de.24xlarge",
        "p5.48xlarge",
        "p5en.48xlarge",
        "p6-b200.48xlarge",
    ];
    // On hosts with one NIC beside one of their sockets only what crosses by hosts folds.
    let one_nic = ["g5.48xlarge", "g6.48xlarge"];
    let of = |name: &&str| {
        let flat = (!one_nic.contains(name)).then(|| format!("halving-doubling on {name}"));
        flat.into_iter().chain([format!("hierarchical:halving-doubling on {name}")])
    };
    let own: Vec<String> = names.iter().flat_map(of).collect();
    assert_eq!(folded, own);
    // Half-duplex wires at both ends of a route, NICs on a torus, one host, racks that the ranks do not fill, and routes over two wires
    // that are equal: from GPU to GPU through the memory of one CPU.
    let apart = [
        "gb200-nvl72",
        "gb300-nvl72",
        "k20x8-pcie2",
        "rtx-3090-2",
        "rtx-4090-2",
        "rtx-5090-2",
        "titan-gemini",
        "workstation",
    ];
    let all = Cluster::presets().iter().map(|(name, _)| *name).filter(|name| !apart.contains(name));
    let folded = steps_on_presets(2048, NDR, &["hierarchical:halving-doubling"]);
    assert_eq!(folded, all.map(|name| format!("hierarchical:halving-doubling on {name}{NDR}")).collect::<Vec<_>>());
}

#[test]
fn steps_of_128_ranks() {
    let folded = steps_on_presets(128, "", &ALGORITHMS);
    for preset in ["big-basin-50gbe", "dgx-h100", "ethernet-4", "k20x8-pcie2", "p2.8xlarge", "titanx8-pcie3"] {
        assert!(folded.contains(&format!("ring on {preset}")), "{folded:#?}");
    }
    assert_eq!(folded.len(), 100, "{folded:#?}");
}

/// Eight million messages per preset.
#[test]
#[ignore = "takes minutes: run it with --release"]
fn rings_of_2048_ranks() {
    for network in ["", NDR] {
        let folded = steps_on_presets(2048, network, &["ring", "hierarchical:ring", "library:mpi"]);
        assert!(folded.len() > 10, "{folded:#?}");
    }
}
