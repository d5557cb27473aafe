//! Multiplies a parameter of a cluster or of costs, wherever the costs come from; durations are differentiated against
//! platforms with one parameter each changed so.
//!
//! Costs may follow from the cluster's figures, or hold times of their own (what was measured, a constant per message).
//! Any costs can be split into the two: they are homogeneous, so multiplying their own times by f is the same as
//! multiplying every rate of the cluster by f, dividing its latencies by f, and stretching the answer f times.

use std::sync::Arc;

use lockstep_models::{Phase, Program, SampleMove};
use lockstep_topology::cluster::{Cluster, Device, Figure, Route};
use lockstep_topology::nccl::NcclAnswer;
use lockstep_topology::{InputError, Library};

use crate::costs::{Cost, Costs, MessageCost, Modelled, Pair};
use crate::derivative::CHANGE;
use crate::platform::Platform;

/// A time that costs hold themselves, besides what they take from the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnTime {
    /// Of compute tasks, updates and loads.
    Kernels,
    /// α: until an idle receiver sees a message.
    MessageLatency,
    /// o: of the receiver, or the sender's NIC, per message.
    MessageOverhead,
    /// β and γ: of the receiver per byte copied or added.
    MessageBytes,
    /// Of collectives with a known total time.
    Library,
}

impl OwnTime {
    /// This one and no other.
    pub(super) fn alone(self) -> &'static [OwnTime] {
        match self {
            OwnTime::Kernels => &[OwnTime::Kernels],
            OwnTime::MessageLatency => &[OwnTime::MessageLatency],
            OwnTime::MessageOverhead => &[OwnTime::MessageOverhead],
            OwnTime::MessageBytes => &[OwnTime::MessageBytes],
            OwnTime::Library => &[OwnTime::Library],
        }
    }
}

/// One figure, or one sort of figures, that a prediction depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostParameter {
    /// Of the cluster.
    Cluster(Figure),
    /// Of the costs.
    Own(OwnTime),
}

impl CostParameter {
    /// Whether it is a rate, of which more is faster, and not a time.
    pub fn is_rate(self) -> bool {
        matches!(self, CostParameter::Cluster(figure) if figure.is_rate())
    }
}

/// The cluster with rates multiplied and latencies divided by a factor.
pub(super) fn counterpart(cluster: &Cluster, factor: f64) -> Arc<Cluster> {
    Arc::new(cluster.scaled(&|figure: Figure| if figure.is_rate() { factor } else { 1.0 / factor }))
}

/// Costs with some of their own times multiplied.
pub(super) struct Perturbed<'a> {
    inner: &'a dyn Costs,
    factor: f64,
    times: &'a [OwnTime],
    /// The cluster with rates multiplied and latencies divided by the factor.
    counterpart: Arc<Cluster>,
}

impl<'a> Perturbed<'a> {
    pub(super) fn new(inner: &'a dyn Costs, cluster: &Cluster, factor: f64, times: &'a [OwnTime]) -> Perturbed<'a> {
        Perturbed::beside(inner, counterpart(cluster, factor), factor, times)
    }

    /// The same, given the counterpart of its cluster.
    pub(super) fn beside(
        inner: &'a dyn Costs,
        counterpart: Arc<Cluster>,
        factor: f64,
        times: &'a [OwnTime],
    ) -> Perturbed<'a> {
        Perturbed { inner, factor, times, counterpart }
    }

    fn kernel(&self, device: &Device, cost: impl Fn(&Device) -> Cost) -> Cost {
        if !self.times.contains(&OwnTime::Kernels) {
            return cost(device);
        }
        let cost = cost(self.counterpart.device(device.id).unwrap_or(device));
        Cost { seconds: cost.seconds * self.factor, ..cost }
    }
}

impl Costs for Perturbed<'_> {
    fn adjusted(&self) -> Option<&dyn Costs> {
        Some(self.inner)
    }

    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.kernel(device, |device| self.inner.compute(device, program, chain, phase, samples))
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.kernel(device, |device| self.inner.update(device, elements))
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        self.kernel(device, |device| self.inner.load(device, program, samples))
    }

    fn samples(&self, device: &Device, program: &Program, to: SampleMove, bytes: u64) -> Cost {
        self.kernel(device, |device| self.inner.samples(device, program, to, bytes))
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        let as_it_is = self.inner.message(pair, receiver, route);
        let device = self.counterpart.device(receiver.id).unwrap_or(receiver);
        let factor = self.factor;
        let stretched = self.inner.message(pair, device, &route.faster(factor));
        let mut cost = as_it_is;
        for time in self.times {
            match time {
                OwnTime::Kernels | OwnTime::Library => {}
                OwnTime::MessageLatency => {
                    cost.latency = stretched.latency * factor;
                    cost.wake = stretched.wake * factor;
                }
                OwnTime::MessageOverhead => {
                    cost.overhead = stretched.overhead * factor;
                    cost.send = stretched.send * factor;
                }
                OwnTime::MessageBytes => {
                    cost.copy = stretched.copy * factor;
                    cost.cold = stretched.cold.map(|cold| cold * factor);
                    cost.sum = stretched.sum * factor;
                    cost.memory = stretched.memory;
                }
            }
        }
        cost
    }

    fn repeated(&self, pair: Pair, bytes: u64) -> Option<(f64, f64)> {
        // Measured, so none of it depends on the cluster.
        let factor = if self.times.contains(&OwnTime::MessageBytes) { self.factor } else { 1.0 };
        self.inner.repeated(pair, bytes).map(|(copy, sum)| (copy * factor, sum * factor))
    }

    fn library(&self, of: Library, devices: &[&Device], elements: u64) -> Option<f64> {
        // Measured, so none of it depends on the cluster.
        let factor = if self.times.contains(&OwnTime::Library) { self.factor } else { 1.0 };
        Some(self.inner.library(of, devices, elements)? * factor)
    }

    fn modelled(&self, cluster: &Cluster, of: &Modelled<'_>) -> Result<Option<NcclAnswer>, InputError> {
        let Some(answer) = self.inner.modelled(cluster, of)? else { return Ok(None) };
        if !self.times.contains(&OwnTime::Library) {
            return Ok(Some(answer));
        }
        // The model has steps, and the part that depends on the cluster is evaluated on the side on which its figures
        // are: with them multiplied by the factor, c + s becomes c + s·f, so f·c + s is (1 + f)·(c + s) less that.
        let slower = counterpart(cluster, 1.0 / self.factor);
        let there = self.inner.modelled(&slower, of)?.map_or(answer.seconds, |answer| answer.seconds);
        let seconds = (1.0 + self.factor) * answer.seconds - there;
        Ok(Some(NcclAnswer { seconds, ..answer }))
    }
}

/// Clusters and costs with one parameter changed each, so that everything takes longer.
pub(super) struct Changed<'a> {
    parts: Vec<Part<'a>>,
}

/// Where a parameter belongs.
enum Part<'a> {
    Cluster(Box<Cluster>),
    Costs(Perturbed<'a>),
}

impl<'a> Changed<'a> {
    pub(super) fn new(platform: &Platform<'a>, parameters: &[CostParameter]) -> Changed<'a> {
        let longer = 1.0 + CHANGE;
        let counterpart = counterpart(platform.cluster, longer);
        let part = |parameter: &CostParameter| match *parameter {
            CostParameter::Cluster(changed) => {
                let factor = if changed.is_rate() { 1.0 / longer } else { longer };
                let cluster = platform.cluster.scaled(&|figure| if figure == changed { factor } else { 1.0 });
                Part::Cluster(Box::new(cluster))
            }
            CostParameter::Own(time) => {
                Part::Costs(Perturbed::beside(platform.costs, counterpart.clone(), longer, time.alone()))
            }
        };
        Changed { parts: parameters.iter().map(part).collect() }
    }

    pub(super) fn platforms<'p>(&'p self, platform: &Platform<'p>) -> Vec<Platform<'p>> {
        let on = |part: &'p Part<'a>| match part {
            Part::Cluster(cluster) => Platform { cluster, ..*platform },
            Part::Costs(costs) => Platform { costs, ..*platform },
        };
        self.parts.iter().map(on).collect()
    }
}
