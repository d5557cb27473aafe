//! Folds runs: simulates one of the ranks that a declared symmetry makes equal, exactly.
//!
//! The group that algorithms, cluster, placement and hosting have in common acts freely on ranks, so each orbit has as
//! many ranks as there are permutations, and the first block of ranks holds one of each. Speeds are unique (max-min),
//! so everything that happens to a rank happens to its images at the same instant. Hence the quotient is exact:
//!
//! - only representatives run; a message to rank p goes to p's representative, and its sender is mapped by the same
//!   permutation;
//! - a wire that represents others is one resource. Where k images of every representative's use share it, its capacity
//!   is divided by k, which keeps both the sum and the fairness among uses. Cores and memories likewise.
//!
//! Where a route crosses two images of one wire (a half-duplex wire at both ends) this does not hold, and every rank is
//! simulated. The same applies wherever only the identity is common.

pub(crate) mod renumber;
#[cfg(test)]
mod tests;

use std::fmt;

use lockstep_models::{Axis, Exchange, Op, Program, Role, Span, Task};
use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::{Fold, Permutations, Rank, Schedule};

use crate::error::SimError;
use crate::orbits::{Orbits, UNFOLDABLE};
use crate::platform::Platform;
use crate::traffic::Traffic;

/// Spans, or pairs of ranks, that a folded run writes out for all ranks by default.
pub(crate) const WRITTEN_OUT: u64 = 1 << 20;

/// Whether ranks are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FoldRule {
    /// Every rank is simulated.
    Never,
    /// Only where that changes nothing.
    #[default]
    Exact,
}

lockstep_topology::named!(FoldRule, "rule of folding": Never = "never", Exact = "exact");

/// Which ranks were simulated.
#[derive(Debug, Clone, PartialEq)]
pub enum Folding {
    /// Every rank, because folding is off or there is only one.
    Off,
    /// Every rank, because of this.
    Refused(String),
    /// The first ranks only, each for as many as `group` has permutations.
    Folded {
        /// Ranks that were simulated.
        representatives: u32,
        /// The number of ranks.
        ranks: u32,
        /// The permutations that map a rank to those that it represents.
        group: Permutations,
        /// Elements that exchanges are rounded up by, per element.
        padding: f64,
    },
}

impl Folding {
    fn of(fold: &Fold, padding: f64) -> Folding {
        let (representatives, ranks, group) = (fold.representatives(), fold.ranks(), fold.group());
        Folding::Folded { representatives, ranks, group, padding }
    }

    /// Ranks that each simulated one represents.
    pub fn copies(&self) -> u32 {
        match self {
            Folding::Folded { representatives, ranks, .. } => ranks / representatives,
            _ => 1,
        }
    }
}

impl fmt::Display for Folding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Folding::Off => f.write_str("all ranks are simulated"),
            Folding::Refused(reason) => write!(f, "all ranks are simulated: {reason}"),
            Folding::Folded { representatives, ranks, group, padding } => {
                write!(
                    f,
                    "{representatives} of {ranks} ranks are simulated; the others are identical by symmetry ({group})"
                )?;
                // Less rounds to 0.00 %.
                if *padding >= 5e-5 {
                    write!(f, "; exchanges are rounded up by {:.2} %", padding * 100.0)?;
                }
                Ok(())
            }
        }
    }
}

/// How `program` folds on `platform`.
pub(crate) fn of_program(program: &Program, platform: &Platform<'_>, rule: FoldRule) -> (Orbits, Folding) {
    let ranks = program.ranks();
    if ranks < 2 || rule == FoldRule::Never {
        return (Orbits::all(), Folding::Off);
    }
    if program.claims() {
        return (Orbits::all(), Folding::Refused("batches go to learners first come, first served".into()));
    }
    if decode_in_turn(program, platform) {
        return (Orbits::all(), Folding::Refused("threads decode one batch of a process after another".into()));
    }
    let Some((axis, block)) = program.mesh.outermost() else {
        return (Orbits::all(), Folding::Refused("nodes have unequal numbers of ranks".into()));
    };
    // A role that has one of these ranks must have all of them.
    let together = |role: &Role| role.ranks.iter().all(|rank| role.ranks.contains(rank % block));
    if ranks > program.workers() || program.roles.len() > 1 && !program.roles.iter().all(together) {
        return (Orbits::all(), Folding::Refused("ranks have different roles".into()));
    }
    if copies_differ(program, axis) {
        return (Orbits::all(), Folding::Refused("ranks copy different numbers of elements".into()));
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
fn copies_differ(program: &Program, axis: Axis) -> bool {
    let differ = |task: &Task| match &task.op {
        Op::Copy(copies) => {
            copies.axis() == Some(axis) && copies.values().iter().any(|copy| copy.moved() != copies.first().moved())
        }
        _ => false,
    };
    program.roles.iter().flat_map(|role| &role.tasks).any(differ)
}

/// Elements that exchanges are rounded up by, per element.
fn padding(program: &Program) -> f64 {
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
pub(crate) fn of_schedule(
    schedule: &Schedule,
    elements: u64,
    platform: &Platform<'_>,
    rule: FoldRule,
) -> (Orbits, Folding) {
    if schedule.members() < 2 || rule == FoldRule::Never {
        return (Orbits::all(), Folding::Off);
    }
    let met = Met { schedule: schedule.clone(), block: Some(1) };
    let padding = (schedule.elements() - elements) as f64 / elements.max(1) as f64;
    fold(vec![Some(met)], padding, (schedule.members(), 1), platform)
}

/// How the ranks of these exchanges, padded by `padding`, fold in blocks of `block` ranks, where they otherwise do the
/// same.
fn fold(
    exchanges: Vec<Option<Met>>,
    padding: f64,
    (ranks, block): (u32, u32),
    platform: &Platform<'_>,
) -> (Orbits, Folding) {
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
        Ok(fold) => {
            let folding = Folding::of(&fold, padding);
            (Orbits::of(fold), folding)
        }
        Err(reason) => (Orbits::all(), Folding::Refused(reason.into())),
    }
}

/// Runs `run` folded; if a route does not fold, with fewer permutations, in the end with every rank.
pub(crate) fn or_unfolded<T>(
    (mut orbits, mut folding): (Orbits, Folding),
    mut run: impl FnMut(Orbits) -> Result<T, SimError>,
) -> Result<(T, Folding), SimError> {
    loop {
        match run(orbits.clone()) {
            Err(SimError::Input(error)) if error.place.to_string() == UNFOLDABLE => {
                orbits = orbits.coarser();
                folding = match (orbits.fold(), folding) {
                    (Some(fold), Folding::Folded { padding, .. }) => Folding::of(fold, padding),
                    _ => Folding::Refused(error.message),
                };
            }
            other => return other.map(|done| (done, folding)),
        }
    }
}

/// The spans and the traffic of all ranks from those of representatives, unless that is more than `most` of either.
pub(crate) fn write_out(orbits: &Orbits, spans: Vec<Span>, traffic: Traffic, most: u64) -> (Vec<Span>, Traffic) {
    let Some(fold) = orbits.fold() else { return (spans, traffic) };
    let copies = fold.ranks() / fold.representatives();
    let few = |count: usize| count as u64 * u64::from(copies) <= most;
    let image = |to: u32, rank: u32| fold.group().image(fold.ranks(), to, rank);
    let spans = if few(spans.len()) {
        let mut all: Vec<Span> = Vec::with_capacity(spans.len() * copies as usize);
        for to in 0..copies {
            all.extend(spans.iter().map(|span| Span { rank: image(to, span.rank), ..*span }));
        }
        all
    } else {
        spans
    };
    let traffic = if few(traffic.pairs.len()) {
        let pairs = traffic.pairs.iter();
        let of = |to: u32| pairs.clone().map(move |((a, b), sent)| ((image(to, *a), image(to, *b)), *sent));
        Traffic { pairs: (0..copies).flat_map(of).collect(), copies: 1 }
    } else {
        Traffic { copies, ..traffic }
    };
    (spans, traffic)
}
