//! Tests of the engine: a small world with costs of one's own choosing, and what must hold in it.

mod answers;
mod closed_forms;
mod costs;
mod deadlocks;
mod gpus;
mod networks;
mod noise;
mod pipelines;
mod programs;
mod properties;
mod protocols;
mod repetitions;
mod stated_noise;

use std::sync::Arc;

use lockstep_models::{Job, Model, Phase, Program};
use lockstep_topology::cluster::{CpuSpec, Device, Provenance, Route};
use lockstep_topology::{
    Algorithm, Bandwidth, Bytes, Cluster, Collective, Group, Hosting, HostingRule, Placement, PlacementRule, Time,
};

use crate::{
    CollectiveRun, CollectiveTime, Cost, Costs, FoldRule, MessageCost, NetworkModel, Options, Pair, Platform,
    Prediction, SimError, simulate, simulate_collective,
};

/// Figures without provenance.
#[derive(Debug, Clone, Copy, Default)]
struct Flat {
    forward: f64,
    backward: f64,
    update: f64,
    memory: f64,
    message: MessageCost,
}

impl Costs for Flat {
    fn compute(&self, _: &Device, _: &Program, _: usize, phase: Phase, _: u32) -> Cost {
        let seconds = if phase == Phase::Forward { self.forward } else { self.backward };
        Cost { seconds, memory: self.memory, ..Cost::default() }
    }

    fn update(&self, _: &Device, _: u64) -> Cost {
        Cost { seconds: self.update, memory: self.memory, ..Cost::default() }
    }

    fn load(&self, _: &Device, _: &Program, _: u32) -> Cost {
        Cost::default()
    }

    fn message(&self, pair: Pair, _: &Device, _: &Route) -> MessageCost {
        // On links the route has the latency and the bytes; the receiver's thread only what is left.
        if pair == Pair::Wire { MessageCost { latency: 0.0, ..self.message } } else { self.message }
    }
}

/// A cluster with ranks, whatever they cost.
struct World {
    cluster: Cluster,
    placement: Placement,
    hosting: Hosting,
}

impl World {
    fn new(cluster: Cluster, ranks: u32, hosting: &HostingRule) -> World {
        let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack).expect("there are places");
        let hosting = Hosting::new(&placement, hosting).expect("ranks of a host share a process");
        World { cluster, placement, hosting }
    }

    /// One host with so many cores, its ranks in one process.
    fn host(cores: u32, ranks: u32) -> World {
        let bandwidth = Bandwidth::new(1e10).expect("positive");
        let cpu = CpuSpec { cores, flops_per_core_s: 1e11, memory_bandwidth: bandwidth, memory: Bytes(1 << 34) };
        let provenance = Provenance::Assumed("a test".into());
        let cluster = Cluster::one_host(cpu, Time(1_000_000), bandwidth, provenance).expect("a host");
        World::new(cluster, ranks, &HostingRule::Single)
    }

    /// Hosts of one core on a switch: 10 µs and 1 GB/s each way between any two.
    fn star(hosts: u32) -> World {
        World::wired(hosts, "latency = \"4us\"\nbandwidth = \"1GB/s\"")
    }

    /// Hosts of one core on a switch, by links with these keys.
    fn wired(hosts: u32, keys: &str) -> World {
        let text = format!(
            r#"
            name = "star"
            protocol = "plain"
            provenance = "assumed: a test"
            [[host]]
            name = "node"
            count = {hosts}
            [host.cpu]
            cores = 1
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
        );
        World::new(Cluster::parse("star.toml", &text).expect("a cluster"), hosts, &HostingRule::PerRank)
    }

    fn platform<'a>(&'a self, costs: &'a dyn Costs, network: NetworkModel) -> Platform<'a> {
        Platform {
            cluster: &self.cluster,
            placement: &self.placement,
            hosting: &self.hosting,
            costs,
            network,
            conditions: crate::Conditions::none(),
        }
    }

    fn predict(&self, program: &Program, costs: &Flat, options: &Options) -> Result<Prediction, SimError> {
        simulate(program, &self.platform(costs, NetworkModel::MaxMin), options.driver(), options)
    }

    fn allreduce(
        &self,
        algorithm: &str,
        elements: u64,
        chunk: u64,
        costs: &Flat,
        network: NetworkModel,
    ) -> CollectiveTime {
        let run = CollectiveRun {
            collective: Collective::AllReduce,
            algorithm: algorithm.parse::<Algorithm>().expect("an algorithm"),
            group: Group::flat(self.placement.ranks()),
            elements,
            chunk,
            window: 0,
            fold: FoldRule::Never,
            long_way: false,
        };
        simulate_collective(&run, &self.platform(costs, network)).expect("a collective that works")
    }
}

/// A multi-layer perceptron's job.
fn mlp(workers: u32) -> Job {
    Job::new(Arc::new(Model::load("mlp").expect("in the zoo")), workers, 8)
}

fn program(job: &Job) -> Program {
    job.program().expect("a job that works")
}

/// Equal up to rounding to picoseconds.
fn assert_close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-6 * expected.abs() + 1e-11, "{what}: {found} instead of {expected}");
}
