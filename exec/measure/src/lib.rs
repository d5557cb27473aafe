//! Measures what a machine does: runs with their checkpoints and records, calibration, and collectives.

pub mod calibrate;
pub mod checkpoint;
pub mod collective;
pub mod convergence;
pub mod devices;
pub mod flight;
pub mod host;
pub mod interrupt;
pub mod job_hosts;
pub mod launch;
pub mod memory;
pub mod metrics;
pub mod operation;
pub mod profile;
pub mod quiet;
pub mod rows;
pub mod run_failure;
pub mod started;
mod stopwatch;
pub mod trained;
pub mod training;
