//! `World`: builds clusters with ranks on them for the crate's tests.

use lockstep_topology::cluster::{CpuSpec, Origin};
use lockstep_topology::{Bandwidth, Bytes, Cluster, Hosting, HostingRule, Placement, PlacementRule, Time};

use crate::{Costs, NetworkModel, Platform};

/// A cluster with ranks, without costs.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) placement: Placement,
    pub(crate) hosting: Hosting,
}

impl World {
    /// Ranks that fill a cluster in order.
    pub(crate) fn new(cluster: Cluster, ranks: u32, hosting: &HostingRule) -> World {
        World::of(cluster, ranks, hosting).expect("there are places, and ranks of a host share a process")
    }

    /// The same, if there are places for them.
    pub(crate) fn of(cluster: Cluster, ranks: u32, hosting: &HostingRule) -> Option<World> {
        let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack).ok()?;
        let hosting = Hosting::new(&placement, hosting).ok()?;
        Some(World { cluster, placement, hosting })
    }

    /// One host with this many cores, its ranks in one process.
    pub(crate) fn host(cores: u32, ranks: u32) -> World {
        let bandwidth = Bandwidth::new(1e10).expect("positive");
        let (memory, message_wake) = (Bytes(1 << 34), Time(0));
        let cpu = CpuSpec { cores, flops_per_core_s: 1e11, memory_bandwidth: bandwidth, memory, message_wake };
        let provenance = Origin::Assumed.with("a test");
        let cluster = Cluster::one_host(cpu, Time(1_000_000), bandwidth, &[], provenance).expect("a host");
        World::new(cluster, ranks, &HostingRule::Single)
    }

    /// Hosts of one core on a switch: 10 µs and 1 GB/s each way between any two.
    pub(crate) fn star(hosts: u32) -> World {
        World::wired(hosts, "latency = \"4us\"\nbandwidth = \"1GB/s\"")
    }

    /// Hosts of one core on a switch, by links with these keys.
    pub(crate) fn wired(hosts: u32, keys: &str) -> World {
        let cluster = Cluster::parse("star.toml", &World::star_file(hosts, 1, keys)).expect("a cluster");
        World::new(cluster, hosts, &HostingRule::PerRank)
    }

    /// As [`World::star`], a rank on each host, but all hosts share the cores of one machine.
    pub(crate) fn shared(hosts: u32, cores: u32) -> World {
        let file = World::star_file(hosts, cores, "latency = \"4us\"\nbandwidth = \"1GB/s\"");
        let cluster = Cluster::parse("star.toml", &format!("shared_cores = true\n{file}")).expect("a cluster");
        let placement = Placement::new(&cluster, hosts, &PlacementRule::Pack).expect("a place for each");
        let hosting = Hosting::new(&placement, &HostingRule::PerRank).expect("a process for each");
        World { cluster, placement, hosting }
    }

    pub(crate) fn star_file(hosts: u32, cores: u32, keys: &str) -> String {
        format!(
            r#"
            name = "star"
            protocol = "plain"
            provenance = "assumed: a test"
            [[host]]
            name = "node"
            count = {hosts}
            [host.cpu]
            cores = {cores}
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
            [[switch]]
            name = "switch"
            [[link]]
            kind = "ethernet"
            between = ["node*.eth0", "switch"]
            {keys}
            "#
        )
    }

    /// Its platform for the simulator.
    pub(crate) fn platform<'a>(&'a self, costs: &'a dyn Costs, network: NetworkModel) -> Platform<'a> {
        Platform {
            cluster: &self.cluster,
            placement: &self.placement,
            hosting: &self.hosting,
            costs,
            network,
            conditions: crate::Conditions::none(),
        }
    }
}

/// Leaf switches of `hosts` hosts with `gpus` GPUs each, `leaves` of them on a pod's switch, `pods` pods on a core.
pub(crate) fn tree(gpus: u32, hosts: u32, leaves: u32, pods: u32) -> Cluster {
    let (all_leaves, all_hosts) = (leaves * pods, hosts * leaves * pods);
    let mut text = format!(
        r#"
        name = "tree"
        provenance = "assumed: a test"
        [[host]]
        name = "node"
        count = {all_hosts}
        [host.cpu]
        cores = 4
        flops_per_core = "100GFLOP/s"
        memory_bandwidth = "50GB/s"
        memory = "16GiB"
        message_latency = "1us"
        message_bandwidth = "8GB/s"
        [[host.gpu]]
        name = "gpu"
        count = {gpus}
        model = "a GPU"
        multiprocessors = 80
        peak_flops = "14TFLOP/s"
        memory_bandwidth = "900GB/s"
        memory = "16GiB"
        [[host.nic]]
        name = "eth0"
        [[host.link]]
        kind = "pcie"
        between = ["cpu", "gpu*"]
        latency = "700ns"
        bandwidth = "15GB/s"
        [[host.link]]
        kind = "pcie"
        between = ["cpu", "eth0"]
        latency = "500ns"
        bandwidth = "12GB/s"
        [[switch]]
        name = "leaf"
        count = {all_leaves}
        [[switch]]
        name = "pod"
        count = {pods}
        [[switch]]
        name = "core"
        "#
    );
    let mut link = |a: String, b: String, latency: u32, rate: f64| {
        text += &format!(
            "[[link]]\nkind = \"ethernet\"\nbetween = [\"{a}\", \"{b}\"]\nlatency = \"{latency}ns\"\nbandwidth = \"{rate}GB/s\"\n"
        );
    };
    for leaf in 0..all_leaves {
        let (first, last) = (leaf * hosts, (leaf + 1) * hosts - 1);
        link(format!("node[{first}-{last}].eth0"), format!("leaf{leaf}"), 2000, 3.0);
    }
    for pod in 0..pods {
        let (first, last) = (pod * leaves, (pod + 1) * leaves - 1);
        link(format!("leaf[{first}-{last}]"), format!("pod{pod}"), 700, 4.0);
    }
    link("pod*".into(), "core".into(), 900, 5.0);
    Cluster::parse("tree.toml", &text).expect("a cluster")
}
