//! Reads measured curves of collectives and compares them with predictions: a file of `experiments/collectives` for
//! each machine, with its source.
//!
//! The error of a point is |ln(predicted / measured)|, 0.69 for a factor of two either way; that of a curve is the
//! median over sizes from 1 KiB that count.

mod draw;
mod errors;
mod read;
mod shipped;
#[cfg(test)]
mod tests;

use lockstep_topology::{Algorithm, Collective, Dtype, HostingRule};

pub use draw::curves_page;
pub use errors::{Curves, curves};

/// The curves measured on a machine.
#[derive(Debug, Clone)]
pub struct MeasuredSystem {
    /// The file's name.
    pub name: String,
    /// Who measured, and where it was published.
    pub source: String,
    /// The cluster.
    pub cluster: String,
    /// The process of each rank.
    pub hosting: HostingRule,
    /// The curves, in the file's order.
    pub curves: Vec<Curve>,
}

/// A measured curve.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Its name within its system.
    pub name: String,
    /// The collective.
    pub collective: CurveColumn,
    /// The algorithm of the prediction.
    pub algorithm: Algorithm,
    /// Sizes that count.
    pub counted: std::ops::RangeInclusive<u64>,
    /// The measured points.
    pub points: Vec<CurvePoint>,
}

/// A collective of nccl-tests.
#[derive(Debug, Clone, PartialEq)]
pub enum CurveColumn {
    /// One that its name defines completely.
    Named(Collective),
    /// Equal parts of the buffer to every member.
    AllToAll,
}

/// A size, and the measured time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// Members.
    pub ranks: u32,
    /// Bytes of the whole gathered, scattered or exchanged buffer.
    pub bytes: u64,
    /// Measured microseconds.
    pub micros: f64,
}

impl CurveColumn {
    /// The collective over a buffer of `bytes` among `ranks`.
    pub fn of(&self, ranks: u32, bytes: u64) -> Collective {
        match self {
            CurveColumn::Named(collective) => collective.clone(),
            CurveColumn::AllToAll => {
                let each = Dtype::F32.elements_within(bytes) / u64::from(ranks.max(1));
                Collective::AllToAllV { counts: vec![each; (ranks * ranks) as usize].into() }
            }
        }
    }
}
