//! Measured curves of collectives beside what is predicted: a file of `experiments/collectives` for each machine, with its source.
//!
//! The error of a point is |ln(predicted / measured)|, 0.69 for a factor of two either way; that of a curve is the median over sizes from
//! 1 KiB that count.

mod draw;
mod errors;
mod predict;
mod read;
mod shipped;
#[cfg(test)]
mod tests;

use lockstep_topology::{Algorithm, Collective, HostingRule};

pub use draw::curves_page;
pub use errors::{Curves, curves};

/// The curves that were measured on a machine.
#[derive(Debug, Clone)]
pub struct System {
    /// What the file is called.
    pub name: String,
    /// Who measured, and where that is found.
    pub source: String,
    /// The cluster.
    pub cluster: String,
    /// In which process each rank is.
    pub hosting: HostingRule,
    /// The curves, in the file's order.
    pub curves: Vec<Curve>,
}

/// A measured curve.
#[derive(Debug, Clone)]
pub struct Curve {
    /// What it is called within its system.
    pub name: String,
    /// What was measured.
    pub collective: Measured,
    /// How it is predicted.
    pub algorithm: Algorithm,
    /// Sizes that count.
    pub counted: std::ops::RangeInclusive<u64>,
    /// What was measured.
    pub points: Vec<Point>,
}

/// A collective of nccl-tests.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    /// One that a name says all of.
    Named(Collective),
    /// Equal parts of the buffer to everybody.
    AllToAll,
}

/// A size, and the time that it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Members.
    pub ranks: u32,
    /// Of the whole gathered, scattered or exchanged buffer.
    pub bytes: u64,
    /// Measured microseconds.
    pub micros: f64,
}

impl Measured {
    /// The collective over a buffer of `bytes` among `ranks`.
    pub fn of(&self, ranks: u32, bytes: u64) -> Collective {
        match self {
            Measured::Named(collective) => collective.clone(),
            Measured::AllToAll => {
                let each = bytes / 4 / u64::from(ranks.max(1));
                Collective::AllToAllV { counts: vec![each; (ranks * ranks) as usize].into() }
            }
        }
    }
}
