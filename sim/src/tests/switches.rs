//! Compares sums in switches and NCCL's protocols by messages with closed forms and with NCCL's own model, and folded
//! with unfolded.

use lockstep_topology::{
    Algorithm, Cluster, Collective, Group, Hosting, HostingRule, InputError, Placement, PlacementRule,
};

use crate::error::SimError;
use crate::fold::FoldRule;
use crate::{CollectiveRun, CollectiveTime, Platform, Roofline, simulate_collective};

/// A collective of `bytes` among the first GPUs of a cluster.
fn timed(cluster: &str, algorithm: &str, ranks: u32, bytes: u64, fold: FoldRule) -> Result<CollectiveTime, SimError> {
    let cluster = Cluster::load(cluster)?;
    let algorithm: Algorithm = algorithm.parse()?;
    let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack)?.and_switches(
        &cluster,
        &algorithm.joined(ranks),
        &algorithm,
    )?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let members: Vec<_> = placement.all().collect();
    let group = match algorithm.by_nodes() {
        true => Group::nodes(&placement.node_sizes(&members)),
        false => Group::flat(placement.ranks()),
    };
    let run = CollectiveRun { fold, ..CollectiveRun::new(Collective::AllReduce, algorithm, group, bytes / 4) };
    simulate_collective(&run, &Platform::new(&cluster, &placement, &hosting, &Roofline))
}

/// Its seconds.
fn seconds(cluster: &str, algorithm: &str, ranks: u32, bytes: u64, fold: FoldRule) -> Result<f64, SimError> {
    Ok(timed(cluster, algorithm, ranks, bytes, fold)?.time.as_secs_f64())
}

fn folded(cluster: &str, algorithm: &str, ranks: u32, bytes: u64) -> f64 {
    seconds(cluster, algorithm, ranks, bytes, FoldRule::Exact).expect("a time")
}

/// Eight buffers and the sum that heads return pass the switch's adders: lower bounds are n·9 at their rate and n(1 +
/// 1/8) at the links' payload rate. Large buffers come close to the former, and to NCCL's own model.
#[test]
fn a_large_sum_is_bounded_by_the_switch() {
    let bytes = 1u64 << 30;
    for (cluster, line, sums) in [("dgx-h100", 450e9, 2.52e12), ("dgx-b200", 900e9, 4.27e12)] {
        let least = f64::max(bytes as f64 * 1.125 / (line * 256.0 / 272.0), bytes as f64 * 9.0 / sums);
        let time = folded(cluster, "nvls", 8, bytes);
        assert!(time >= least && time < 1.05 * least, "{cluster}: {time} beside {least}");
    }
    for cluster in ["dgx-h100", "dgx-b200"] {
        // NCCL's chunks are whole from 4 GiB on.
        let bytes = 1 << 32;
        let ratio = folded(cluster, "nvls", 8, bytes) / folded(cluster, "library:nccl:nvls", 8, bytes);
        assert!((0.9..1.1).contains(&ratio), "{cluster}: {ratio} of NCCL's model");
    }
    assert!(folded("dgx-h100", "nvls", 8, bytes) < folded("dgx-h100", "rings:8", 8, bytes));
}

/// Two nodes exchange S, a ring twice as much less a part: with all NICs busy the switches are faster.
#[test]
fn switches_of_two_nodes_halve_the_traffic_of_nics() {
    let bytes = 256u64 << 20;
    let nics = 8.0 * 50e9 * 4096.0 / 4122.0;
    let time = folded("dgx-h100:2", "nvls-tree:2", 16, bytes);
    assert!(time > bytes as f64 / nics, "{time}");
    assert!(time < folded("dgx-h100:2", "rings:8", 16, bytes));
}

/// On rails each node sends its sum once over all NICs, whatever the number of nodes. The lower bound is n over their
/// rate, or the time of a node's switch; large buffers come close to it. A ring sends twice as much. Chains in nodes
/// send 2n over NVLink and are for middle sizes.
#[test]
fn switches_between_nodes_receive_the_sum_of_each_node_once() {
    let bytes = 1u64 << 30;
    let nics = 8.0 * 50e9 * 4096.0 / 4122.0;
    for nodes in [2u32, 4] {
        let cluster = format!("dgx-h100:{nodes}@infiniband-ndr-rails");
        let time = folded(&cluster, &format!("nvls-collnet:{nodes}:8"), 8 * nodes, bytes);
        // In a node, eight contributions and the data that the heads return pass the switch's adders.
        let least = f64::max(bytes as f64 / nics, bytes as f64 * 9.0 / 2.52e12);
        assert!(time >= least && time < 1.1 * least, "{nodes}: {time} beside {least}");
        assert!(time < folded(&cluster, "rings:8", 8 * nodes, bytes));
        let chains = folded(&cluster, &format!("collnet:{nodes}:8"), 8 * nodes, bytes);
        assert!(chains >= 2.0 * bytes as f64 / 450e9, "{nodes}: {chains}");
        let small = |algorithm: &str| folded(&cluster, algorithm, 8 * nodes, 1 << 20);
        assert!(small(&format!("collnet:{nodes}:8")) < small("rings:8"));
    }
    // Four nodes share a leaf of the plain tree, where one switch adds all shares.
    let time = folded("dgx-h100:4", "collnet:4:1", 32, 1 << 26);
    assert!(time >= (1u64 << 26) as f64 / 50e9, "{time}");
}

/// A switch that adds half as fast slows everything down, since all that members send passes it.
#[test]
fn the_rate_of_the_switch_matters() {
    let text = Cluster::presets().iter().find(|(name, _)| *name == "dgx-h100").expect("a preset").1;
    let of = |sums: &str| -> Result<f64, InputError> {
        let cluster = Cluster::parse("slow.toml", &text.replace("sums = \"2.52TB/s\"", sums))?;
        let algorithm: Algorithm = "nvls".parse()?;
        let placement = Placement::new(&cluster, 8, &PlacementRule::Pack)?.and_switches(
            &cluster,
            &algorithm.joined(8),
            &algorithm,
        )?;
        let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
        let run = CollectiveRun::new(Collective::AllReduce, algorithm, Group::flat(9), 1 << 26);
        let platform = Platform::new(&cluster, &placement, &hosting, &Roofline);
        Ok(simulate_collective(&run, &platform).expect("a time").time.as_secs_f64())
    };
    // 8 contributions and the sum that heads return pass the adders.
    let least = (9u64 << 28) as f64 / 450e9;
    let slow = of("sums = \"450GB/s\"").expect("a time");
    assert!(slow >= least && slow < 1.1 * least, "{slow} beside {least}");
    let refused = of("").expect_err("no switch adds").to_string();
    assert!(refused.contains("none of cluster dgx-h100 adds") && refused.contains("sums"), "{refused}");
}

/// From 1 MiB on, messages of rings with NCCL's protocols take 0.7 to 1.15 times as long as NCCL's model without its
/// launch, which is not a message.
#[test]
fn rings_with_protocols_are_close_to_the_nccl_model() {
    const LAUNCH: f64 = 16e-6;
    for (cluster, ranks) in [("dgx-a100", 8), ("dgx-h100", 8)] {
        for protocol in ["simple", "ll128", "ll"] {
            for log in [20, 24, 28, 30] {
                let lanes = folded(cluster, &format!("rings:16:{protocol}"), ranks, 1 << log);
                let model = folded(cluster, &format!("library:nccl:ring:{protocol}:16"), ranks, 1 << log) - LAUNCH;
                let ratio = lanes / model;
                assert!((0.7..1.15).contains(&ratio), "{cluster} {protocol} 2^{log}: {ratio}");
            }
        }
    }
}

/// LL is faster for small buffers, Simple for large ones; without a protocol nothing changes.
#[test]
fn each_protocol_is_fastest_for_its_sizes() {
    let of = |protocol: &str, bytes| folded("dgx-a100", &format!("rings:8:{protocol}"), 8, bytes);
    assert!(of("ll", 1 << 14) < of("ll128", 1 << 14) && of("ll128", 1 << 14) < of("simple", 1 << 14));
    assert!(of("simple", 1 << 28) < of("ll128", 1 << 28) && of("ll128", 1 << 28) < of("ll", 1 << 28));
    let tree = |protocol: &str| folded("dgx-a100:4", &format!("double-tree:8:{protocol}"), 32, 1 << 14);
    assert!(tree("ll") < tree("simple"));
}

#[test]
fn ranks_of_rings_with_a_protocol_fold() {
    for (cluster, algorithm, ranks) in
        [("dgx-a100", "rings:4:ll", 8), ("dgx-a100:4", "rings:8:simple", 32), ("dgx-h100", "nvls", 8)]
    {
        let of = |fold| seconds(cluster, algorithm, ranks, 1 << 22, fold).expect("a time");
        assert_eq!(of(FoldRule::Exact), of(FoldRule::Never), "{cluster} {algorithm}");
    }
}

#[test]
fn algorithms_that_links_do_not_support_are_refused_with_the_cure() {
    for (cluster, algorithm, ranks, cure) in [
        ("dgx-a100", "nvls", 8, "use ring, or a cluster whose NVSwitch does"),
        ("dgx-h100:2", "nvls", 16, "use as many nodes as hosts"),
        ("dgx-h100:16", "collnet:16:8", 128, "use a network of rails"),
        ("dgx-h100:2@roce-400g", "collnet:2:8", 16, "a network whose switches do"),
        ("dgx-h100:16", "nvls-collnet:16:8", 8, "8 ranks fill 8 nodes at most"),
        ("dgx-h100:2", "nvls-tree:2", 12, "no switch that adds joins ranks 6 to 11"),
        ("ethernet-4", "rings:2:ll", 4, "leave the protocol out"),
        ("titanx8-pcie3", "rings:2:simple", 8, "leave the protocol out"),
        ("p4d.24xlarge:2", "rings:4:ll128", 16, "use ll or simple"),
    ] {
        let refusal = seconds(cluster, algorithm, ranks, 1 << 20, FoldRule::Exact).expect_err(cure).to_string();
        assert!(refusal.contains(cure) && refusal.contains("--algorithm"), "{cluster} {algorithm}: {refusal}");
    }
    let refusal =
        seconds("dgx-h100:16", "collnet:16:8", 8, 1 << 20, FoldRule::Exact).expect_err("too few ranks").to_string();
    assert!(refusal.contains("use at least a node each"), "{refusal}");
}

/// Where no model of NCCL applies, its time is that of one ring, and a note says so.
#[test]
fn nccl_without_a_model_is_one_ring_with_a_note() {
    let of = |cluster: &str, algorithm: &str| timed(cluster, algorithm, 8, 1 << 20, FoldRule::Exact).expect("a time");
    let (nccl, ring) = (of("titanx8-pcie3", "library:nccl:tree"), of("titanx8-pcie3", "ring"));
    assert_eq!(nccl.time, ring.time);
    assert!(nccl.notes.iter().any(|note| note.contains("as one ring")), "{:?}", nccl.notes);
    assert_eq!((ring.notes, of("dgx-a100", "library:nccl").notes), (Vec::new(), Vec::new()));
}
