//! Trained sweeps: the arms of an experiment, each with several seeds, a row an epoch in a file that can be gone on with.

mod answer;
mod file;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use answer::answer;
pub use file::RunsFile;
pub use plan::{Planned, plan};
pub use run::{Data, train};
