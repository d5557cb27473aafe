//! A row: one published figure, what it is a figure of, and whether its error counts.

use lockstep_topology::ErrorPlace;

use super::quantity::Quantity;
use super::unit::Unit;
use lockstep_experiment::Experiment;

/// Why a row's error does not count; only these exempt one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The paper contradicts itself or physics here.
    Contradiction,
    /// Only an ordering or a ratio is claimed.
    Ordering,
    /// Statistical: shown in kind on data that can be had.
    Statistical,
    /// Exact: computed from model or algorithm.
    Exact,
    /// Computation is scaled to it.
    Anchor,
    /// A parameter is fitted to it.
    Fitted,
}

lockstep_topology::named!(Mark, "mark":
    Contradiction = "c", Ordering = "o", Statistical = "s", Exact = "=", Anchor = "anchor", Fitted = "fitted");

/// One published figure.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name, e.g. `G-3`.
    pub name: String,
    /// What the paper says.
    pub says: String,
    /// Where it says so.
    pub cite: String,
    /// Why its error does not count, if so.
    pub mark: Option<Mark>,
    /// What the figure is of; none of those that are statistical.
    pub quantity: Option<Quantity>,
    /// The configuration that it was measured in; only its first one counts.
    pub at: Experiment,
    /// The figure, in `unit`; none of orderings.
    pub published: Option<f64>,
    /// Whether it is the most that there may be, and the row holds or does not.
    pub at_most: bool,
    /// Its unit.
    pub unit: Unit,
    /// File and line.
    pub place: ErrorPlace,
}

impl Row {
    /// The configurations that it speaks of, where anything has to be simulated for it.
    pub(super) fn experiments(&self) -> Vec<&Experiment> {
        match &self.quantity {
            None | Some(Quantity::Computed(_) | Quantity::TunedLearners) => Vec::new(),
            Some(Quantity::Order { cases, .. }) => cases.iter().flatten().collect(),
            Some(Quantity::Speedup { over } | Quantity::Slowdown { over } | Quantity::Efficiency { over }) => {
                vec![&self.at, over]
            }
            Some(_) => vec![&self.at],
        }
    }
}
