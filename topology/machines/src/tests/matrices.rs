//! Tests nvidia-smi's matrix: paths between devices match their cells, for NVLinks and for every distance.

use super::*;
use proptest::prelude::*;

const DGX_H100: &str = "\
\u{1b}[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m
GPU0\t X \tNV18\tNV18\tNV18\tPIX\tSYS\t0-55,112-167\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\tPXB\tSYS\t0-55,112-167\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tNODE\t56-111,168-223\t1\t\tN/A
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tPIX\t56-111,168-223\t1\t\tN/A
NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tSYS\tNODE\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
";

#[test]
fn the_matrix_of_a_host_with_nvswitch() {
    let read = cluster(DGX_H100, Some("h100-sxm")).unwrap();
    assert_eq!((read.hosts().len(), read.devices().len()), (1, 6));
    // Of four GPUs with 18 NVLinks each; Ampere's switch does not sum.
    let DeviceKind::Switch(switch) = &read.devices()[5].kind else { panic!("no switch that adds") };
    assert_eq!(switch.sums.bytes_per_s(), 1261e9);
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu3"), ["nvswitch", "gpu3"]);
    assert_eq!(route(&read, "node0.gpu1", "node0.gpu2").bandwidth.bytes_per_s(), 450e9);
    // Two sockets of 112 threads each, two per core.
    let DeviceKind::Cpu(cpu) = &read.devices()[0].kind else { panic!("no CPU") };
    assert_eq!(cpu.cores, 112);
    let two = Import { hosts: 2, network: Some("infiniband-ndr".to_owned()), ..import(Some("h100-sxm")) };
    let two = Cluster::parse("w.toml", &toml(DGX_H100, &two)).unwrap();
    // Side by side; one bridge farther; the other NIC of another socket; through the socket.
    for (gpu, first) in [
        (0, vec!["pcie1", "mlx5_0"]),
        (1, vec!["pcie0", "pcie1", "mlx5_0"]),
        (2, vec!["socket1", "pcie2", "mlx5_1"]),
        (3, vec!["pcie2", "mlx5_1"]),
    ] {
        let way = way(&two, &format!("node0.gpu{gpu}"), &format!("node1.gpu{gpu}"));
        assert_eq!(way[..first.len()], first, "gpu{gpu}");
    }
}

/// A CPU that a matrix does not name has one link to the other socket, of the time of its PCI Express.
#[test]
fn sockets_of_unknown_cpus_follow_from_pci_express() {
    let text = " GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X SYS 0-15 0\nGPU1 SYS X 16-31 1\n";
    for (model, rate) in [("v100-pcie", 20.8e9), ("a100-80-pcie", 22.4e9)] {
        let read = cluster(text, Some(model)).unwrap();
        let bridges = read.links().iter().filter(|link| link.kind == LinkKind::HostBridge);
        assert!(bridges.map(|link| link.bandwidth.bytes_per_s()).all(|of_one| (of_one - rate).abs() < 1.0), "{model}");
    }
}

#[test]
fn direct_nvlinks_and_switches_are_distinguished_by_the_number_of_links() {
    let matrix = |count: u32| format!(" GPU0 GPU1 CPU Affinity\nGPU0 X NV{count} 0-7\nGPU1 NV{count} X 0-7\n");
    let read = cluster(&matrix(4), Some("a100-40-sxm")).unwrap();
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["gpu1"]);
    assert_eq!(rates(&read, "gpu0", LinkKind::NvLink), [100.0]);
    let read = cluster(&matrix(12), Some("a100-80-sxm")).unwrap();
    assert_eq!(route(&read, "node0.gpu0", "node0.gpu1").bandwidth.bytes_per_s(), 300e9);
    assert!(
        refused(&matrix(13), Some("a100-80-sxm")).contains("t.txt:2: GPU0: has 13 NVLinks, but a a100-80-sxm has 12")
    );
    assert!(refused(&matrix(1), Some("t4")).contains("has 1 NVLinks, but a t4 has 0"));
    // Older versions name NICs in their columns, and write SOC for SYS.
    let old = "\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nmlx5_0\tSOC\t X \t\n";
    let read = cluster(old, Some("p100-sxm2")).unwrap();
    assert_eq!(rates(&read, "mlx5_0", LinkKind::Pcie).len(), 1);
}

/// The distance of two devices by their places (socket, host bridge, upper bridge, bridge), in the words of the legend.
fn distance(one: [u8; 4], other: [u8; 4]) -> &'static str {
    let same = one.iter().zip(other).take_while(|(a, b)| **a == *b).count();
    ["SYS", "NODE", "PHB", "PXB", "PIX"][same]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Devices at random places of a tree: the path between each two crosses exactly what their cell says.
    #[test]
    fn paths_match_their_cells(mut places in prop::collection::vec([0..2u8, 0..2u8, 0..2u8, 0..2u8], 2..9)) {
        places.sort_unstable();
        let name = |i: usize| format!("GPU{i}");
        let mut text = (0..places.len()).map(name).collect::<Vec<_>>().join(" ") + " CPU Affinity NUMA Affinity\n";
        for (i, place) in places.iter().enumerate() {
            let cell = |(j, other): (usize, &[u8; 4])| if i == j { "X" } else { distance(*place, *other) };
            let cells: Vec<&str> = places.iter().enumerate().map(cell).collect();
            text += &format!("{} {} 0-7 {}\n", name(i), cells.join(" "), place[0]);
        }
        let read = cluster(&text, Some("t4")).unwrap();
        prop_assert_eq!(read.devices().len(), 1 + places.len());
        for one in 0..places.len() {
            for other in 0..one {
                let way = way(&read, &format!("node0.gpu{one}"), &format!("node0.gpu{other}"));
                let bridges = way.iter().filter(|name| name.starts_with("pcie")).count();
                let passes = |part: &str| way.iter().any(|name| name.starts_with(part));
                let sockets = places.iter().map(|place| place[0]).max() != places.iter().map(|place| place[0]).min();
                match distance(places[one], places[other]) {
                    "PIX" => prop_assert!(bridges == 1 && way.len() == 2, "{:?}", way),
                    "PXB" => prop_assert!(bridges >= 1 && !passes("cpu") && !passes("socket"), "{:?}", way),
                    "PHB" | "NODE" if sockets => prop_assert!(passes("socket") && !passes("cpu"), "{:?}", way),
                    _ => prop_assert!(passes("cpu"), "{:?}", way),
                }
            }
        }
    }
}
