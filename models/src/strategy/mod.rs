//! Strategies: each is a choice of layouts that yields the graph of one step.
//!
//! A new strategy is one file here and one match arm; simulator and executor see only the program.

mod buckets;
mod data_parallel;
mod ea_sgd;
mod learners;
mod settings;
mod sma;
mod ssgd;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use crate::{Averaging, Graph, Job};
pub use ea_sgd::EaSgd;
pub use sma::Sma;

/// How training is spread over ranks.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// Synchronous data-parallel SGD: samples are split, weights replicated, gradients allreduced
    /// (Goyal et al. 2017 §2 and §4, Iandola et al. 2016 §6).
    Ssgd,
    /// Synchronous model averaging among learners (Koliousis et al. 2019 §3.2).
    Sma(Sma),
    /// Elastic averaging SGD: the same without momentum (Koliousis et al. 2019 §5.5).
    EaSgd(EaSgd),
}

impl Strategy {
    /// The graph of one optimizer step of `job`.
    pub fn graph(&self, job: &Job) -> Graph {
        match self.averaging(job.workers) {
            None => ssgd::graph(job),
            Some(averaging) => learners::graph(job, &averaging),
        }
    }

    /// How it averages the models of so many learners; `None` where all ranks train one.
    pub fn averaging(&self, learners: u32) -> Option<Averaging> {
        match self {
            Strategy::Ssgd => None,
            Strategy::Sma(sma) => Some(sma.averaging(learners)),
            Strategy::EaSgd(ea_sgd) => Some(ea_sgd.averaging(learners)),
        }
    }

    /// Batches of a rank from one synchronisation to the next: τ.
    pub fn period(&self) -> u32 {
        match self {
            Strategy::Ssgd => 1,
            Strategy::Sma(sma) => sma.period,
            Strategy::EaSgd(ea_sgd) => ea_sgd.period,
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Ssgd => f.write_str("ssgd"),
            Strategy::Sma(sma) => sma.fmt(f),
            Strategy::EaSgd(ea_sgd) => ea_sgd.fmt(f),
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    /// Reads `ssgd`, `sma`, `sma:momentum=0.9:tau=2:alpha=0.25` and `ea-sgd:tau=4:first-come`.
    fn from_str(text: &str) -> Result<Strategy, String> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "ssgd" if settings.is_empty() => Ok(Strategy::Ssgd),
            "sma" => Sma::parse(settings).map(Strategy::Sma),
            "ea-sgd" => EaSgd::parse(settings).map(Strategy::EaSgd),
            _ => Err(format!("unknown strategy {text:?}; there are: ssgd, sma, ea-sgd")),
        }
    }
}
