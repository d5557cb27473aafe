//! Builds platforms with one parameter each changed to be slightly slower; durations are differentiated against them.

use lockstep_topology::Cluster;

use super::perturbed::{CostParameter, Perturbed, counterpart};
use crate::derivative::CHANGE;
use crate::platform::Platform;

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
