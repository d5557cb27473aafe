//! Programs with reference models: a role for each device, whose learners sum their differences among themselves first.

use lockstep_topology::{Algorithm, Collective, Group};

use crate::{AveragingRule, Axis, AxisSet, Op, RankGroup, RankRange, References, Role};

/// How an allreduce of differences along one of the two axes is done, and its verb; `None` along others. [`apart`] says who
/// meets.
pub(super) fn level(axes: AxisSet, algorithm: &Algorithm) -> Option<(&'static str, Collective, Algorithm)> {
    // Inside a node a hierarchical method is the same whatever crosses nodes.
    let nested = if algorithm.by_nodes() { algorithm.clone() } else { Algorithm::hierarchical(algorithm.clone()) };
    match axes.iter().collect::<Vec<_>>()[..] {
        [Axis::Learner] => Some(("sum-on-device", Collective::AllReduce, Algorithm::hierarchical(Algorithm::ring()))),
        // One learner of each device exchanges what they have in common.
        [Axis::Device] => Some(("allreduce", Collective::AllReduceOfNodes, nested)),
        _ => None,
    }
}

/// `worker` as a role for each device, which sums in a group of its own; the first group is everyone, in devices. The first
/// device has no reference model beside the average one, and nothing to do where others move theirs.
pub(super) fn apart(worker: &Role, references: &References) -> (Vec<Role>, Vec<RankGroup>) {
    let each = references.learners;
    let devices = worker.ranks.count / each;
    let on = |device: u32| RankRange { first: worker.ranks.first + device * each, count: each };
    let mut groups = vec![RankGroup { ranks: worker.ranks, shape: Group::nodes(&vec![each; devices as usize]) }];
    groups.extend((0..devices).map(|device| RankGroup { ranks: on(device), shape: Group::nodes(&[each]) }));
    let role = |device: u32| {
        let mut tasks = worker.tasks.clone();
        for task in &mut tasks {
            match &mut task.op {
                Op::Exchange(exchange) if exchange.collective == Collective::AllReduce => {
                    exchange.group = 1 + device as usize;
                }
                Op::Averaging { rule: AveragingRule::Reference, range } if device == 0 => range.end = range.start,
                _ => {}
            }
        }
        Role { name: format!("device {device}"), ranks: on(device), tasks }
    };
    ((0..devices).map(role).collect(), groups)
}
