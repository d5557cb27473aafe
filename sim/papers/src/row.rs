//! `Row`: holds a published figure, its quantity, and whether its error counts.

use lockstep_topology::ErrorPlace;

use super::quantity::Quantity;
use super::unit::Unit;
use lockstep_experiment::Experiment;

/// Why a row's error does not count; only these exempt one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowMark {
    /// The paper contradicts itself or physics here.
    Contradiction,
    /// Only an ordering or a ratio is claimed.
    Ordering,
    /// Statistical: shown qualitatively on data that is available.
    Statistical,
    /// Exact: computed from model or algorithm.
    Exact,
    /// Computation is scaled to it.
    Anchor,
    /// A parameter is fitted to it.
    Fitted,
    /// The same measurement as another row, in another unit.
    Same,
}

lockstep_topology::named!(RowMark, "mark":
    Contradiction = "c", Ordering = "o", Statistical = "s", Exact = "=", Anchor = "anchor", Fitted = "fitted", Same = "same");

/// One published figure.
#[derive(Debug, Clone)]
pub struct CaseRow {
    /// Its name, e.g. `G-3`.
    pub name: String,
    /// What the paper states.
    pub says: String,
    /// Where it states it.
    pub cite: String,
    /// Why its error does not count, if it does not.
    pub mark: Option<RowMark>,
    /// The row that states the same measurement, of [`RowMark::Same`].
    pub same: Option<String>,
    /// The quantity of the figure; `None` for statistical rows.
    pub quantity: Option<Quantity>,
    /// The configuration that it was measured in; only its first one counts.
    pub at: Experiment,
    /// The figure, in `unit`; `None` for orderings.
    pub published: Option<f64>,
    /// Whether it is an upper limit, and the row holds or does not.
    pub at_most: bool,
    /// Its unit.
    pub unit: Unit,
    /// File and line.
    pub place: ErrorPlace,
}

impl CaseRow {
    /// The row that counts for its measurement: itself, unless it repeats another one.
    pub(super) fn fact(&self) -> &str {
        self.same.as_deref().unwrap_or(&self.name)
    }

    /// The configurations that it refers to, if anything has to be simulated for it.
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
