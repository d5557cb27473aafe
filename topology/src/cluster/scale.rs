//! Multiplies some of a cluster's figures, for what-if questions and sensitivities.

use super::{Cluster, DeviceKind, GpuSpec, LinkKind, Protocol, Route, RouteTransport};
use crate::{Bandwidth, Time};
use std::sync::Arc;

/// Figures of one sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Figure {
    /// Bandwidths of the links of a kind; those to memories are [`Figure::CpuMemory`] and [`Figure::GpuMemory`].
    Bandwidth(LinkKind),
    /// Latencies of the links of a kind.
    Latency(LinkKind),
    /// Overheads of senders and receivers per message on the links of a kind.
    Overhead(LinkKind),
    /// FLOP/s of CPUs.
    CpuPeak,
    /// Memory bandwidth of hosts, for kernels and for messages.
    CpuMemory,
    /// FLOP/s of GPUs, in all precisions.
    GpuPeak,
    /// Memory bandwidth of GPUs, for kernels and for messages.
    GpuMemory,
    /// The time from one kernel of a GPU to the next.
    Launch,
}

impl Figure {
    /// The figure that is the bandwidth of links of `kind`.
    pub fn bandwidth_of(kind: LinkKind) -> Figure {
        match kind {
            LinkKind::HostMemory => Figure::CpuMemory,
            LinkKind::DeviceMemory => Figure::GpuMemory,
            kind => Figure::Bandwidth(kind),
        }
    }

    /// Whether it is a rate, where more is faster, and not a time.
    pub fn is_rate(self) -> bool {
        !matches!(self, Figure::Latency(_) | Figure::Overhead(_) | Figure::Launch)
    }
}

impl Cluster {
    /// The cluster with each figure multiplied by `factor` of it; where the result is no valid bandwidth, the figure
    /// is unchanged.
    ///
    /// ```
    /// # use lockstep_topology::cluster::{Cluster, DeviceId, Figure, LinkKind};
    /// let cluster = Cluster::load("ethernet-4").unwrap();
    /// let faster = cluster.scaled(&|figure| if figure == Figure::Bandwidth(LinkKind::Ethernet) { 2.0 } else { 1.0 });
    /// let rate = |cluster: &Cluster| cluster.route(DeviceId(0), DeviceId(3)).unwrap().bandwidth.bytes_per_s();
    /// assert_eq!(rate(&faster), 2.0 * rate(&cluster));
    /// ```
    pub fn scaled(&self, factor: &dyn Fn(Figure) -> f64) -> Cluster {
        let times = |rate: Bandwidth, figure| Bandwidth::new(rate.bytes_per_s() * factor(figure)).unwrap_or(rate);
        let mut cluster = self.clone();
        // Links that share a protocol still share one afterwards.
        let mut known: Vec<(LinkKind, Arc<Protocol>, Arc<Protocol>)> = Vec::new();
        for link in &mut cluster.links {
            let same = |(kind, old, _): &&(LinkKind, Arc<Protocol>, Arc<Protocol>)| {
                *kind == link.kind && Arc::ptr_eq(old, &link.protocol)
            };
            let scaled = match known.iter().find(same) {
                Some((_, _, scaled)) => scaled.clone(),
                None => {
                    let (rates, times) = (factor(Figure::bandwidth_of(link.kind)), factor(Figure::Overhead(link.kind)));
                    let scaled = Arc::new(link.protocol.scaled(rates, times));
                    known.push((link.kind, link.protocol.clone(), scaled.clone()));
                    scaled
                }
            };
            link.protocol = scaled;
            link.bandwidth = times(link.bandwidth, Figure::bandwidth_of(link.kind));
            link.latency = stretched(link.latency, factor(Figure::Latency(link.kind)));
        }
        // GPUs that share a data sheet still share one.
        let mut sheets: Vec<(Arc<GpuSpec>, Arc<GpuSpec>)> = Vec::new();
        for device in &mut cluster.devices {
            match &mut device.kind {
                DeviceKind::Cpu(cpu) => {
                    cpu.flops_per_core_s *= factor(Figure::CpuPeak);
                    cpu.memory_bandwidth = times(cpu.memory_bandwidth, Figure::CpuMemory);
                }
                DeviceKind::Gpu(shared) => {
                    if let Some((_, scaled)) = sheets.iter().find(|(old, _)| Arc::ptr_eq(old, shared)) {
                        *shared = scaled.clone();
                        continue;
                    }
                    let old = shared.clone();
                    *shared = Arc::new(shared.scaled(factor));
                    sheets.push((old, shared.clone()));
                }
                DeviceKind::Switch(switch) => {
                    switch.sums = times(switch.sums, Figure::bandwidth_of(switch.links));
                }
            }
        }
        cluster
    }
}

impl GpuSpec {
    /// The GPU with each of its figures multiplied by `factor` of it.
    pub fn scaled(&self, factor: &dyn Fn(Figure) -> f64) -> GpuSpec {
        let mut gpu = self.clone();
        gpu.peak_flops_s *= factor(Figure::GpuPeak);
        gpu.peaks.iter_mut().flatten().for_each(|peak| *peak *= factor(Figure::GpuPeak));
        let memory = gpu.memory_bandwidth.bytes_per_s() * factor(Figure::GpuMemory);
        gpu.memory_bandwidth = Bandwidth::new(memory).unwrap_or(gpu.memory_bandwidth);
        gpu.launch = stretched(gpu.launch, factor(Figure::Launch));
        gpu
    }
}

impl Protocol {
    /// The same with its rates and its times multiplied.
    fn scaled(&self, rates: f64, times: f64) -> Protocol {
        let rate = |rate: Bandwidth| Bandwidth::new(rate.bytes_per_s() * rates).unwrap_or(rate);
        Protocol {
            send_overhead: stretched(self.send_overhead, times),
            receive_overhead: stretched(self.receive_overhead, times),
            // A core's time per byte.
            core_bandwidth: self.core_bandwidth.map(|core| Bandwidth::new(core.bytes_per_s() / times).unwrap_or(core)),
            pageable: self.pageable.map(rate),
            peer: self.peer.map(rate),
            ..self.clone()
        }
    }
}

impl Route {
    /// The same route with every rate multiplied by `factor` and every time divided by it.
    pub fn faster(&self, factor: f64) -> Route {
        let rate = |rate: Bandwidth| Bandwidth::new(rate.bytes_per_s() * factor).unwrap_or(rate);
        Route {
            links: self.links.clone(),
            latency: stretched(self.latency, 1.0 / factor),
            bandwidth: rate(self.bandwidth),
            transport: RouteTransport {
                protocol: Arc::new(self.transport.protocol.scaled(factor, 1.0 / factor)),
                cap: self.transport.cap.map(rate),
                rate: rate(self.transport.rate),
                ..self.transport.clone()
            },
        }
    }
}

fn stretched(time: Time, factor: f64) -> Time {
    if factor == 1.0 { time } else { Time::from_secs_f64(time.as_secs_f64() * factor) }
}
