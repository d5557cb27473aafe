//! Trained sweeps: trains the arms of an experiment, each with several seeds, and writes one row per epoch to a file
//! that can be resumed.

mod answer;
mod file;
mod merge;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use answer::answer;
pub use file::RunsFile;
pub use merge::merge;
pub use plan::{Planned, plan, share};
pub use run::{Data, train};
