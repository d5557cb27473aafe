//! Folds by exchanging blocks of consecutive ranks: the permutations that exchanges, cluster, placement and hosting have
//! in common.

use lockstep_models::{Axis, Exchange, Op, Program, Role, Task};
use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::{Fold, Permutations, Rank, Schedule};

use super::{FoldRule, Folded};
use crate::platform::Platform;

/// How `program` folds on `platform`.
pub(super) fn of_program(program: &Program, platform: &Platform<'_>, rule: FoldRule) -> Folded {
    let ranks = program.ranks();
    if ranks < 2 || rule == FoldRule::Never {
        return Folded::off();
    }
    if program.claims() {
        return Folded::refused("batches go to learners first come, first served");
    }
    if decode_in_turn(program, platform) {
        return Folded::refused("threads decode one batch of a process after another");
    }
    let Some((axis, block)) = program.mesh.outermost() else {
        return Folded::refused("nodes have unequal numbers of ranks");
    };
    // A role that has one of these ranks must have all of them.
    let together = |role: &Role| role.ranks.iter().all(|rank| role.ranks.contains(rank % block));
    if ranks > program.workers() || program.roles.len() > 1 && !program.roles.iter().all(together) {
        return Folded::refused("ranks have different roles");
    }
    if copies_differ(program, axis) {
        return Folded::refused("ranks copy different numbers of elements");
    }
    let met = |exchange: &Exchange, rank: u32| {
        let schedule = program.schedule(exchange, rank).ok()?;
        Some(Met { schedule, block: exchange.axes.contains(axis).then(|| group_block(program, exchange, axis)) })
    };
    let all = program.roles.iter().flat_map(|role| role.exchanges().map(move |(_, exchange)| (role, exchange)));
    let all = all.flat_map(|(role, exchange)| {
        // Groups may be on nodes in different ways, or have parts of unequal sizes, and each must be symmetric.
        let differ = exchange.algorithm.by_nodes() || !exchange.shared.is_empty();
        let count = if differ { block as usize } else { 1 };
        let leads = move |rank: &u32| count == 1 || program.group_of(exchange, *rank).first() == *rank;
        role.ranks.iter().take(count).filter(leads).map(move |rank| met(exchange, rank))
    });
    fold(all.collect(), padding(program), (ranks, block), platform)
}

/// Whether threads decode for several ranks of a process on these ranks' cores: one rank's batch is ready before another's.
fn decode_in_turn(program: &Program, platform: &Platform<'_>) -> bool {
    let (cluster, hosting) = (platform.cluster, platform.hosting);
    let on_cpu = |rank: &Rank| {
        let device = &cluster.devices()[platform.placement.device(*rank).0 as usize];
        matches!(device.kind, DeviceKind::Cpu(_))
    };
    let shares = |process| hosting.ranks(process).iter().filter(|rank| on_cpu(rank)).take(2).count() == 2;
    program.has_input() && platform.conditions.input.is_some() && (0..hosting.processes()).any(shares)
}

/// Whether ranks with other coordinates on `axis` copy more elements than others: they may copy other rows, but not
/// more of them.
pub(super) fn copies_differ(program: &Program, axis: Axis) -> bool {
    let differ = |task: &Task| match &task.op {
        Op::Copy(copies) => {
            copies.axis() == Some(axis) && copies.values().iter().any(|copy| copy.moved() != copies.first().moved())
        }
        _ => false,
    };
    program.roles.iter().flat_map(|role| &role.tasks).any(differ)
}

/// Elements that exchanges are rounded up by, per element.
pub(super) fn padding(program: &Program) -> f64 {
    let (mut elements, mut added) = (0, 0);
    for role in &program.roles {
        for (_, exchange) in role.exchanges() {
            let first = role.ranks.first();
            let own = program.elements_of(exchange, &program.group_of(exchange, first));
            let all = program.schedule(exchange, first).map_or(own, |schedule| schedule.elements());
            (elements, added) = (elements + own, added + (all - own));
        }
    }
    added as f64 / elements.max(1) as f64
}

/// An exchange, reduced to what folding needs.
struct Met {
    schedule: Schedule,
    /// Members of a group at one coordinate of the outermost axis; `None` where a group is within one coordinate.
    block: Option<u32>,
}

/// Members of a group along the axes of `exchange` that have the same coordinate on the outermost axis.
fn group_block(program: &Program, exchange: &Exchange, axis: Axis) -> u32 {
    exchange.axes.without(axis).iter().map(|inner| program.mesh.size(inner)).product()
}

/// How one collective of `elements` folds on `platform`, rounded up or not.
pub(crate) fn of_schedule(schedule: &Schedule, elements: u64, platform: &Platform<'_>, rule: FoldRule) -> Folded {
    if schedule.members() < 2 || rule == FoldRule::Never {
        return Folded::off();
    }
    let met = Met { schedule: schedule.clone(), block: Some(1) };
    let padding = (schedule.elements() - elements) as f64 / elements.max(1) as f64;
    fold(vec![Some(met)], padding, (schedule.members(), 1), platform)
}

/// How the ranks of these exchanges, padded by `padding`, fold in blocks of `block` ranks, where they otherwise do the
/// same.
fn fold(exchanges: Vec<Option<Met>>, padding: f64, (ranks, block): (u32, u32), platform: &Platform<'_>) -> Folded {
    let mut group = None;
    for met in exchanges {
        let own = match met {
            None => Some(Permutations::Identity),
            Some(met) => met.block.map(|members| met.schedule.symmetry().among_blocks(members)),
        };
        // Any permutation of blocks maps groups within them to each other.
        let Some(own) = own.map(|own| own.of_blocks(block)) else { continue };
        group = Some(group.map_or(own, |group: Permutations| group.common(own, ranks)));
    }
    let found = if platform.placement.ranks() != ranks {
        Err("not all ranks that are placed take part")
    } else if let Some(reason) = platform.conditions.apart() {
        Err(reason)
    } else if platform.costs.noise().is_some() {
        Err("noise differs between ranks")
    } else if platform.cluster.shares_cores() {
        Err("hosts share the cores of one machine")
    } else if !platform.costs.alike() {
        Err("equal devices differ in cost")
    } else {
        let group = group.unwrap_or(Permutations::Identity);
        Fold::new(group, platform.cluster, platform.placement, platform.hosting)
    };
    match found {
        Ok(fold) => Folded::by(fold, padding),
        Err(reason) => Folded::refused(reason),
    }
}
