//! Tests that the clusters that ship with the project and the documentation's example have the stated figures.

use super::device_named;
use crate::cluster::*;
use crate::{Bytes, Time};

#[test]
fn presets_match_their_names() {
    // Name, hosts, cores of a host, GPUs of a host, bandwidth between the first and the last device in
    // bytes per second.
    for (name, hosts, cores, gpus, wire) in
        [("workstation", 1, 16, 0, 8e9), ("ethernet-4", 4, 16, 0, 1.25e9), ("ethernet-gpu-8", 8, 32, 4, 3.125e9)]
    {
        let cluster = Cluster::load(name).unwrap();
        assert_eq!((cluster.name(), cluster.hosts().len()), (name, hosts));
        for host in cluster.hosts() {
            assert_eq!(host.devices.len(), 1 + gpus);
            let DeviceKind::Cpu(cpu) = &cluster.devices()[host.devices[0].0 as usize].kind else { panic!("{name}") };
            assert_eq!(cpu.cores, cores);
        }
        let last = DeviceId(cluster.devices().len() as u32 - 1);
        assert_eq!(cluster.route(DeviceId(0), last).unwrap().bandwidth.bytes_per_s(), wire);
    }
}

#[test]
fn every_figure_has_a_source_and_is_shown() {
    let cluster = Cluster::load("ethernet-gpu-8").unwrap();
    assert!(cluster.devices()[1].provenance.to_string().starts_with("datasheet: NVIDIA Tesla V100"));
    assert_eq!(cluster.devices()[0].provenance.to_string(), "assumed");
    let tables = cluster.describe();
    assert_eq!(tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [1, 1, 3, 3, 0, 0]);
    for table in tables {
        table.rows.iter().for_each(|row| assert_eq!(row.len(), table.columns.len(), "{}", table.title));
    }
    let ethernet = ["node*.eth0 - switch", "8", "ethernet", "10.000", "3.125", "full", "assumed"];
    assert_eq!(tables[2].rows[2], ethernet);
    let tcp = ["node*.eth0 - switch", "tcp", "94.1", "1.000", "1.000", "516KiB", "stream", "window 4MiB"];
    assert_eq!(tables[3].rows[2][..8], tcp);
    assert_eq!(tables[0].rows[0][..3], ["node0..node7", "8", "32"]);
}

#[test]
fn the_documented_example_gives_the_documented_figures() {
    let page = include_str!("../../../../docs/clusters.md");
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let cluster = Cluster::parse("docs/clusters.md", example).unwrap();
    // Two hosts x (CPU and 2 GPUs), and a storage host.
    assert_eq!((cluster.hosts().len(), cluster.devices().len()), (3, 7));
    let [gpu, peer, far] = ["node0.gpu0", "node0.gpu1", "node1.gpu0"].map(|name| device_named(&cluster, name).id);
    assert_eq!(cluster.route(gpu, peer).unwrap().latency, Time::from_nanos(700));
    // gpu, PCIe 1 us, cpu, PCIe 0.6 us, ib0, 0.5 us, switch, and the same back up: 4.2 us.
    let route = cluster.route(gpu, far).unwrap();
    assert_eq!((route.latency, route.links.len()), (Time::from_nanos(4_200), 6));
    assert!(page.contains("4.2 us"), "the page states the latency that this test holds");
}

#[test]
fn the_documented_fabric_gives_the_documented_figures() {
    let page = include_str!("../../../../docs/clusters.md");
    let example = page.split("```toml\n").find(|part| part.contains("four-racks")).unwrap();
    let cluster = Cluster::parse("docs/clusters.md", example.split("```").next().unwrap()).unwrap();
    assert_eq!(cluster.switches().count(), 4 + 8);
    assert_eq!(cluster.fabrics[0].bisection, 200e9);
    let [from, to] = ["node0.cpu", "node63.cpu"].map(|name| device_named(&cluster, name).id);
    assert_eq!(cluster.route(from, to).unwrap().latency, Time::from_nanos(3_000));
    for stated in ["200 GB/s", "= 3 us", "4 leaves and 8 spines"] {
        assert!(page.contains(stated), "{stated}");
    }
}

#[test]
fn one_measured_host_is_a_cluster() {
    let spec = CpuSpec {
        cores: 2,
        flops_per_core_s: 50e9,
        memory_bandwidth: "20GB/s".parse().unwrap(),
        memory: Bytes(1 << 33),
        message_wake: Time::ZERO,
    };
    let (latency, rate) = (Time::from_nanos(900), "15GB/s".parse().unwrap());
    let source = Origin::Measured.with("lockstep calibrate");
    let cluster = Cluster::one_host(spec.clone(), latency, rate, &[], source.clone()).unwrap();
    let route = cluster.route(DeviceId(0), DeviceId(0)).unwrap();
    // A message is written to memory and read from it: 20 GB/s carry 10 GB/s of messages, less than a core's 15 GB/s.
    assert_eq!((route.latency, route.bandwidth.bytes_per_s()), (latency, 10e9));
    assert_eq!(cluster.describe()[0].rows[0].last().unwrap(), "measured: lockstep calibrate");
    for wrong in [CpuSpec { cores: 0, ..spec.clone() }, CpuSpec { flops_per_core_s: f64::NAN, ..spec }] {
        assert!(Cluster::one_host(wrong, latency, rate, &[], source.clone()).is_err());
    }
}
