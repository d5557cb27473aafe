//! Tests the engine: a small world with chosen costs, and properties that must hold in it.

mod answers;
mod closed_forms;
mod costs;
mod deadlocks;
mod derivatives;
mod device_table;
mod disturbed;
mod gpus;
mod hybrid;
mod input;
mod learners;
mod nccl_rings;
mod nearest;
mod networks;
mod noise;
mod periodic;
mod pipelines;
mod programs;
mod properties;
mod protocols;
mod rccl_rings;
mod read_ahead;
mod repetitions;
mod rings;
mod stages;
mod stated_noise;
mod switches;
pub(crate) mod world;

use std::sync::Arc;

use lockstep_models::{Job, Phase, Program};
use lockstep_topology::cluster::{Device, Route};
use lockstep_topology::{Algorithm, Bytes, Cluster, Collective, Dtype, Group, HostingRule, Time};

use world::World;

use crate::{
    CollectiveRun, CollectiveTime, Cost, Costs, FoldRule, MessageCost, NetworkModel, Pair, Platform, Prediction,
    SimError, SimOptions, simulate, simulate_collective,
};

/// Figures without provenance.
#[derive(Debug, Clone, Copy, Default)]
struct Flat {
    forward: f64,
    backward: f64,
    update: f64,
    load: f64,
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
        Cost { seconds: self.load, ..Cost::default() }
    }

    fn message(&self, pair: Pair, _: &Device, _: &Route) -> MessageCost {
        // On links the route has the latency and the bytes; the receiver's thread only the rest.
        if pair == Pair::Wire { MessageCost { latency: 0.0, ..self.message } } else { self.message }
    }
}

impl World {
    fn predict(&self, program: &Program, costs: &Flat, options: &SimOptions) -> Result<Prediction, SimError> {
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
            dtype: Dtype::F32,
            chunk,
            window: 0,
            fold: FoldRule::Never,
            padded: false,
            long_way: false,
        };
        simulate_collective(&run, &self.platform(costs, network)).expect("a collective that works")
    }
}

/// A multi-layer perceptron's job.
fn mlp(workers: u32) -> Job {
    Job::new(Arc::new(lockstep_readers::load_model("mlp").expect("in the zoo")), workers, 8)
}

fn program(job: &Job) -> Program {
    job.program().expect("a job that works")
}

/// Equal up to rounding to picoseconds.
fn assert_close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= 1e-6 * expected.abs() + 1e-11, "{what}: {found} instead of {expected}");
}
