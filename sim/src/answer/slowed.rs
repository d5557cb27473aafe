//! Finds by how much communication slows computation down: compares a step with one whose messages take no time.
//!
//! Kernels and messages share cores or multiprocessors, and the bandwidth of memory, so a step may be longer than its
//! computation even where all communication is hidden.

use lockstep_models::{Phase, Program, SampleMove};
use lockstep_topology::cluster::{Cluster, Device, Figure, Route};
use lockstep_topology::nccl::NcclAnswer;
use lockstep_topology::{InputError, Library};

use super::subject::Subject;
use crate::costs::{Cost, Costs, MessageCost, Modelled, Pair};
use crate::error::SimError;
use crate::platform::Platform;
use crate::simulate::Prediction;

/// Factor by which links are faster where messages take no time.
const FREE: f64 = 1e6;

/// The computation of a step, in mean seconds per worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Computation {
    /// As predicted.
    pub seconds: f64,
    /// If messages took no time.
    pub alone_s: f64,
}

/// The computation of a step with and without communication.
///
/// # Errors
/// As [`simulate`](crate::simulate).
pub fn computation(subject: &Subject<'_>, prediction: &Prediction) -> Result<Computation, SimError> {
    let program = subject.program();
    let seconds = prediction.timeline.computation_s(program);
    if prediction.traffic.pairs.is_empty() && program.roles.iter().all(|role| role.exchanges().next().is_none()) {
        return Ok(Computation { seconds, alone_s: seconds });
    }
    let platform = subject.platform();
    let cluster = platform.cluster.scaled(&|figure: Figure| match figure {
        Figure::Bandwidth(_) => FREE,
        Figure::Latency(_) | Figure::Overhead(_) => 1.0 / FREE,
        _ => 1.0,
    });
    let costs = FreeMessages(platform.costs);
    let alone = subject.on(&Platform { cluster: &cluster, costs: &costs, ..*platform })?;
    Ok(Computation { seconds, alone_s: alone.timeline.computation_s(program) })
}

/// Costs with messages and libraries that take no time.
struct FreeMessages<'a>(&'a dyn Costs);

impl Costs for FreeMessages<'_> {
    fn adjusted(&self) -> Option<&dyn Costs> {
        Some(self.0)
    }

    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.0.compute(device, program, chain, phase, samples)
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.0.update(device, elements)
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        self.0.load(device, program, samples)
    }

    fn samples(&self, device: &Device, program: &Program, to: SampleMove, bytes: u64) -> Cost {
        self.0.samples(device, program, to, bytes)
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        let MessageCost { eager_bytes, rendezvous, .. } = self.0.message(pair, receiver, route);
        MessageCost { eager_bytes, rendezvous, ..MessageCost::default() }
    }

    fn repeated(&self, _: Pair, _: u64) -> Option<(f64, f64)> {
        None
    }

    fn library(&self, of: Library, devices: &[&Device], elements: u64) -> Option<f64> {
        Some(self.0.library(of, devices, elements)? / FREE)
    }

    fn modelled(&self, cluster: &Cluster, of: &Modelled<'_>) -> Result<Option<NcclAnswer>, InputError> {
        let answer = self.0.modelled(cluster, of)?;
        Ok(answer.map(|answer| NcclAnswer { seconds: answer.seconds / FREE, ..answer }))
    }

    fn traffic(&self, _: &Device) -> f64 {
        0.0
    }
}
