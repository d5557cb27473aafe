//! Programs with reference models: a role for each device, whose learners sum their differences among themselves first.

use std::ops::Range;

use lockstep_topology::{Algorithm, Collective, Group};

use crate::{Averaging, AveragingRule, Exchange, Job, Op, RankGroup, RankRange, References, Role};

/// What the sum on a device is called.
pub(super) const SUM: &str = "sum-on-device";

/// The sum of a device's differences; [`apart`] says whose.
pub(super) fn sum(job: &Job, range: &Range<u64>) -> Exchange {
    Exchange {
        collective: Collective::AllReduce,
        // Inside a node a hierarchical method is the same whatever crosses nodes.
        algorithm: Algorithm::hierarchical(Algorithm::ring()),
        group: 0,
        buffer: Averaging::DIFFERENCES,
        range: range.clone(),
        chunk: job.chunk.map_or(0, |bytes| (bytes.0 / 4).max(1)),
        window: 0,
    }
}

/// The method by which one learner of each device exchanges what they have in common.
pub(super) fn across(algorithm: &Algorithm) -> Algorithm {
    match algorithm {
        nested if nested.by_nodes() => nested.clone(),
        flat => Algorithm::hierarchical(flat.clone()),
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
