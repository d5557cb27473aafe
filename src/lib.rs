//! The command line of lockstep, and what stands behind it: experiments, predictions, measurements, reports, traces.

pub mod anchor;
pub mod calibrate;
pub mod cli;
pub mod collective;
pub mod compare;
pub mod driver_log;
pub mod experiment;
pub mod explain;
pub mod failure;
pub mod host;
pub mod interrupt;
pub mod launch;
pub mod measure;
pub mod memory;
pub mod output;
pub mod papers;
pub mod predict;
pub mod progress;
mod quiet;
pub mod report;
pub mod scenario;
pub mod setup;
pub mod site;
pub mod sweep;
pub mod trace;
pub mod trials;
pub mod tune;
