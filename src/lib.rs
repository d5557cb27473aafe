//! The command line of lockstep, and what stands behind it: experiments, predictions, measurements, reports, traces.

pub mod cli;
pub mod compare;
