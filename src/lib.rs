//! Implements lockstep's command line and comparison; everything else is in the workspace's other crates.

pub mod cli;
pub mod compare;
