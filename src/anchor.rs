//! The anchor: one measured point, to which the cost of computation is scaled so that the simulation gives it exactly.
//!
//! One factor for all kernels is the least that can be fitted and the most that one point can tell; what communication
//! costs stays as it was.

use lockstep_models::{Phase, Program};
use lockstep_sim::{Cost, Costs, MessageCost, Noise, Pair};
use lockstep_topology::InputError;
use lockstep_topology::cluster::{Device, Route};

use crate::experiment::{Anchor, Experiment};
use crate::failure::Failure;
use crate::predict::{Setup, predict};
use crate::site::Site;

/// How near the simulated throughput must come to the anchor's.
const TOLERANCE: f64 = 1e-6;
/// The factors between which the search goes on.
const LEAST: f64 = 1e-9;
const MOST: f64 = 1e9;
/// Halvings (of the logarithm) that the search may take.
const MOST_TRIALS: usize = 80;

/// Costs with computation multiplied by a factor.
pub struct Scaled<'a> {
    inner: &'a dyn Costs,
    factor: f64,
}

impl<'a> Scaled<'a> {
    /// `inner` with kernels, updates and loads that take `factor` times as long.
    pub fn new(inner: &'a dyn Costs, factor: f64) -> Scaled<'a> {
        Scaled { inner, factor }
    }

    /// The same bytes in another time take another share of the memory.
    fn scale(&self, cost: Cost) -> Cost {
        Cost { seconds: cost.seconds * self.factor, memory: (cost.memory / self.factor).min(1.0), ..cost }
    }
}

impl Costs for Scaled<'_> {
    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.scale(self.inner.compute(device, program, chain, phase, samples))
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        self.scale(self.inner.update(device, elements))
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        self.scale(self.inner.load(device, program, samples))
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        self.inner.message(pair, receiver, route)
    }

    fn traffic(&self, device: &Device) -> f64 {
        self.inner.traffic(device)
    }

    fn noise(&self) -> Option<&Noise> {
        self.inner.noise()
    }

    fn alike(&self) -> bool {
        self.inner.alike()
    }

    fn notes(&self, program: &Program) -> Vec<String> {
        self.inner.notes(program)
    }
}

/// The factor with which the anchor's configuration reaches the anchor's throughput.
///
/// # Errors
/// A throughput that the cluster's communication alone does not allow, and whatever refuses the configuration.
pub fn fit(anchor: &Anchor, experiment: &Experiment, site: &Site, setup: &Setup) -> Result<f64, Failure> {
    let mut point = Experiment { ranks: vec![anchor.ranks], published: None, ..experiment.clone() };
    if let Some(batch) = anchor.batch_per_rank {
        point.batch = crate::experiment::Batch::PerRank(vec![batch]);
    }
    let mut configurations = point.configurations()?;
    let configuration = &mut configurations[0];
    let mut throughput = |factor: f64| {
        let costs = Scaled::new(site.costs.as_ref(), factor);
        predict(configuration, &point, &site.cluster, &costs, setup).map(|predicted| predicted.images_per_s)
    };
    let reached = |simulated: f64| (simulated / anchor.images_per_s - 1.0).abs() < TOLERANCE;
    // Exact where computation is all there is: on one rank.
    let proportional = throughput(1.0)? / anchor.images_per_s;
    if reached(throughput(proportional.clamp(LEAST, MOST))?) {
        return Ok(proportional);
    }
    if throughput(LEAST)? < anchor.images_per_s {
        let message = format!(
            "is more than {} ranks of this cluster reach with computation that costs nothing: check the figure, the \
             batch, or the cluster's links",
            anchor.ranks
        );
        let error = InputError::new("--anchor", format!("images_per_s = {}", anchor.images_per_s), message);
        return Err(experiment.locate(error).into());
    }
    // Throughput falls as the factor grows.
    let (mut low, mut high) = (LEAST, MOST);
    for _ in 0..MOST_TRIALS {
        let middle = (low * high).sqrt();
        let simulated = throughput(middle)?;
        if reached(simulated) {
            return Ok(middle);
        }
        if simulated > anchor.images_per_s { low = middle } else { high = middle }
    }
    Ok((low * high).sqrt())
}
