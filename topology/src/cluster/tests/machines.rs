//! Tests the presets: each loads, every figure has a source, and known machines behave as their papers say.

use super::device_named as device;
use crate::cluster::*;
use std::collections::BTreeMap;

fn load(name: &str) -> Cluster {
    Cluster::load(name).unwrap_or_else(|error| panic!("{error}"))
}

fn route(cluster: &Cluster, from: &str, to: &str) -> Route {
    cluster.route(device(cluster, from).id, device(cluster, to).id).unwrap()
}

fn names(cluster: &Cluster, from: &str, to: &str) -> Vec<String> {
    let links = route(cluster, from, to).links;
    links.iter().map(|link| cluster.vertex(cluster.link(*link).to).name.clone()).collect()
}

/// The rate of each of some flows where all share each wire evenly: the least over their wires of bandwidth
/// by crossings.
fn even_share(cluster: &Cluster, flows: &[(String, String)]) -> f64 {
    let mut crossings: BTreeMap<WireId, (f64, f64)> = BTreeMap::new();
    for (from, to) in flows {
        for link in route(cluster, from, to).links.iter().map(|link| cluster.link(*link)) {
            if link.sharing == Sharing::Shared {
                crossings.entry(link.wire).or_insert((link.bandwidth.bytes_per_s(), 0.0)).1 += 1.0;
            }
        }
    }
    crossings.values().map(|(bandwidth, count)| bandwidth / count).fold(f64::MAX, f64::min)
}

#[test]
fn every_preset_loads_in_any_number_and_every_figure_has_a_source() {
    for (name, _) in Cluster::presets() {
        let cluster = load(name);
        assert_eq!(cluster.name(), *name);
        assert!(!cluster.description().is_empty(), "{name}");
        for table in cluster.describe().iter().filter(|table| table.title != "fabrics") {
            assert_eq!(table.columns.last(), Some(&"provenance"));
            for row in &table.rows {
                let source: Provenance = row.last().unwrap().parse().unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(!source.evidence.is_empty() || source.kind == Origin::Assumed, "{name}: {row:?}");
            }
        }
    }
    // Those with one host that name a network: the machines that are available in any number.
    let machines =
        Cluster::presets().iter().filter(|(_, text)| text.contains("\ncount = 1\n") && text.contains("\nnetwork = "));
    for name in machines.map(|(name, _)| name) {
        for network in networks().unwrap().into_iter().map(|network| network.name) {
            let cluster = load(&format!("{name}:3@{network}"));
            assert_eq!((cluster.hosts().len(), cluster.fabrics[0].name.as_str()), (3, network.as_str()));
            let last = *cluster.hosts()[2].devices.last().unwrap();
            assert!(cluster.route(DeviceId(1), last).unwrap().links.len() >= 6, "{name} {network}");
        }
    }
    assert_eq!((load("dgx-a100").fabrics.len(), load("dgx-a100:32").fabrics[0].name.as_str()), (0, "infiniband-hdr"));
}

#[test]
fn presets_have_the_machines_of_their_papers() {
    // Hosts, GPUs of a host, model.
    for (name, hosts, gpus, model) in [
        ("k20x8-pcie2", 1, 8, "k20"),
        ("titan-gemini", 32, 1, "k20x"),
        ("big-basin-50gbe", 44, 8, "p100-sxm2"),
        ("minsky-edr", 32, 4, "p100-sxm2"),
        ("titanx8-pcie3", 1, 8, "titan-x-maxwell"),
        ("dgx1-v100", 1, 8, "v100-sxm2-32"),
        ("p2.8xlarge", 1, 8, "k80"),
    ] {
        let cluster = load(name);
        assert_eq!(cluster.hosts().len(), hosts);
        let DeviceKind::Gpu(spec) = &cluster.devices()[1].kind else { panic!("{name}") };
        assert_eq!((cluster.hosts()[0].devices.len() - 1, spec.model.as_str()), (gpus, model));
    }
}

#[test]
fn k20s_across_cpus_get_half_their_rate_when_all_send() {
    let host = load("k20x8-pcie2");
    let pair = |from: u32, to: u32| (format!("node0.gpu{from}"), format!("node0.gpu{to}"));
    // Krizhevsky 2014: under one CPU all at the full rate of 6 GB/s at once.
    let ring: Vec<_> = (0..4).map(|i| pair(i, (i + 1) % 4)).collect();
    assert_eq!(even_share(&host, &ring), 6e9);
    assert_eq!(names(&host, "node0.gpu0", "node0.gpu3"), ["node0.pcie0", "node0.gpu3"]);
    // Across CPUs through host memory: one alone at the full rate but with more latency, all eight at half of it.
    let across = ["node0.pcie0", "node0.cpu", "node0.cpu", "node0.memory", "node0.cpu", "node0.pcie1", "node0.gpu4"];
    assert_eq!(names(&host, "node0.gpu0", "node0.gpu4"), across);
    assert_eq!(route(&host, "node0.gpu0", "node0.gpu4").bandwidth.bytes_per_s(), 6e9);
    let [near, far] = ["node0.gpu1", "node0.gpu4"].map(|to| route(&host, "node0.gpu0", to).latency);
    assert!(far.0 > 2 * near.0);
    let all: Vec<_> = (0..8).map(|i| pair(i, (i + 4) % 8)).collect();
    assert_eq!(even_share(&host, &all), 3e9);
}

#[test]
fn cube_meshes_give_each_gpu_all_its_links() {
    for (name, gb_per_gpu) in [("dgx1-p100", 80), ("big-basin-50gbe:1", 80), ("dgx1-v100", 150), ("p3.16xlarge", 150)] {
        let cluster = load(name);
        for gpu in &cluster.devices()[1..] {
            let own = cluster.links().iter().filter(|link| link.from == gpu.vertex && link.kind == LinkKind::NvLink);
            assert_eq!(own.map(|link| link.bandwidth.bytes_per_s() * 1e-9).sum::<f64>().round(), f64::from(gb_per_gpu));
        }
        // Direct within a quad and to the opposite one, through the host elsewhere.
        assert_eq!(route(&cluster, "node0.gpu0", "node0.gpu3").links.len(), 1);
        assert_eq!(route(&cluster, "node0.gpu1", "node0.gpu5").links.len(), 1);
        let around = names(&cluster, "node0.gpu0", "node0.gpu5");
        assert!(around.contains(&"node0.memory".to_string()), "{around:?}");
    }
    let h100 = load("dgx-h100");
    assert_eq!(names(&h100, "node0.gpu0", "node0.gpu7"), ["node0.nvswitch", "node0.gpu7"]);
    assert_eq!(route(&h100, "node0.gpu0", "node0.gpu7").bandwidth.bytes_per_s(), 450e9);
}

#[test]
fn each_gpu_uses_the_nearest_nic() {
    let cluster = load("dgx-a100:4");
    for gpu in 0..8 {
        let [from, to] = [0, 3].map(|node| format!("node{node}.gpu{gpu}"));
        let way = names(&cluster, &from, &to);
        assert_eq!(way[1], format!("node0.ib{gpu}"), "{way:?}");
        assert!(!way.contains(&"node0.cpu".to_string()));
        assert_eq!(route(&cluster, &from, &to).bandwidth.bytes_per_s(), 25e9);
    }
    // On one NIC for two GPUs, and on the CPU's two NICs by flow.
    let dgx1 = load("dgx1-v100:2");
    assert_eq!(
        [0, 1, 6].map(|gpu| names(&dgx1, &format!("node0.gpu{gpu}"), "node1.gpu0")[1].clone()),
        ["node0.ib0", "node0.ib0", "node0.ib3"]
    );
    let minsky = load("minsky-edr");
    let [from, to] = ["node0.cpu", "node9.cpu"].map(|name| device(&minsky, name).id);
    let nics = [0, 1].map(|flow| {
        let links = minsky.route_of_flow(from, to, flow).unwrap().links;
        minsky.vertex(minsky.link(links[1]).to).name.clone()
    });
    assert_eq!(nics, ["node0.ib0", "node0.ib1"]);
}

#[test]
fn machines_have_the_gpus_links_and_nics_of_their_data_sheets() {
    // GPUs of a host, NICs, GB/s of a GPU by its links to other GPUs, Gbit/s of a NIC.
    for (name, gpus, nics, gpu_gb, nic_gbit) in [
        ("dgx-2", 16, 8, 150, 100),
        ("dgx-b200", 8, 8, 900, 400),
        ("gb200-nvl72", 72, 72, 900, 400),
        ("gb300-nvl72", 72, 72, 900, 800),
        ("mi300x-8", 8, 8, 448, 400),
        ("p2.16xlarge", 16, 1, 0, 25),
        ("p4d.24xlarge", 8, 4, 300, 100),
        ("p4de.24xlarge", 8, 4, 300, 100),
        ("p5.48xlarge", 8, 32, 450, 100),
        ("p5en.48xlarge", 8, 16, 450, 200),
        ("p6-b200.48xlarge", 8, 8, 900, 400),
        ("a3-highgpu-8g", 8, 4, 450, 200),
        ("a3-megagpu-8g", 8, 8, 450, 200),
        ("nd40rs-v2", 8, 1, 150, 100),
        ("nd96amsr-a100-v4", 8, 8, 300, 200),
        ("nd-h100-v5", 8, 8, 450, 400),
        ("nd-h200-v5", 8, 8, 450, 400),
    ] {
        let cluster = load(&format!("{name}:2"));
        assert_eq!(cluster.hosts()[0].devices.len(), 1 + gpus, "{name}");
        let host = cluster.hosts()[0].id;
        let ports: Vec<&Link> = cluster
            .links()
            .iter()
            .filter(|link| {
                let from = cluster.vertex(link.from);
                from.host == Some(host) && from.kind == VertexKind::Nic && cluster.vertex(link.to).host.is_none()
            })
            .collect();
        assert_eq!(ports.len(), nics, "{name}");
        assert!(ports.iter().all(|port| port.bandwidth.bytes_per_s() == f64::from(nic_gbit) / 8.0 * 1e9), "{name}");
        let first = cluster.devices()[1].vertex;
        let to_gpus = |link: &&Link| {
            let far = cluster.vertex(link.to);
            link.from == first
                && (far.name.ends_with("nvswitch") || link.from != link.to && matches!(far.kind, VertexKind::Gpu(_)))
        };
        let rate: f64 = cluster.links().iter().filter(to_gpus).map(|link| link.bandwidth.bytes_per_s() * 1e-9).sum();
        assert_eq!(rate.round(), f64::from(gpu_gb), "{name}");
        // No route between GPUs of a host goes through its CPU, except where a cube mesh has no link.
        let last = format!("node0.gpu{}", gpus - 1);
        let way = names(&cluster, "node0.gpu0", &last);
        assert!(name == "nd40rs-v2" || !way.contains(&"node0.cpu".to_owned()), "{name}: {way:?}");
        // A GPU leaves its host by a NIC beside it, through no CPU.
        let way = names(&cluster, "node0.gpu0", "node1.gpu0");
        let by_cpu = way.contains(&"node0.cpu".to_owned());
        assert_eq!(by_cpu, name == "p2.16xlarge", "{name}: {way:?}");
    }
}

#[test]
fn boards_on_pci_express_meet_in_their_host() {
    // GPUs of a host, Gbit/s of all its NICs, whether the driver lets GPUs read each other's memory.
    for (name, gpus, gbit, direct) in [
        ("g5.48xlarge", 8, 100, false),
        ("g6.48xlarge", 8, 100, false),
        ("g6e.48xlarge", 8, 400, false),
        ("rtx-3090-2", 2, 10, false),
        ("rtx-4090-2", 2, 10, false),
        ("rtx-5090-2", 2, 10, false),
        ("rtx-a6000-4", 4, 10, true),
    ] {
        let cluster = load(&format!("{name}:2"));
        assert_eq!(cluster.hosts()[0].devices.len(), 1 + gpus, "{name}");
        let leaves = |link: &&Link| {
            let (from, to) = (cluster.vertex(link.from), cluster.vertex(link.to));
            from.host == Some(cluster.hosts()[0].id) && from.kind == VertexKind::Nic && to.host.is_none()
        };
        let rate: f64 = cluster.links().iter().filter(leaves).map(|link| link.bandwidth.bytes_per_s() * 8e-9).sum();
        assert_eq!(rate.round(), f64::from(gbit), "{name}");
        let way = names(&cluster, "node0.gpu0", &format!("node0.gpu{}", gpus - 1));
        let staged = way.contains(&"node0.memory".to_owned());
        assert_eq!(staged, !direct && name != "rtx-3090-2", "{name}: {way:?}");
    }
}

#[test]
fn the_gemini_torus_has_its_own_rate_in_each_dimension() {
    let titan = load("titan-gemini");
    assert_eq!(titan.describe()[4].rows[0][1..3], ["torus", "3 x 3 x 2, 2 a router"]);
    let rates: Vec<&str> = titan.describe()[2].rows[3..].iter().map(|row| row[4].as_str()).collect();
    assert_eq!(rates, ["9.375", "4.688", "9.375"]);
    // Without GPUDirect, GPU to NIC is through host memory at both ends.
    let way = names(&titan, "node0.gpu0", "node2.gpu0");
    assert_eq!(way.iter().filter(|name| name.ends_with(".memory")).count(), 2);
    assert_eq!(way[4..8], ["node0.gemini0", "gemini.r0-0-0", "gemini.r1-0-0", "node2.gemini0"].map(str::to_string));
}

#[test]
fn copies_from_pageable_memory_use_a_bounce_buffer() {
    let host = load("titanx8-pcie3");
    let [cpu, gpu] = ["node0.cpu", "node0.gpu0"].map(|name| device(&host, name).id);
    let kinds = |from, to, buffer| {
        let route = host.copy(from, to, buffer).unwrap();
        let memory = |link: &&LinkId| host.link(**link).kind == LinkKind::HostMemory;
        (route.links.iter().filter(memory).count(), (route.bandwidth.bytes_per_s() * 1e-8).round())
    };
    // Pinned: the slot's 15.75 GB/s; pageable: a core's 6 GB/s, and the memory is read, written and read.
    assert_eq!(kinds(cpu, gpu, HostBuffer::Pinned), (1, 158.0));
    assert_eq!(kinds(cpu, gpu, HostBuffer::Pageable), (3, 60.0));
    assert_eq!(kinds(gpu, cpu, HostBuffer::Pinned), (1, 158.0));
    assert_eq!(kinds(gpu, cpu, HostBuffer::Pageable), (3, 60.0));
    let first = host.copy(cpu, gpu, HostBuffer::Pinned).unwrap().links[0];
    assert_eq!(host.vertex(host.link(first).from).name, "node0.memory");
    assert!(host.copy(cpu, cpu, HostBuffer::Pinned).is_err());
}

#[test]
fn asymmetric_and_mixed_clusters_work_like_any_other() {
    let host = |name: &str, model: &str, gpus: u32| {
        format!(
            "[[host]]\nname = \"{name}\"\ncpu = {{ cores = 8, flops_per_core = \"40GFLOP/s\", memory_bandwidth = \"60GB/s\", \
             memory = \"64GiB\", message_latency = \"1us\", message_bandwidth = \"8GB/s\" }}\n[[host.gpu]]\nname = \"gpu\"\n\
             count = {gpus}\nmodel = \"{model}\"\n[[host.nic]]\nname = \"eth0\"\n[[host.link]]\nbetween = [\"cpu\", \"*\"]\n\
             latency = \"1us\"\npcie = \"3.0 x16\"\n"
        )
    };
    let text =
        format!("name = \"mixed\"\nnetwork = \"ethernet-25g\"\n{}{}", host("a", "v100-pcie", 4), host("b", "t4", 6));
    let cluster = Cluster::parse("c.toml", &text).unwrap();
    assert_eq!(cluster.hosts().iter().map(|host| host.devices.len()).collect::<Vec<_>>(), [5, 7]);
    let expected = ["a.cpu", "a.eth0", "ethernet-25g.switch0", "b.eth0", "b.cpu", "b.gpu5"];
    assert_eq!(names(&cluster, "a.gpu3", "b.gpu5"), expected);
    let placed = crate::Placement::new(&cluster, 10, &crate::PlacementRule::Pack).unwrap();
    assert_eq!(placed.node_sizes(&placed.all().collect::<Vec<_>>()), [4, 6]);
}
