//! Runs a program for real.

pub mod exchange;
pub mod transport;
