//! Lowers programs with reference models: learners of a device sum their differences first, then one learner of each
//! device exchanges.

use lockstep_topology::{Algorithm, Collective};

use crate::{Averaging, Axis, AxisSet, Exchange, Members, Op, Role};

const LEARNERS: AxisSet = AxisSet::of(&[Axis::Learner]);

/// The verb and the exchange of an allreduce of differences along one of the two axes.
pub(super) fn level(whole: Exchange) -> (&'static str, Exchange) {
    if whole.axes == LEARNERS {
        let algorithm = Algorithm::hierarchical(Algorithm::ring());
        return ("sum-on-device", Exchange { algorithm, node_axes: LEARNERS, ..whole });
    }
    // Inside a node a hierarchical algorithm is the same whichever one crosses nodes.
    let collective = Collective::AllReduceOfNodes;
    let serves = whole.algorithm.serves(&collective);
    let algorithm = if serves { whole.algorithm } else { Algorithm::hierarchical(whole.algorithm) };
    // Learners of a device have the same difference of their reference, so one of them exchanges it.
    let axes = whole.axes.or(LEARNERS);
    ("allreduce", Exchange { collective, algorithm, axes, node_axes: LEARNERS, ..whole })
}

/// Divides `worker` into two roles, where a device has `each` learners. The first device has no reference model besides
/// the average one, and nothing to do where others move theirs.
pub(super) fn apart(worker: &Role, each: u32) -> Vec<Role> {
    let (first, count) = (worker.ranks.first(), worker.ranks.count());
    let mut on_first = worker.tasks.clone();
    for task in &mut on_first {
        if let Op::Elementwise(of) = &mut task.op {
            if of.formula.writes(Averaging::REFERENCE) {
                of.range.end = of.range.start;
            }
            of.formula = of.formula.replacing(Averaging::REFERENCE, Averaging::AVERAGE);
        }
    }
    let role = |name: &str, ranks, tasks| Role { name: name.to_owned(), ranks, tasks };
    vec![
        role("first device", Members::range(first, each), on_first),
        role("other devices", Members::range(first + each, count - each), worker.tasks.clone()),
    ]
}
