//! Fits the anchor: one measured point, to which the cost of computation is scaled so that the simulation
//! reproduces it exactly.
//!
//! One factor for all kernels is the least that can be fitted and the most that one point determines; the costs of
//! communication are unchanged.

use lockstep_models::{Phase, Program};
use lockstep_sim::{Cost, Costs, MessageCost, Pair};
use lockstep_topology::InputError;
use lockstep_topology::cluster::{Device, Route};

use crate::predicted::predict;
use crate::setup::Setup;
use crate::site::Site;
use lockstep_experiment::{Anchor, Experiment};
use lockstep_report::failure::Failure;

/// The tolerance of the simulated throughput relative to the anchor's.
const TOLERANCE: f64 = 1e-6;
/// The bounds of the search.
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

    /// The same bytes in another time use another share of the memory.
    fn scale(&self, cost: Cost) -> Cost {
        Cost { seconds: cost.seconds * self.factor, memory: (cost.memory / self.factor).min(1.0), ..cost }
    }
}

impl Costs for Scaled<'_> {
    fn adjusted(&self) -> Option<&dyn Costs> {
        Some(self.inner)
    }

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
}

/// The factor with which the anchor's configuration has the anchor's throughput.
///
/// # Errors
/// A throughput that the cluster's communication alone does not allow, and errors of the configuration.
pub fn fit(anchor: &Anchor, experiment: &Experiment, site: &Site, setup: &Setup) -> Result<f64, Failure> {
    let mut point = Experiment { ranks: vec![anchor.ranks], published: None, ..experiment.clone() };
    if let Some(batch) = anchor.batch_per_rank {
        point.batch = lockstep_experiment::Batch::PerRank(vec![batch]);
    }
    // Errors in its configuration are reported at the anchor.
    let place = experiment.locate(InputError::flag("anchor", "", "")).place;
    for key in ["ranks", "algorithm"] {
        point.places.insert(key.to_owned(), place.clone());
    }
    let mut configurations = point.configurations()?;
    let configuration = &mut configurations[0];
    let mut throughput = |factor: f64| {
        let costs = Scaled::new(site.costs.as_ref(), factor);
        predict(configuration, &point, &site.cluster, &costs, setup).map(|predicted| predicted.images_per_s)
    };
    if let Some(factor) = factor(anchor.images_per_s, &mut throughput)? {
        return Ok(factor);
    }
    let (ranks, wanted) = (anchor.ranks, anchor.images_per_s);
    let message = if wanted < throughput(1.0)? {
        format!(
            "is less than {ranks} ranks of this cluster reach with computation {MOST:e} times slower: check the figure"
        )
    } else {
        format!(
            "is more than {ranks} ranks of this cluster reach with computation that costs nothing: check the figure, the \
             batch, or the cluster's links"
        )
    };
    Err(InputError::new(place, format!("images_per_s = {wanted:?}"), message).into())
}

/// The factor on computation with which `throughput` gives `wanted` images per second; `None` where even computation at
/// no cost is too slow, or the slowest that is tried too fast.
///
/// A step is nearly a constant and a part in proportion to the factor, so a line through the last two trials
/// (Newton's method without derivatives) finds it in a few; where that leaves the interval that holds the answer, its
/// middle is taken.
///
/// # Errors
/// As `throughput`.
pub fn factor(wanted: f64, mut throughput: impl FnMut(f64) -> Result<f64, Failure>) -> Result<Option<f64>, Failure> {
    let (mut low, mut high) = (LEAST, MOST);
    // Factors and by how many times the step was too long.
    let mut last: Option<(f64, f64)> = None;
    let mut factor = 1.0;
    for _ in 0..MOST_TRIALS {
        let excess = wanted / throughput(factor)? - 1.0;
        if excess.abs() < TOLERANCE {
            return Ok(Some(factor));
        }
        if factor <= LEAST {
            return Ok(None);
        }
        if excess > 0.0 {
            high = factor;
        } else {
            low = factor;
        }
        // Through the origin at first: exact where computation is all there is, on one rank.
        let line = match last {
            None => factor / (excess + 1.0),
            Some((before, was)) => factor - excess * (factor - before) / (excess - was),
        };
        last = Some((factor, excess));
        factor = if line > low && line < high {
            line
        } else if low == LEAST && high < 1e-6 {
            LEAST
        } else {
            (low * high).sqrt()
        };
    }
    // Factors within one part in a thousand of the end have no other side.
    Ok((factor < 0.999 * MOST).then_some(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_of_linear_and_kinked_curves_are_found_in_a_few_trials() {
        // Seconds of a step of one image: computation, and what it does not affect or what hides it.
        type StepTime = fn(f64) -> f64;
        let steps: [(&str, StepTime, usize); 3] = [
            ("computation alone", |factor| 0.02 * factor, 2),
            ("with a constant", |factor| 0.02 * factor + 0.3, 5),
            ("hidden at first", |factor| (0.02 * factor).max(0.3) + 0.002 * factor, 25),
        ];
        for (name, step, most) in steps {
            for wanted_s in [0.4, 0.9, 30.0] {
                let mut trials = 0;
                let found = factor(1.0 / wanted_s, |factor| {
                    trials += 1;
                    Ok(1.0 / step(factor))
                });
                let found = found.unwrap().expect("it can be reached");
                assert!((step(found) / wanted_s - 1.0).abs() < TOLERANCE, "{name}, {wanted_s} s: {found}");
                assert!(trials <= most, "{name}, {wanted_s} s: {trials} trials");
            }
        }
    }

    #[test]
    fn anchors_below_the_communication_time_have_no_factor() {
        assert_eq!(factor(10.0, |factor| Ok(1.0 / (0.2 + factor))).unwrap(), None);
        assert_eq!(factor(1e-300, |factor| Ok(1.0 / (0.2 + factor))).unwrap(), None);
    }
}
