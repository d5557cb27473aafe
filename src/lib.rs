//! The command line of lockstep, and what stands behind it: experiments, predictions, measurements, reports, traces.

pub mod calibrate;
pub mod checkpoint;
pub mod cli;
pub mod collective;
pub mod compare;
pub mod convergence;
pub mod devices;
pub mod flight;
pub mod host;
pub mod interrupt;
pub mod launch;
pub mod measure;
pub mod memory;
pub mod metrics;
pub mod operation;
pub mod profile;
mod quiet;
pub mod run_failure;
pub mod trained;

pub use lockstep_experiment as experiment;
