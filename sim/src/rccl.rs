//! Gives RCCL's rings the orders that suit the links of a platform.

use lockstep_topology::nccl::LinkedRings;
use lockstep_topology::{Algorithm, Collective, InputError, Library, Rank, Schedule};

use crate::platform::Platform;

/// RCCL's `schedule` among `ranks`, the members in their order, with rings along the links of their nodes; another
/// algorithm's, and RCCL's where all GPUs of a node are linked with each other, as it is.
///
/// # Errors
/// Devices that cannot reach each other.
pub(crate) fn along_links(
    platform: &Platform<'_>,
    ranks: impl Iterator<Item = u32>,
    algorithm: &Algorithm,
    (schedule, chunk): (Schedule, u64),
) -> Result<Schedule, InputError> {
    let rings =
        matches!(schedule.collective(), Collective::AllReduce | Collective::ReduceScatter | Collective::AllGather);
    if algorithm.library() != Some(Library::Predicted) || !rings {
        return Ok(schedule);
    }
    let devices: Vec<_> = ranks.map(|rank| platform.placement.device(Rank(rank))).collect();
    match LinkedRings::of(platform.cluster, &devices)? {
        Some(rings) => schedule.along(rings.orders, chunk),
        None => Ok(schedule),
    }
}
