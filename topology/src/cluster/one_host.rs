//! Builds the cluster of one measured host: its CPU, and its GPUs, each on its own bus.

use std::sync::Arc;

use super::build::Builder;
use super::describe::describe_host;
use super::wire::Wire;
use super::{Cluster, CpuSpec, Duplex, GpuSpec, HostId, LinkKind, PeerToPeer, Provenance, Stack, VertexId, VertexKind};
use crate::{Bandwidth, InputError, Time};

/// A GPU of such a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostGpu {
    /// Its figures.
    pub spec: Arc<GpuSpec>,
    /// Latency of a small copy between the host's memory and its own.
    pub latency: Time,
    /// Bandwidth of a large one, either way.
    pub bandwidth: Bandwidth,
    /// Latency and rate of messages straight from another such GPU's memory; without them they go through the host's.
    pub direct: Option<(Time, Bandwidth)>,
}

impl Cluster {
    /// One host with one CPU and its GPUs, `host.gpu0` and on: the shape of a calibrated profile of this machine.
    ///
    /// `message_latency` and `message_bandwidth` are those of one message between two ranks on the host. A message from
    /// one GPU to another goes through the host's memory as a message there, or directly where both have figures for
    /// that: all that a GPU sends directly shares its rate, and so does all that it receives.
    ///
    /// # Errors
    /// No core, or a peak that is not a positive finite number of FLOP/s.
    pub fn one_host(
        cpu: CpuSpec,
        message_latency: Time,
        message_bandwidth: Bandwidth,
        gpus: &[HostGpu],
        provenance: Provenance,
    ) -> Result<Cluster, InputError> {
        if cpu.cores == 0 {
            return Err(InputError::new("one host", "cores = 0", "must be at least 1"));
        }
        if !(cpu.flops_per_core_s > 0.0 && cpu.flops_per_core_s.is_finite()) {
            let value = format!("flops_per_core_s = {}", cpu.flops_per_core_s);
            return Err(InputError::new("one host", value, "must be positive and finite"));
        }
        let provenance = Arc::new(provenance);
        let mut builder = Builder::new("this-host", "one host as measured");
        builder.host("host", &cpu, message_latency, message_bandwidth, &provenance);
        let core = VertexId(0);
        if !gpus.is_empty() {
            builder.passing(PeerToPeer::HostMemory, None);
        }
        // Measured figures include headers.
        let wire = |kind, stack: Stack, latency, bandwidth| Wire {
            kind,
            latency,
            bandwidth,
            duplex: Duplex::Full,
            protocol: Arc::new(stack.defaults()),
            provenance: provenance.clone(),
        };
        let meet = gpus.iter().any(|gpu| gpu.direct.is_some());
        let peers = meet.then(|| builder.vertex("host.peers".to_owned(), VertexKind::Switch, Some(HostId(0))));
        for (number, gpu) in gpus.iter().enumerate() {
            let vertex = VertexId(builder.vertices().len() as u32);
            builder.gpu(&format!("gpu{number}"), &gpu.spec, &provenance);
            let bus = wire(LinkKind::Pcie, Stack::Plain, gpu.latency, gpu.bandwidth);
            let Some((peers, (latency, bandwidth))) = peers.zip(gpu.direct) else {
                builder.wire(core, vertex, &bus);
                continue;
            };
            // The way via the CPU has one link more than the direct one: routes are those of the fewest links.
            let slot = builder.vertex(format!("host.bus{number}"), VertexKind::Switch, Some(HostId(0)));
            builder.wire(core, slot, &Wire { latency: Time::ZERO, ..bus.clone() });
            builder.wire(slot, vertex, &bus);
            // Half of the latency on either side.
            let half = Time(latency.0 / 2);
            builder.wire(vertex, peers, &wire(LinkKind::Peer, Stack::Peer, half, bandwidth));
        }
        let mut cluster = builder.finish();
        cluster.tables = describe_host(&cluster);
        Ok(cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;
    use crate::cluster::{DeviceId, Origin};

    #[test]
    fn gpus_exchange_through_the_memory_of_their_host() {
        let rate = |bytes_per_s: f64| Bandwidth::new(bytes_per_s).expect("positive");
        let cpu = CpuSpec {
            cores: 2,
            flops_per_core_s: 1e11,
            memory_bandwidth: rate(1e11),
            memory: Bytes(0),
            message_wake: Time::ZERO,
        };
        let spec = GpuSpec::measured("a GPU", 80, 1e13, rate(1e12), Bytes(1 << 30), Time(1));
        let gpu = HostGpu { spec: Arc::new(spec), latency: Time(5_000_000), bandwidth: rate(1e10), direct: None };
        let measured = || Origin::Measured.with("a test");
        let gpus = [gpu.clone(), gpu];
        let cluster = Cluster::one_host(cpu.clone(), Time(1), rate(1e9), &gpus, measured()).expect("a cluster");
        let names: Vec<&str> = cluster.devices().iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["host.cpu", "host.gpu0", "host.gpu1"]);
        // Up one bus, as a message through the memory, at the rate of the core that moves it, and down the other.
        let route = cluster.route(DeviceId(1), DeviceId(2)).expect("a way");
        let kinds: Vec<LinkKind> = route.links.iter().map(|link| cluster.link(*link).kind).collect();
        assert_eq!((kinds[0], kinds[kinds.len() - 1]), (LinkKind::Pcie, LinkKind::Pcie));
        assert_eq!(kinds.iter().filter(|kind| **kind == LinkKind::HostMemory).count(), 2);
        assert_eq!(kinds.iter().filter(|kind| **kind == LinkKind::SharedMemory).count(), 1);
        assert_eq!((route.latency, route.bandwidth), (Time(10_000_001), rate(1e9)));
        let to_device = |cluster: &Cluster| cluster.route(DeviceId(0), DeviceId(2)).expect("a way");
        let bus = to_device(&cluster);

        // Direct, where that was measured: only those figures, and copies to the GPUs as before.
        let direct = gpus.map(|gpu| HostGpu { direct: Some((Time(8_000_000), rate(4e10))), ..gpu });
        let cluster = Cluster::one_host(cpu, Time(1), rate(1e9), &direct, measured()).expect("a cluster");
        let route = cluster.route(DeviceId(1), DeviceId(2)).expect("a way");
        assert!(route.links.iter().all(|link| cluster.link(*link).kind == LinkKind::Peer));
        assert_eq!((route.latency, route.bandwidth), (Time(8_000_000), rate(4e10)));
        assert_eq!((to_device(&cluster).latency, to_device(&cluster).bandwidth), (bus.latency, bus.bandwidth));
    }
}
