//! Renumbers the ranks of a program, so that equal ranks are consecutive, as folding requires.
//!
//! Stages of a pipeline differ, but ranks of one stage along `data` do not; and those along `tensor` do the same at the
//! same time. Folding exchanges blocks of consecutive ranks, so the simulation numbers ranks by their coordinates on
//! such axes first. Its results are converted back to the program's own numbers.

use std::collections::BTreeSet;

use lockstep_models::{Axis, Exchange, Mesh, Program, Role, Span};
use lockstep_topology::{Action, Fold, Hosting, HostingRule, Limits, Permutations, Placement, PlacementRule, Rank};

use super::Folded;
use super::blocks::{copies_differ, padding};
use crate::platform::Platform;
use crate::traffic::Traffic;

/// Routes that are followed to see whether they move with the ranks.
const MOST_ROUTES: u64 = 1 << 22;

/// A program with renumbered ranks, and their placement.
pub(super) struct Renumbered {
    pub(super) program: Program,
    placement: Placement,
    hosting: Hosting,
    /// By new number: the rank in the original program.
    was: Vec<u32>,
}

/// Whether ranks along `axis` do the same, and a rotation by one leaves their exchanges along it unchanged.
pub(super) fn turns_by_one(program: &Program, axis: Axis) -> bool {
    program.mesh.size(axis) > 1 && rotation(program, axis) == Some(1)
}

/// The fewest coordinates by which ranks along `axis` may be rotated, as far as the program allows.
fn rotation(program: &Program, axis: Axis) -> Option<u32> {
    if copies_differ(program, axis) {
        return None;
    }
    let size = program.mesh.size(axis);
    let mut group = Permutations::Rotations { unit: 1 };
    for role in &program.roles {
        for (_, exchange) in role.exchanges().filter(|(_, exchange)| exchange.axes.contains(axis)) {
            let schedule = program.schedule(exchange, role.ranks.first()).ok()?;
            group = group.common(schedule.symmetry(), size);
        }
    }
    if let Permutations::Rotations { unit } = group { Some(unit) } else { None }
}

/// By how many coordinates ranks along `axis` may be rotated, the fewest first.
pub(super) fn rotations(program: &Program, axis: Axis) -> Vec<u32> {
    let size = program.mesh.size(axis);
    let Some(unit) = rotation(program, axis) else { return Vec::new() };
    (unit..size).filter(|coordinates| coordinates.is_multiple_of(unit) && size.is_multiple_of(*coordinates)).collect()
}

/// Folds all ranks along `tensor` into one, if asked to, and those along another axis into the given number of
/// coordinates; `None` where the routes of their messages are not equal.
pub(super) fn along_routes(
    program: &Program,
    platform: &Platform<'_>,
    tensor: bool,
    inner: Option<(Axis, u32)>,
) -> Option<(Renumbered, Folded)> {
    let ranks = program.ranks();
    let order: Vec<Axis> = tensor.then_some(Axis::Tensor).into_iter().chain(inner.map(|(axis, _)| axis)).collect();
    let here = Renumbered::by(program, platform, &order)?;
    let block = if tensor { ranks / program.mesh.size(Axis::Tensor) } else { ranks };
    let unit = inner.map_or(block, |(axis, coordinates)| block / program.mesh.size(axis) * coordinates);
    if unit == ranks {
        return None;
    }
    let group = if tensor { Permutations::Grid { block, unit } } else { Permutations::Rotations { unit } };
    let pairs = here.pairs(unit)?;
    if pairs.len() as u64 * u64::from(group.order(ranks)) > MOST_ROUTES {
        return None;
    }
    let places = (&here.placement, &here.hosting);
    let fold = Fold::along_routes(group, platform.cluster, places, &pairs, program.has_input()).ok()?;
    Some((here, Folded::by(fold, padding(program))))
}

impl Renumbered {
    /// `program` with these axes outermost; `None` where that changes more than numbers.
    pub(super) fn by(program: &Program, platform: &Platform<'_>, first: &[Axis]) -> Option<Renumbered> {
        // Exchanges along two axes number their members differently then, and nodes are runs of consecutive ranks.
        let several =
            |exchange: &Exchange| exchange.axes.iter().filter(|axis| program.mesh.size(*axis) > 1).count() > 1;
        let mut exchanges = program.roles.iter().flat_map(Role::exchanges);
        let is_bound = exchanges.any(|(_, exchange)| several(exchange) || exchange.algorithm.by_nodes());
        let alone = platform.conditions.apart().is_none() && program.partition.is_none();
        let stages = program.roles.iter().all(|role| role.order().is_some());
        if is_bound || !alone || program.ranks() > program.workers() || !(stages || program.roles.len() == 1) {
            return None;
        }
        let rest = program.mesh.outer_first().filter(|axis| !first.contains(axis));
        let sizes = first.iter().copied().chain(rest).map(|axis| (axis, program.mesh.size(axis)));
        let mesh = Mesh::new(&sizes.collect::<Vec<_>>()).ok().filter(|mesh| mesh.ranks() == program.ranks())?;
        let strides: Vec<(Axis, u32)> =
            program.mesh.outer_first().map(|axis| (axis, stride(&program.mesh, axis))).collect();
        let old = |rank: u32| strides.iter().map(|(axis, stride)| mesh.coordinate(*axis, rank) * stride).sum();
        let was: Vec<u32> = (0..mesh.ranks()).map(old).collect();
        let of_stage = mesh.axes().without(Axis::Pipeline);
        let renamed = |role: &Role| {
            let stage = program.mesh.coordinate(Axis::Pipeline, role.ranks.first());
            Role { ranks: mesh.group(of_stage, stage), ..role.clone() }
        };
        let roles = program.roles.iter().map(renamed).collect();
        let devices: Vec<_> = was.iter().map(|rank| platform.placement.device(Rank(*rank))).collect();
        let no_limits = Limits { ranks_per_core: u32::MAX, ranks_per_gpu: u32::MAX, on_cpus: false };
        let placement =
            Placement::within(platform.cluster, mesh.ranks(), &PlacementRule::Listed(devices), no_limits).ok()?;
        let processes = was.iter().map(|rank| platform.hosting.process(Rank(*rank))).collect();
        let hosting = Hosting::new(&placement, &HostingRule::Listed(processes)).ok()?;
        Some(Renumbered { program: Program { roles, mesh, ..program.clone() }, placement, hosting, was })
    }

    /// Which of the first `ranks` ranks sends to which rank.
    fn pairs(&self, ranks: u32) -> Option<Vec<(u32, u32)>> {
        let mut pairs = BTreeSet::new();
        for role in &self.program.roles {
            for (_, exchange) in role.exchanges() {
                for rank in role.ranks.iter().take_while(|rank| *rank < ranks) {
                    let members = self.program.group_of(exchange, rank);
                    let Some(member) = members.member(rank) else { continue };
                    let schedule = self.program.schedule_among(exchange, &members).ok()?;
                    let steps = (0..schedule.lanes()).flat_map(|lane| schedule.lane(member, lane));
                    let sent = steps.filter(|step| step.action == Action::Send);
                    pairs.extend(sent.map(|step| (rank, members.rank(step.peer))));
                }
            }
        }
        Some(pairs.into_iter().collect())
    }

    /// `platform` with the ranks in their original places.
    pub(super) fn platform<'p>(&'p self, platform: &Platform<'p>) -> Platform<'p> {
        Platform { placement: &self.placement, hosting: &self.hosting, ..*platform }
    }

    /// Converts spans and traffic to the original rank numbers.
    pub(super) fn back(&self, spans: &mut [Span], traffic: &mut Traffic) {
        let was = |rank: u32| self.was[rank as usize];
        spans.iter_mut().for_each(|span| *span = Span { rank: was(span.rank), ..*span });
        let pairs = std::mem::take(&mut traffic.pairs);
        traffic.pairs = pairs.into_iter().map(|((from, to), sent)| ((was(from), was(to)), sent)).collect();
    }
}

/// The distance between ranks that are neighbours along `axis`.
fn stride(mesh: &Mesh, axis: Axis) -> u32 {
    mesh.outer_first().skip_while(|other| *other != axis).skip(1).map(|inner| mesh.size(inner)).product()
}
