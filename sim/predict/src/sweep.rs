//! Sweeps lists of what-if settings: thousands of predictions, streamed to a file that a rerun resumes, and for each
//! question the front of undominated configurations.

mod answer;
mod collector;
mod file;
mod front;
mod hardware;
mod identity;
mod merge;
mod plot;
mod points;
mod run;
#[cfg(test)]
mod tests;

pub use answer::{Dot, SweepAnswer};
pub use collector::Collector;
pub use file::RowsFile;
pub use front::{Front, PAYS};
pub use identity::identity;
pub use merge::merge;
pub use plot::svg;
pub use points::{How, Points};
pub use run::{check, estimate, run};
