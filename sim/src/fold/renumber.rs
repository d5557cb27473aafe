//! A program whose ranks are numbered anew, so that an axis along which they are alike is the outermost.
//!
//! Stages of a pipeline differ, but the ranks of one that differ along `data` do not. Folding takes blocks of consecutive ranks for each
//! other, so with `pipeline` outermost the simulation numbers ranks by their coordinate on the next axis first, and what it says of
//! them is put back into the program's own numbers.

use lockstep_models::{Axis, AxisSet, Mesh, Program, Role, Span};
use lockstep_topology::{Hosting, HostingRule, Limits, Placement, PlacementRule, Rank};

use super::{FoldRule, Folding, of_program};
use crate::platform::Platform;
use crate::simulate::Prediction;

/// A program with other numbers for its ranks, and where these are.
pub(crate) struct Renumbered {
    pub(crate) program: Program,
    placement: Placement,
    hosting: Hosting,
    /// By new number: the rank of the program as it was.
    was: Vec<u32>,
}

impl Renumbered {
    /// `program` with the axis behind `pipeline` outermost, where it folds on `platform` so and not as it is.
    pub(crate) fn of(program: &Program, platform: &Platform<'_>, rule: FoldRule) -> Option<Renumbered> {
        let outermost = program.mesh.outermost().filter(|_| rule == FoldRule::Exact)?.0;
        let order: Vec<Axis> = program.mesh.outer_first().filter(|axis| program.mesh.size(*axis) > 1).collect();
        let axis = *order.get(1)?;
        // What exchanges along both axes numbers its members otherwise then, and nodes are runs of consecutive ranks.
        let along_both = |axes: AxisSet| axes.contains(outermost) && axes.contains(axis);
        let mut exchanges = program.roles.iter().flat_map(Role::exchanges);
        let is_bound = exchanges.any(|(_, exchange)| along_both(exchange.axes) || exchange.algorithm.by_nodes());
        let alone = platform.conditions.apart().is_none() && program.partition.is_none();
        if outermost != Axis::Pipeline || is_bound || !alone || program.ranks() > program.workers() {
            return None;
        }
        let axes = std::iter::once(axis).chain(program.mesh.outer_first().filter(|other| *other != axis));
        let sizes: Vec<(Axis, u32)> = axes.map(|axis| (axis, program.mesh.size(axis))).collect();
        let mesh = Mesh::new(&sizes).ok()?;
        let strides = program.mesh.outer_first().map(|axis| (axis, stride(&program.mesh, axis)));
        let strides: Vec<(Axis, u32)> = strides.collect();
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
        let renumbered = Renumbered { program: Program { roles, mesh, ..program.clone() }, placement, hosting, was };
        let folds = |folding: Folding| matches!(folding, Folding::Folded { .. });
        let gains = !folds(of_program(program, platform, rule).1)
            && folds(of_program(&renumbered.program, &renumbered.platform(platform), rule).1);
        gains.then_some(renumbered)
    }

    /// `platform` with the ranks where they were.
    pub(crate) fn platform<'p>(&'p self, platform: &Platform<'p>) -> Platform<'p> {
        Platform { placement: &self.placement, hosting: &self.hosting, ..*platform }
    }

    /// What was predicted, with the ranks' own numbers.
    pub(crate) fn back(&self, mut predicted: Prediction) -> Prediction {
        let was = |rank: u32| self.was[rank as usize];
        predicted.timeline.spans.iter_mut().for_each(|span| *span = Span { rank: was(span.rank), ..*span });
        let pairs = std::mem::take(&mut predicted.traffic.pairs);
        predicted.traffic.pairs = pairs.into_iter().map(|((from, to), sent)| ((was(from), was(to)), sent)).collect();
        predicted
    }
}

/// The distance between ranks that are neighbours along `axis`.
fn stride(mesh: &Mesh, axis: Axis) -> u32 {
    mesh.outer_first().skip_while(|other| *other != axis).skip(1).map(|inner| mesh.size(inner)).product()
}
