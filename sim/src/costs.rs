//! Defines the costs of tasks and messages without contention: seconds alone, and the share of the memory bandwidth
//! that they use.
//!
//! The fluid solver decides how much slower they get beside others. There are two implementations: [`Roofline`] needs
//! only data sheets, [`CostTable`] figures measured on the machine.

mod fill;
mod generation;
mod measured;
mod near;
mod roofline;
mod table;

pub use generation::kernel_error;
#[cfg(test)]
pub(crate) use near::estimated;
pub use roofline::Roofline;
pub use table::CostTable;

use lockstep_models::{Phase, Program, SampleMove};
use lockstep_topology::cluster::{Device, Rendezvous, Route};
use lockstep_topology::nccl::NcclAnswer;
use lockstep_topology::{Cluster, Dtype, InputError, Library};

use crate::noise::Noise;

/// The cost of one task on one device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Seconds on one core, or on the whole GPU, with nothing else running.
    pub seconds: f64,
    /// Share of the device's memory bandwidth that it then uses, from 0 to 1.
    pub memory: f64,
    /// Share of a GPU's multiprocessors that it fills, from 0 to 1: others may have the rest. A CPU's cores are
    /// taken whole.
    pub occupancy: f64,
}

impl Default for Cost {
    /// Nothing to do, on a whole device.
    fn default() -> Cost {
        Cost { seconds: 0.0, memory: 0.0, occupancy: 1.0 }
    }
}

/// The carrier of a message between two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pair {
    /// The receiver's thread, straight out of the sender's buffer: two ranks on one CPU, in one process.
    Memory,
    /// The receiver's thread through the library's shared memory: two ranks on one CPU, in two processes.
    Host,
    /// The links of a route: ranks on different devices, or on one GPU.
    Wire,
}

/// The cost of one message; bytes are those of its payload.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MessageCost {
    /// α: seconds from the post until an idle receiver sees it, the latency of a route not included.
    pub latency: f64,
    /// Seconds more for each other rank on the receiver's core: ranks that wait run in turn.
    pub wake: f64,
    /// o: seconds of the receiver's thread per message.
    pub overhead: f64,
    /// β: seconds of the receiver's thread per byte that is copied into a buffer; the time on links is added.
    pub copy: f64,
    /// β for data sent once, into memory that is in no cache; `None`: as `copy`.
    pub cold: Option<f64>,
    /// γ: the same where the message is added to a buffer.
    pub sum: f64,
    /// Share of the receiving device's memory bandwidth that its thread uses meanwhile, from 0 to 1.
    pub memory: f64,
    /// Share of a receiving GPU's multiprocessors that the summing kernel fills, from 0 to 1.
    pub occupancy: f64,
    /// On links: larger messages wait until their receive is posted.
    pub eager_bytes: u64,
    /// On links: seconds of the sender's NIC and driver per message, one message after the other.
    pub send: f64,
    /// On links: how the larger messages find their receiver.
    pub rendezvous: Rendezvous,
}

/// The result of a library's model for a collective on a cluster.
pub type Modelled<'a> = dyn Fn(&Cluster) -> Result<Option<NcclAnswer>, InputError> + 'a;

/// A source of costs; equal questions get equal answers.
pub trait Costs: Send + Sync {
    /// The costs that these adjust, which are used for everything not overridden.
    fn adjusted(&self) -> Option<&dyn Costs> {
        None
    }

    /// A phase of a chain of `program`, which may come from any strategy, for `samples` samples.
    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost;

    /// The optimizer's step on `elements` parameters.
    fn update(&self, device: &Device, elements: u64) -> Cost;

    /// Gathering `samples` samples from a pool in memory.
    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost;

    /// Packing `bytes` bytes of samples of a rank's part, at random places, into messages, or unpacking them.
    fn samples(&self, device: &Device, program: &Program, to: SampleMove, bytes: u64) -> Cost {
        if let Some(inner) = self.adjusted() {
            return inner.samples(device, program, to, bytes);
        }
        // Anywhere in the host's memory, cold, as loaded ones are.
        let samples = bytes.div_ceil(program.model.sample().bytes().max(1));
        self.load(device, program, samples.try_into().unwrap_or(u32::MAX))
    }

    /// For samples that a shuffle copies one by one from a rank's part to another's in memory: seconds per byte, and
    /// the share of the memory bandwidth meanwhile; `None` where not measured.
    fn sample_copy(&self) -> Option<(f64, f64)> {
        self.adjusted().and_then(|inner| inner.sample_copy())
    }

    /// Moving this many fp32 elements through memory, read or written: an update moves five for each parameter.
    fn moved(&self, device: &Device, elements: u64) -> Cost {
        if elements == 0 { Cost::default() } else { self.update(device, elements.div_ceil(5)) }
    }

    /// The operation `name` ([`formula_key`](lockstep_models::profile::formula_key)) on `elements` parameters, which moves
    /// `bytes` bytes for each of them, by which it is estimated where it was not measured.
    fn formula(&self, device: &Device, name: &str, elements: u64, bytes: u64) -> Cost {
        let all = in_fp32(bytes * elements);
        let own = self.moved(device, all);
        let Some(inner) = self.adjusted() else { return own };
        // Adjusted as what moves as much is.
        let (of, moved) = (inner.formula(device, name, elements, bytes), inner.moved(device, all));
        let scaled = |own: f64, of: f64, moved: f64| if moved == of { own } else { own * (of / moved) };
        Cost {
            seconds: scaled(own.seconds, of.seconds, moved.seconds),
            memory: scaled(own.memory, of.memory, moved.memory),
            occupancy: scaled(own.occupancy, of.occupancy, moved.occupancy),
        }
    }

    /// A message that `receiver` gets over `route`.
    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost;

    /// Seconds to copy and to add a byte of buffers of `bytes` that a host's ranks use again and again, if that was
    /// measured.
    fn repeated(&self, pair: Pair, bytes: u64) -> Option<(f64, f64)> {
        self.adjusted().and_then(|inner| inner.repeated(pair, bytes))
    }

    /// Seconds of a library's sum of `elements` elements on `devices`, a member on each, if measured as a whole.
    fn library(&self, of: Library, devices: &[&Device], elements: u64) -> Option<f64> {
        self.adjusted().and_then(|inner| inner.library(of, devices, elements))
    }

    /// The result of a library's model for a whole collective; `of` gives it for a cluster.
    ///
    /// # Errors
    /// Errors of `of`.
    fn modelled(&self, cluster: &Cluster, of: &Modelled<'_>) -> Result<Option<NcclAnswer>, InputError> {
        self.adjusted().map_or_else(|| of(cluster), |inner| inner.modelled(cluster, of))
    }

    /// Seconds of a GPU's memory, at full bandwidth, for each byte that a link reads or writes there.
    fn traffic(&self, device: &Device) -> f64 {
        self.adjusted().map_or(0.0, |inner| inner.traffic(device))
    }

    /// How the durations of work on CPUs vary; `None` where every run of a task takes its median.
    fn noise(&self) -> Option<&Noise> {
        self.adjusted().and_then(|inner| inner.noise())
    }

    /// Whether equal devices always cost the same, so that a rank on one may represent ranks on others.
    fn alike(&self) -> bool {
        self.adjusted().is_some_and(|inner| inner.alike())
    }

    /// Assumptions of these costs about `program`, for display.
    fn notes(&self, program: &Program) -> Vec<String> {
        self.adjusted().map_or_else(Vec::new, |inner| inner.notes(program))
    }
}

/// The fp32 elements that are as long as `bytes`.
pub(crate) fn in_fp32(bytes: u64) -> u64 {
    bytes.div_ceil(Dtype::F32.bytes(1))
}

/// Costs whose messages are those of `inner`, changed.
pub(crate) struct WithMessages<'a, C> {
    inner: &'a dyn Costs,
    change: C,
}

impl<'a, C: Fn(Pair, MessageCost) -> MessageCost + Send + Sync> WithMessages<'a, C> {
    /// `change` gets a message's carrier and its cost.
    pub(crate) fn new(inner: &'a dyn Costs, change: C) -> WithMessages<'a, C> {
        WithMessages { inner, change }
    }
}

impl<C: Fn(Pair, MessageCost) -> MessageCost + Send + Sync> Costs for WithMessages<'_, C> {
    fn adjusted(&self) -> Option<&dyn Costs> {
        Some(self.inner)
    }

    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.inner.compute(device, program, chain, phase, samples)
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.inner.update(device, elements)
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        self.inner.load(device, program, samples)
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        (self.change)(pair, self.inner.message(pair, receiver, route))
    }
}
