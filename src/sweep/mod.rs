//! What-if sweeps: thousands of predictions over lists of settings, streamed to a file that can be gone on with, and of
//! each question the front of the configurations that nobody beats.

mod answer;
mod collector;
mod file;
mod front;
mod hardware;
mod identity;
mod plan;
mod plot;
mod points;
mod range;
mod run;
mod scale;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Dot};
pub use collector::Collector;
pub use file::RowsFile;
pub use front::{Front, PAYS};
pub use identity::identity;
pub use plan::{MOST_POINTS, Place, Plan, Point, Question, Sweep};
pub use plot::svg;
pub use points::{How, Points};
pub use range::{RankCount, clusters, counts};
pub use run::{check, estimate, run};
pub use scale::{SCALES, Scale};
