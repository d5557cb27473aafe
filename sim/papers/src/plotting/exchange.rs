//! Predicts an allreduce alone on a paper's machine, as a step of its experiment would run it.

use lockstep_sim::answer::collective_bound;
use lockstep_sim::{CollectiveRun, FoldRule, Platform, SimError, simulate_collective};
use lockstep_topology::{Collective, Dtype};

use crate::figures::first;
use crate::plot::Exchange;
use lockstep_predict::Site;
use lockstep_report::failure::Failure;

impl Exchange {
    /// Its seconds, or the bytes of its buffer per second; and what bounds it.
    ///
    /// # Errors
    /// An algorithm that does not apply, more ranks than places: without a place in the file.
    pub(super) fn value(&self, site: &Site) -> Result<(f64, String), Failure> {
        let mut configuration = first(&self.at)?;
        let (placement, hosting) = configuration.place(&site.cluster, &self.at)?;
        let job = &configuration.job;
        let platform = Platform::new(&site.cluster, &placement, &hosting, site.costs.as_ref());
        let elements = Dtype::F32.elements_within(self.bytes);
        let run = CollectiveRun {
            chunk: job.chunk.map_or(0, |chunk| Dtype::F32.elements_within(chunk.0)),
            fold: FoldRule::Exact,
            padded: true,
            ..CollectiveRun::new(Collective::AllReduce, job.algorithm.clone(), job.group(), elements)
        };
        let time = simulate_collective(&run, &platform).map_err(|error| match error {
            SimError::Input(error) => Failure::Input(error),
            other => Failure::Run(other.to_string()),
        })?;
        let value = if self.rate { time.algbw } else { time.time.as_secs_f64() };
        Ok((value, collective_bound(&site.cluster, &time).by))
    }
}
