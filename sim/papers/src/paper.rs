//! `Paper`: holds its published figures, what they have in common, the fits of its machine and its plots.

use super::machine::MachineParameter;
use super::plot::Plot;
use super::row::CaseRow;
use lockstep_experiment::Experiment;

/// One paper: its rows and what they have in common.
#[derive(Debug, Clone)]
pub struct Paper {
    /// Its short name.
    pub name: String,
    /// Authors, year, title.
    pub source: String,
    /// What all rows have in common.
    pub common: Experiment,
    /// The fits of its machine, in their order.
    pub fits: Vec<PaperFit>,
    /// The published figures, in the paper's order.
    pub rows: Vec<CaseRow>,
    /// Its plots; empty unless asked for.
    pub plots: Vec<Plot>,
}

/// A parameter to be fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct PaperFit {
    /// The parameter of the machine.
    pub parameter: MachineParameter,
    /// Its least and largest value: seconds, a coefficient of variation, or a factor.
    pub between: [f64; 2],
    /// The names of the rows that it is fitted to.
    pub rows: Vec<String>,
    /// What it represents.
    pub why: String,
}
