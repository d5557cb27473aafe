//! Prices a layer by the roofline: its FLOPs at a share of the peak, or its bytes at the memory's bandwidth.
//!
//! Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009. The shares are
//! assumed, by kind of layer on a CPU, by generation on a GPU ([`generation`](super::generation)); a measured
//! [`CostTable`](super::CostTable) does without them. A fused chain omits the bytes of the tensors between its layers. A kernel
//! that does not fill a GPU reaches both roofs in proportion, and each kernel of a GPU has a launch time in which it
//! fills nothing.

use lockstep_models::{Gradients, Node, Pass, Phase, Precision, Program};
use lockstep_topology::Dtype;
use lockstep_topology::cluster::{Device, DeviceKind, GpuSpec, Route};

use super::fill::{Fill, fill, streaming};
use super::generation::Kernels;
use super::{Cost, Costs, MessageCost, Pair};

/// Share of the data sheet's memory bandwidth that streaming kernels reach (assumed; STREAM reaches 0.75 to 0.85).
const MEMORY_SHARE: f64 = 0.8;
/// Cores that it takes to fill a host's memory bandwidth (assumed).
const CORES_PER_MEMORY: u32 = 4;
/// Bytes that the memory moves per byte that is copied (read, write) and summed (read, read, write).
const COPY_TRAFFIC: f64 = 2.0;
const SUM_TRAFFIC: f64 = 3.0;

/// Costs from data sheets alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Roofline;

/// The rates that a device offers one task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Roof {
    /// FLOP/s at the peak in fp32.
    pub(super) flops_s: f64,
    /// The same for convolutions and products in the requested precision.
    product_flops_s: f64,
    /// Bytes per second that one task alone can move.
    pub(super) bytes_s: f64,
    /// Bytes per second of the memory when all cores stream.
    memory_s: f64,
    /// Multiprocessors of a GPU, and the figures of its kernels.
    gpu: Option<(u32, &'static Kernels)>,
    /// Seconds before a kernel.
    launch_s: f64,
}

/// The number format that kernels work on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Numbers {
    pub(super) precision: Precision,
    pub(super) gradients: Gradients,
    /// Whether weights and their gradients have to be converted from fp32 and to it.
    pub(super) turns: bool,
}

impl Numbers {
    pub(super) fn of(program: &Program) -> Numbers {
        let turns = program.precision.copies_weights();
        Numbers { precision: program.precision, gradients: program.gradients, turns }
    }

    /// Bytes that a pass moves to convert numbers. On GPUs separate kernels convert fp32 weights to factors, and their
    /// gradients to fp32. CPUs, which compute in fp32, widen the `elements` that a pass reads and round those that it writes,
    /// whose copies in fp32 are written and read; they convert weights in each pass that reads them, and gradients where
    /// these are not fp32.
    pub(super) fn casts(self, node: &Node, pass: Pass, elements: f64, on_cpu: bool) -> f64 {
        let fp32 = Dtype::F32.bytes(1) as f64;
        let turns = match pass {
            Pass::Forward => true,
            Pass::BackwardData => on_cpu,
            Pass::BackwardWeight => (self.gradients == Gradients::F32) != on_cpu,
        };
        let weights = if turns && self.turns && node.product().is_some() {
            node.signature.parameter_shapes().map(|shape| shape.elements() as f64).sum::<f64>()
        } else {
            0.0
        };
        let widened = if on_cpu && self.precision.activation_dtype() != Dtype::F32 { elements } else { 0.0 };
        weights * (fp32 + self.precision.factor_dtype().bytes(1) as f64) + 2.0 * widened * fp32
    }
}

impl Roof {
    /// The roof of updates, loads and messages, whose share of a GPU's bandwidth is assumed for every generation.
    pub(super) fn of(device: &Device) -> Roof {
        Roof::with(device, Precision::F32, |_| &Kernels::ASSUMED)
    }

    /// The roof in a precision; a GPU without a known peak has that of fp32.
    fn in_precision(device: &Device, precision: Precision) -> Roof {
        Roof::with(device, precision, |gpu| Kernels::of(gpu, precision))
    }

    fn with(device: &Device, precision: Precision, kernels: impl Fn(&GpuSpec) -> &'static Kernels) -> Roof {
        match &device.kind {
            DeviceKind::Cpu(cpu) => {
                let memory_s = cpu.memory_bandwidth.bytes_per_s() * MEMORY_SHARE;
                let bytes_s = memory_s / f64::from(cpu.cores.clamp(1, CORES_PER_MEMORY));
                Roof {
                    flops_s: cpu.flops_per_core_s,
                    product_flops_s: cpu.flops_per_core_s,
                    bytes_s,
                    memory_s,
                    gpu: None,
                    launch_s: 0.0,
                }
            }
            DeviceKind::Gpu(gpu) => {
                let kernels = kernels(gpu);
                let memory_s = gpu.memory_bandwidth.bytes_per_s() * kernels.memory;
                let own = Some((gpu.multiprocessors, kernels));
                let launch_s = gpu.launch.as_secs_f64();
                let flops_s = gpu.peak_flops_s;
                let product_flops_s = gpu.peak(precision.factors()).unwrap_or(flops_s);
                Roof { flops_s, product_flops_s, bytes_s: memory_s, memory_s, gpu: own, launch_s }
            }
            DeviceKind::Switch(switch) => {
                let rate = switch.sums.bytes_per_s();
                let flops_s = rate / 4.0;
                Roof { flops_s, product_flops_s: flops_s, bytes_s: rate, memory_s: rate, gpu: None, launch_s: 0.0 }
            }
        }
    }

    /// A task that is busy for `busy` seconds after `idle` seconds, and moves `bytes` bytes.
    fn cost(self, idle: f64, busy: f64, bytes: f64, filled: f64) -> Cost {
        let seconds = idle + busy;
        if seconds == 0.0 {
            return Cost::default();
        }
        let memory = (bytes / seconds / self.memory_s).min(1.0);
        Cost { seconds, memory, occupancy: (filled / seconds).min(1.0) }
    }

    /// One kernel, or a core's loop, over this many elements and bytes.
    fn streaming(self, elements: f64, bytes: f64) -> Cost {
        let Fill { occupancy, .. } = self.gpu.map_or(Fill::WHOLE, |(units, _)| streaming(elements, units));
        let busy = bytes / (self.bytes_s * occupancy);
        self.cost(self.launch_s, busy, bytes, occupancy * busy)
    }
}

/// Share of a core's peak that a layer's arithmetic reaches when memory is not the limit (assumed). Groups of a
/// convolution are separate products, which leave a core's vectors half empty.
pub(super) fn efficiency(node: &Node) -> f64 {
    match node.product() {
        Some(product) if product.groups > 1.0 => 0.25,
        Some(product) if product.places > 1.0 => 0.5,
        Some(_) => 0.6,
        None => 0.1,
    }
}

/// The passes of `node`, at `position` of a chain, in `phase`: inside a chain gradients always flow through.
pub(super) fn passes(node: &Node, phase: Phase, position: usize) -> &'static [Pass] {
    match phase {
        Phase::BackwardWeight if position > 0 => node.passes(Phase::Backward),
        phase => node.passes(phase),
    }
}

/// Elements that a pass of the layer at `position` of a chain reads and writes in memory: tensors inside the chain stay in
/// caches.
pub(super) fn elements_moved_by(nodes: &[&Node], position: usize, pass: Pass, samples: u32) -> f64 {
    let tensor = |node: &Node| (u64::from(samples) * node.output.elements()) as f64;
    let mut inside = 0.0;
    if position > 0 {
        inside += tensor(nodes[position - 1]);
    }
    if position + 1 < nodes.len() {
        inside += tensor(nodes[position]);
    }
    (nodes[position].work(pass, samples).elements() - inside).max(0.0)
}

/// The cost of a phase of a chain of these layers on a device.
pub(super) fn chain_on(device: &Device, nodes: &[&Node], numbers: Numbers, phase: Phase, samples: u32) -> Cost {
    chain_cost(Roof::in_precision(device, numbers.precision), nodes, numbers, phase, samples)
}

/// FLOPs over the roof's share of the peak and bytes, layer by layer.
fn chain_cost(roof: Roof, nodes: &[&Node], numbers: Numbers, phase: Phase, samples: u32) -> Cost {
    let (mut launches, mut busy, mut filled, mut total) = (0.0, 0.0, 0.0, 0.0);
    for (position, node) in nodes.iter().enumerate() {
        for pass in passes(node, phase, position) {
            let work = node.work(*pass, samples);
            let (elements, dtype) =
                (elements_moved_by(nodes, position, *pass, samples), numbers.precision.activation_dtype());
            let bytes = elements * dtype.bytes(1) as f64 + work.kept_bytes;
            let peak = if node.product().is_some() { roof.product_flops_s } else { roof.flops_s };
            let (Fill { occupancy, useful }, share) = match roof.gpu {
                Some(gpu) => (fill(node, *pass, samples, work.flops, gpu), gpu.1.share(node, *pass)),
                None => (Fill::WHOLE, efficiency(node)),
            };
            let arithmetic = work.flops / (peak * share * useful);
            let seconds = arithmetic.max(bytes / roof.bytes_s) / occupancy;
            let casts = numbers.casts(node, *pass, elements, roof.gpu.is_none());
            let conversion = casts / roof.bytes_s;
            // Layers fused into the first one's kernels need no launch of their own.
            launches += if position == 0 && seconds > 0.0 { roof.launch_s } else { 0.0 };
            launches += if casts > 0.0 { roof.launch_s } else { 0.0 };
            busy += seconds + conversion;
            filled += occupancy * seconds + conversion;
            total += bytes + casts;
        }
    }
    roof.cost(launches, busy, total, filled)
}

impl Costs for Roofline {
    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        let nodes: Vec<&Node> = program.chains[chain].iter().map(|id| program.model.node(*id)).collect();
        chain_on(device, &nodes, Numbers::of(program), phase, samples)
    }

    /// Momentum SGD reads w, g and v and writes w and v.
    fn update(&self, device: &Device, elements: u64) -> Cost {
        Roof::of(device).streaming(elements as f64, 5.0 * Dtype::F32.bytes(elements) as f64)
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        let sample = program.model.sample();
        let elements = u64::from(samples) * sample.elements();
        Roof::of(device).streaming(elements as f64, COPY_TRAFFIC * sample.dtype.bytes(elements) as f64)
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        let roof = Roof::of(receiver);
        let protocol = &route.transport.protocol;
        let wake = match &receiver.kind {
            DeviceKind::Cpu(cpu) => cpu.message_wake.as_secs_f64(),
            DeviceKind::Gpu(_) | DeviceKind::Switch(_) => 0.0,
        };
        match pair {
            // No thread: bytes pass its adders as they come, the first contribution too.
            Pair::Wire if matches!(receiver.kind, DeviceKind::Switch(_)) => MessageCost {
                copy: 1.0 / roof.bytes_s,
                sum: 1.0 / roof.bytes_s,
                eager_bytes: protocol.eager.0,
                send: protocol.send_overhead.as_secs_f64(),
                rendezvous: protocol.rendezvous,
                ..MessageCost::default()
            },
            // Through another process's memory the bytes are copied twice: in and out of the shared segment.
            Pair::Memory | Pair::Host => {
                let copies = if pair == Pair::Memory { 1.0 } else { 2.0 };
                let rate = route.bandwidth.bytes_per_s();
                MessageCost {
                    latency: route.latency.as_secs_f64(),
                    wake,
                    copy: copies / rate,
                    sum: (copies - 1.0 + SUM_TRAFFIC / COPY_TRAFFIC) / rate,
                    memory: (COPY_TRAFFIC * rate / roof.memory_s).min(1.0),
                    ..MessageCost::default()
                }
            }
            Pair::Wire => MessageCost {
                wake,
                overhead: protocol.receive_overhead.as_secs_f64(),
                sum: SUM_TRAFFIC / roof.bytes_s,
                memory: (roof.bytes_s / roof.memory_s).min(1.0),
                // Like a CPU's thread on its core, the kernel has the GPU's multiprocessors that it needs
                // while it runs.
                occupancy: 1.0,
                eager_bytes: protocol.eager.0,
                send: protocol.send_overhead.as_secs_f64(),
                rendezvous: protocol.rendezvous,
                ..MessageCost::default()
            },
        }
    }

    fn traffic(&self, device: &Device) -> f64 {
        1.0 / Roof::of(device).memory_s
    }

    fn alike(&self) -> bool {
        true
    }

    fn notes(&self, _: &Program) -> Vec<String> {
        vec![
            "costs are a roofline with efficiencies that are assumed or fitted; `lockstep calibrate` measures them"
                .into(),
        ]
    }
}
