//! Assigns the exchanges of learners that share devices: sums towards the first learner of each device, and the delivery
//! of its model to the others.

use lockstep_topology::{Algorithm, Collective};

use crate::{Axis, AxisSet, Exchange};

const LEARNERS: AxisSet = AxisSet::of(&[Axis::Learner]);

/// The verb and the exchange of one of the synchronisation's collectives on `devices`, the workers of each.
pub(super) fn exchange(of: Exchange, devices: &[u32]) -> (&'static str, Exchange) {
    match (&of.collective, of.axes == LEARNERS) {
        // Each learner takes the model from the first one's memory.
        (Collective::Broadcast { .. }, _) => {
            let others = devices.iter().max().map_or(1, |most| most.saturating_sub(1));
            ("deliver", Exchange { algorithm: Algorithm::tree(others.max(1)), ..of })
        }
        (Collective::AllReduceToLeaders, true) => {
            let algorithm = Algorithm::hierarchical(Algorithm::ring());
            ("sum-on-device", Exchange { algorithm, node_axes: LEARNERS, ..of })
        }
        (Collective::AllReduceToLeaders, false) => ("allreduce", Exchange { node_axes: LEARNERS, ..of }),
        _ => (of.collective.name(), of),
    }
}
