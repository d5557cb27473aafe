//! Builds a small world for schedules: ranks on the hosts of a cluster, chosen costs, one exchange to run.

use std::sync::Arc;

use lockstep_models::{Bucket, Job, Op, Phase, Program};
use lockstep_sim::{Cost, Costs, MessageCost, NetworkModel, Pair, Platform, SimOptions, simulate};
use lockstep_topology::cluster::{Device, DeviceId, Route};
use lockstep_topology::{
    Algorithm, Cluster, Collective, Group, Hosting, HostingRule, Placement, PlacementRule, Schedule,
};

/// The costs of messages and of the wait before the exchange.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flat {
    /// Seconds that each device computes before its rank joins; empty: zero.
    pub(crate) skew: Vec<f64>,
    pub(crate) message: MessageCost,
}

impl Costs for Flat {
    fn compute(&self, device: &Device, _: &Program, _: usize, _: Phase, _: u32) -> Cost {
        Cost { seconds: self.skew.get(device.id.0 as usize).copied().unwrap_or(0.0), ..Cost::default() }
    }

    fn update(&self, _: &Device, _: u64) -> Cost {
        Cost::default()
    }

    fn load(&self, _: &Device, _: &Program, _: u32) -> Cost {
        Cost::default()
    }

    fn message(&self, _: Pair, _: &Device, _: &Route) -> MessageCost {
        self.message
    }
}

/// One exchange among all ranks.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) collective: Collective,
    pub(crate) algorithm: Algorithm,
    pub(crate) elements: u64,
}

impl Exchange {
    pub(crate) fn schedule(&self, ranks: u32) -> Schedule {
        Schedule::new(&self.collective, &self.algorithm, &Group::flat(ranks), self.elements, 0).expect("it serves")
    }

    /// When each rank finishes it, in seconds: it computes for its skew and then joins.
    pub(crate) fn ends(&self, cluster: &Cluster, places: &[DeviceId], costs: &Flat) -> Vec<f64> {
        let ranks = places.len() as u32;
        let model = Arc::new(lockstep_readers::load_model("mlp").expect("in the zoo"));
        let mut program =
            Job { bucket: Bucket::Whole, pad: false, ..Job::new(model, ranks, 1) }.program().expect("a job");
        // Of a step only its first computation and its exchange are left, and the costs are ours.
        let role = &mut program.roles[0];
        let compute = role.tasks.iter().find(|task| matches!(task.op, Op::Compute { .. })).expect("there is one");
        let exchange = role.tasks.iter().find(|task| matches!(task.op, Op::Exchange(_))).expect("there is one");
        let (mut compute, mut exchange) = (compute.clone(), exchange.clone());
        compute.after.clear();
        exchange.after.truncate(1);
        for after in &mut exchange.after {
            (after.task, after.lag) = (0, 0);
        }
        assert_eq!(exchange.after.len(), 1, "the exchange waits for what was computed");
        if let Op::Exchange(op) = &mut exchange.op {
            (op.collective, op.algorithm) = (self.collective.clone(), self.algorithm.clone());
            (op.range, op.chunk, op.window) = (0..self.elements, 0, 0);
        }
        role.tasks = vec![compute, exchange];

        let placement = Placement::new(cluster, ranks, &PlacementRule::Listed(places.to_vec())).expect("a place each");
        let hosting = Hosting::new(&placement, &HostingRule::PerRank).expect("a process each");
        let network = NetworkModel::MaxMin;
        let platform = Platform {
            cluster,
            placement: &placement,
            hosting: &hosting,
            costs,
            network,
            conditions: lockstep_sim::Conditions::none(),
        };
        let options = SimOptions { warm_up: 0, counted: 1, ..SimOptions::default() };
        let prediction = simulate(&program, &platform, options.driver(), &options).expect("no deadlock");
        let mut ends = vec![0.0; ranks as usize];
        for span in prediction.timeline.spans.iter().filter(|span| span.task == 1) {
            ends[span.rank as usize] = span.end.as_secs_f64();
        }
        ends
    }
}
