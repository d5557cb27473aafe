//! Strategies: each is a choice of layouts that yields the graph of one step.
//!
//! A new strategy is one file here and one match arm; simulator and executor see only the program.

mod ssgd;

use std::fmt;
use std::str::FromStr;

use crate::{Graph, Job};

/// How training is spread over ranks.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// Synchronous data-parallel SGD: samples are split, weights replicated, gradients allreduced
    /// (Goyal et al. 2017 §2 and §4, Iandola et al. 2016 §6).
    Ssgd,
}

impl Strategy {
    /// The graph of one optimizer step of `job`.
    pub fn graph(&self, job: &Job) -> Graph {
        match self {
            Strategy::Ssgd => ssgd::graph(job),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::Ssgd => "ssgd",
        })
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Strategy, String> {
        match text {
            "ssgd" => Ok(Strategy::Ssgd),
            _ => Err(format!("unknown strategy {text:?}; there is: ssgd")),
        }
    }
}
