//! An allreduce alone on a paper's machine, as the steps of its experiment would ask for it.

use lockstep_sim::answer::collective_bound;
use lockstep_sim::{CollectiveRun, Conditions, FoldRule, NetworkModel, Platform, SimError, simulate_collective};
use lockstep_topology::Collective;

use crate::figures::first;
use crate::plot::Exchange;
use lockstep_predict::Site;
use lockstep_report::failure::Failure;

/// Bytes of an fp32 element.
const ELEMENT_BYTES: u64 = 4;

impl Exchange {
    /// Its seconds, or the bytes of its buffer per second; and what bounds it.
    ///
    /// # Errors
    /// A method that cannot serve, more ranks than places: without a place of their own.
    pub(super) fn value(&self, site: &Site) -> Result<(f64, String), Failure> {
        let mut configuration = first(&self.at)?;
        let (placement, hosting) = configuration.place(&site.cluster, &self.at)?;
        let job = &configuration.job;
        let platform = Platform {
            cluster: &site.cluster,
            placement: &placement,
            hosting: &hosting,
            costs: site.costs.as_ref(),
            network: NetworkModel::MaxMin,
            conditions: Conditions::none(),
        };
        let run = CollectiveRun {
            collective: Collective::AllReduce,
            algorithm: job.algorithm.clone(),
            group: job.group(),
            elements: self.bytes / ELEMENT_BYTES,
            chunk: job.chunk.map_or(0, |chunk| chunk.0 / ELEMENT_BYTES),
            window: 0,
            fold: FoldRule::Padded,
            long_way: false,
        };
        let time = simulate_collective(&run, &platform).map_err(|error| match error {
            SimError::Input(error) => Failure::Input(error),
            other => Failure::Run(other.to_string()),
        })?;
        let value = if self.rate { time.algbw } else { time.time.as_secs_f64() };
        Ok((value, collective_bound(&site.cluster, &time).by))
    }
}
