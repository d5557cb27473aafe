//! Trained sweeps: the arms of an experiment, each with several seeds, a row an epoch in a file that can be gone on with.

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
