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

mod blocks;
mod renumber;
#[cfg(test)]
mod tests;

use std::fmt;

use lockstep_models::{Axis, Program, Span};
use lockstep_topology::{Fold, Permutations};

use crate::error::SimError;
use crate::orbits::{Orbits, UNFOLDABLE};
use crate::platform::Platform;
use crate::traffic::Traffic;
use blocks::of_program;
pub(crate) use blocks::of_schedule;
use renumber::{Renumbered, along_routes, rotations, turns_by_one};

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

/// The ranks that are simulated, with the reason.
#[derive(Debug, Clone)]
pub(crate) struct Folded {
    pub(crate) orbits: Orbits,
    pub(crate) folding: Folding,
}

impl Folded {
    /// Every rank, because folding is off or there is only one.
    fn off() -> Folded {
        Folded { orbits: Orbits::all(), folding: Folding::Off }
    }

    /// Every rank, because of `reason`.
    fn refused(reason: impl Into<String>) -> Folded {
        Folded { orbits: Orbits::all(), folding: Folding::Refused(reason.into()) }
    }

    /// The representatives of `fold`, where exchanges are rounded up by `padding`.
    fn by(fold: Fold, padding: f64) -> Folded {
        let folding = Folding::of(&fold, padding);
        Folded { orbits: Orbits::of(fold), folding }
    }

    /// What is simulated after a run that failed with `error`: if a route did not fold, fewer permutations, in the end
    /// every rank.
    ///
    /// # Errors
    /// `error`, if it has another reason.
    pub(crate) fn after(self, error: SimError) -> Result<Folded, SimError> {
        let message = match error {
            SimError::Input(error) if error.place.to_string() == UNFOLDABLE => error.message,
            other => return Err(other),
        };
        let orbits = self.orbits.coarser();
        let folding = match (orbits.fold(), self.folding) {
            (Some(fold), Folding::Folded { padding, .. }) => Folding::of(fold, padding),
            _ => Folding::Refused(message),
        };
        Ok(Folded { orbits, folding })
    }
}

/// The ranks of a program that are simulated, and the numbers under which they are.
pub(crate) struct SimulatedRanks {
    renumbered: Option<Renumbered>,
    pub(crate) folded: Folded,
}

impl SimulatedRanks {
    /// How `program` folds on `platform`, renumbered where that is better.
    pub(crate) fn of(program: &Program, platform: &Platform<'_>, rule: FoldRule) -> SimulatedRanks {
        let own = |folded| SimulatedRanks { renumbered: None, folded };
        let order: Vec<Axis> = program.mesh.outer_first().filter(|axis| program.mesh.size(*axis) > 1).collect();
        let differs = order.len() > 1 && order.iter().any(|axis| matches!(axis, Axis::Pipeline | Axis::Tensor));
        let alike = platform.conditions.apart().is_none() && platform.costs.noise().is_none() && platform.costs.alike();
        if rule == FoldRule::Never || !differs || !alike || program.claims() {
            return own(of_program(program, platform, rule));
        }
        // Blocks of the cluster may be exchanged: with the program's numbers, or with the axis after that of the
        // stages outermost.
        let outermost = if order[0] == Axis::Pipeline { order[1] } else { order[0] };
        let moved = if outermost == order[0] { None } else { Renumbered::by(program, platform, &[outermost]) };
        let by_blocks = match &moved {
            Some(moved) => of_program(&moved.program, &moved.platform(platform), rule),
            None => of_program(program, platform, rule),
        };
        let tensor = turns_by_one(program, Axis::Tensor);
        let inner = order.iter().copied().find(|axis| !matches!(axis, Axis::Pipeline | Axis::Tensor));
        let coordinates = match (&by_blocks.folding, inner) {
            (Folding::Folded { .. }, _) if !tensor => Vec::new(),
            // This much of the cluster is known to be equal.
            (Folding::Folded { representatives, group: Permutations::Rotations { .. }, .. }, Some(inner)) => {
                let each = program.ranks() / program.mesh.size(inner);
                if inner == outermost { vec![representatives / each] } else { Vec::new() }
            }
            (_, Some(inner)) => rotations(program, inner),
            (_, None) => Vec::new(),
        };
        let tried = coordinates.into_iter().map(|coordinates| inner.map(|axis| (axis, coordinates)));
        let mut found = tried.chain([None]).filter_map(|inner| along_routes(program, platform, tensor, inner));
        let found = found.next().filter(|(_, folded)| folded.folding.copies() > by_blocks.folding.copies());
        match found {
            Some((renumbered, folded)) => SimulatedRanks { renumbered: Some(renumbered), folded },
            None => SimulatedRanks {
                renumbered: moved.filter(|_| matches!(by_blocks.folding, Folding::Folded { .. })),
                folded: by_blocks,
            },
        }
    }

    /// `program` with the numbers of the simulation.
    pub(crate) fn program<'p>(&'p self, program: &'p Program) -> &'p Program {
        self.renumbered.as_ref().map_or(program, |renumbered| &renumbered.program)
    }

    /// `platform` with the ranks of the simulation in their places.
    pub(crate) fn platform<'p>(&'p self, platform: &Platform<'p>) -> Platform<'p> {
        self.renumbered.as_ref().map_or(*platform, |renumbered| renumbered.platform(platform))
    }

    /// Converts spans and traffic to the program's own numbers.
    pub(crate) fn back(&self, spans: &mut [Span], traffic: &mut Traffic) {
        if let Some(renumbered) = &self.renumbered {
            renumbered.back(spans, traffic);
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
